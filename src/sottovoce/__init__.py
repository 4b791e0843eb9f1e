"""Sottovoce: federated learning with user-level differential privacy for speech recognition.

    import sottovoce as sv

    corpora       prepare, LibriSpeech, CommonVoice, Table, Lhotse, Synthetic
    speech        Store, Population
    settings      presets, preset
    training      train_central, train_federated, Run
    recognition   load, Model, evaluate
    privacy       epsilon, Epsilons, plan, Plan
    reports       report
    extensions    Encoder, EncoderOptions, Optimizer, State, LocalRule, LocalState, NoiseMechanism, NoiseState
    optimizers    Lamb, Lars, Adam, AdaGrad, Sgd, Schedule

Names are loaded when they are first used, so that `import sottovoce` is fast and does not load torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sottovoce.version import VERSION

if TYPE_CHECKING:
    from sottovoce.api import Model, epsilon, evaluate, load, plan, preset, train_central, train_federated
    from sottovoce.config import preset_names as presets
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

_MODULES = {
    "sottovoce.api": "Model epsilon evaluate load plan preset train_central train_federated",
    "sottovoce.config": "preset_names",
    "sottovoce.data.corpora": "CommonVoice Lhotse LibriSpeech Synthetic Table",
    "sottovoce.data.population": "Population",
    "sottovoce.data.preparation": "prepare",
    "sottovoce.data.store": "Store",
    "sottovoce.errors": "ConfigError DataError PrivacyError SottoError",
    "sottovoce.federated.local_rules": "LocalRule LocalState",
    "sottovoce.model.encoder": "Encoder",
    "sottovoce.model.encoder_options": "EncoderOptions",
    "sottovoce.optim": "AdaGrad Adam Lamb Lars Optimizer Schedule Sgd State",
    "sottovoce.privacy.epsilons": "Epsilons",
    "sottovoce.privacy.noise": "NoiseMechanism NoiseState",
    "sottovoce.privacy.planner": "Plan",
    "sottovoce.reports": "report",
    "sottovoce.runs.folder": "Run",
}
_PUBLIC_NAMES = {"preset_names": "presets"}
_HOMES = {_PUBLIC_NAMES.get(name, name): (module, name) for module, names in _MODULES.items() for name in names.split()}

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
    "presets",
    "report",
    "train_central",
    "train_federated",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sottovoce' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
