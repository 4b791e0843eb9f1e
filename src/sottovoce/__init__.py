"""Sottovoce: federated learning with user-level differential privacy for speech recognition.

    import sottovoce as sv

    corpora       prepare, LibriSpeech, CommonVoice, Table, Lhotse, Synthetic
    speech        Store, Population
    settings      preset_names, preset
    training      train_central, train_federated, Run
    recognition   load, Model, evaluate
    privacy       epsilon, Epsilons, plan, Plan
    reports       report
    extensions    Encoder, EncoderOptions, Optimizer, State, LocalRule, LocalState, NoiseMechanism, NoiseState
    optimizers    Lamb, Lars, Adam, AdaGrad, Sgd, Schedule

Names are loaded when they are first used, so that `import sottovoce` is fast and does not load torch.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names
from sottovoce.version import VERSION

if TYPE_CHECKING:
    from sottovoce.api import Model, epsilon, evaluate, load, plan, preset, train_central, train_federated
    from sottovoce.config import preset_names
    from sottovoce.data.corpora import CommonVoice, Lhotse, LibriSpeech, Synthetic, Table
    from sottovoce.data.population import Population
    from sottovoce.data.preparation import prepare
    from sottovoce.data.store import Store
    from sottovoce.errors import ConfigError, DataError, PrivacyError, SottoError
    from sottovoce.federated.local_rules import LocalRule, LocalState
    from sottovoce.model.encoder import Encoder
    from sottovoce.model.encoder_options import EncoderOptions
    from sottovoce.optim import AdaGrad, Adam, Lamb, Lars, Optimizer, Schedule, Sgd, State
    from sottovoce.privacy.epsilons import Epsilons
    from sottovoce.privacy.noise import NoiseMechanism, NoiseState
    from sottovoce.privacy.planner import Plan
    from sottovoce.reports import report
    from sottovoce.runs.folder import Run

__version__ = VERSION

__all__ = [
    "AdaGrad",
    "Adam",
    "CommonVoice",
    "ConfigError",
    "DataError",
    "Encoder",
    "EncoderOptions",
    "Epsilons",
    "Lamb",
    "Lars",
    "Lhotse",
    "LibriSpeech",
    "LocalRule",
    "LocalState",
    "Model",
    "NoiseMechanism",
    "NoiseState",
    "Optimizer",
    "Plan",
    "Population",
    "PrivacyError",
    "Run",
    "Schedule",
    "Sgd",
    "SottoError",
    "State",
    "Store",
    "Synthetic",
    "Table",
    "__version__",
    "epsilon",
    "evaluate",
    "load",
    "plan",
    "prepare",
    "preset",
    "preset_names",
    "report",
    "train_central",
    "train_federated",
]

__getattr__ = lazy_names(
    __name__,
    {
        "api": "Model epsilon evaluate load plan preset train_central train_federated",
        "config": "preset_names",
        "data.corpora": "CommonVoice Lhotse LibriSpeech Synthetic Table",
        "data.population": "Population",
        "data.preparation": "prepare",
        "data.store": "Store",
        "errors": "ConfigError DataError PrivacyError SottoError",
        "federated.local_rules": "LocalRule LocalState",
        "model.encoder": "Encoder",
        "model.encoder_options": "EncoderOptions",
        "optim": "AdaGrad Adam Lamb Lars Optimizer Schedule Sgd State",
        "privacy.epsilons": "Epsilons",
        "privacy.noise": "NoiseMechanism NoiseState",
        "privacy.planner": "Plan",
        "reports": "report",
        "runs.folder": "Run",
    },
)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
