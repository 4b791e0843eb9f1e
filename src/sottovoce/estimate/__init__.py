"""What a run costs before it starts: parameters, FLOPs, memory, traffic, time. Names are loaded on first use."""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.estimate.calibration import Calibration, calibrate
    from sottovoce.estimate.devices import Device
    from sottovoce.estimate.model_size import ModelSize, describe
    from sottovoce.estimate.run_cost import estimate, estimate_central
    from sottovoce.estimate.user_audio import UserAudio

__all__ = [
    "Calibration",
    "Device",
    "ModelSize",
    "UserAudio",
    "calibrate",
    "describe",
    "estimate",
    "estimate_central",
]

__getattr__ = lazy_names(
    __name__,
    {
        "calibration": "Calibration calibrate",
        "devices": "Device",
        "model_size": "ModelSize describe",
        "run_cost": "estimate estimate_central",
        "user_audio": "UserAudio",
    },
)
