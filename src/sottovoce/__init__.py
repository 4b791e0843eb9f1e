"""Sottovoce: federated learning with user-level differential privacy for speech recognition.

    import sottovoce as sv

    corpora       prepare, LibriSpeech, CommonVoice, Table, Lhotse, LhotseCuts, Kaldi, HuggingFace, NeMo, Synthetic
    speech        Store, Population, Selection, Joining
    settings      preset_names, preset
    training      train_central, train_federated, Run
    recognition   load, Model, evaluate
    privacy       epsilon, Epsilons, plan, Plan, publish, neighbours, audit, Audit
    reports       report
    optimizers    Lamb, Lars, Adam, AdaGrad, Sgd, Schedule
    options       TransformerOptions, ConformerOptions, LocalSgd, FedProx, Gaussian, Correlated

    To extend:
    model         Encoder, EncoderOptions, Partition
    optimizer     Optimizer, State
    local rule    LocalRule, LocalState
    noise         NoiseMechanism, IndependentNoise, NoiseState, Event
    corpus        CorpusSpec, Corpus, Entry, Rejection, Reason
    backend       Aggregator, AggregatorContext, Collected

Names are loaded when they are first used, so that `import sottovoce` is fast and does not load torch.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names
from sottovoce.version import VERSION

if TYPE_CHECKING:
    from sottovoce.api import epsilon, evaluate, neighbours, plan, preset, publish, train_central, train_federated
    from sottovoce.auditing import Audit, audit
    from sottovoce.config import preset_names
    from sottovoce.data.corpora import (
        CommonVoice,
        CorpusSpec,
        HuggingFace,
        Kaldi,
        Lhotse,
        LhotseCuts,
        LibriSpeech,
        NeMo,
        Synthetic,
        Table,
    )
    from sottovoce.data.joining import Joining
    from sottovoce.data.manifest import Corpus, Entry, Reason, Rejection
    from sottovoce.data.population import Population
    from sottovoce.data.preparation import prepare
    from sottovoce.data.selection import Selection
    from sottovoce.data.store import Store
    from sottovoce.errors import ConfigError, DataError, PrivacyError, SottoError
    from sottovoce.evaluation.model import Model, load
    from sottovoce.federated.aggregator import Aggregator, AggregatorContext, Collected
    from sottovoce.federated.local_rules import FedProx, LocalRule, LocalSgd, LocalState
    from sottovoce.model.encoder import Encoder
    from sottovoce.model.encoder_options import EncoderOptions
    from sottovoce.model.model_options import ConformerOptions, TransformerOptions
    from sottovoce.model.partition import Partition
    from sottovoce.optim import AdaGrad, Adam, Lamb, Lars, Optimizer, Schedule, Sgd, State
    from sottovoce.privacy.accounting import Event
    from sottovoce.privacy.epsilons import Epsilons
    from sottovoce.privacy.noise import Correlated, Gaussian, IndependentNoise, NoiseMechanism, NoiseState
    from sottovoce.privacy.planner import Plan
    from sottovoce.reports import report
    from sottovoce.runs.folder import Run

__version__ = VERSION

__all__ = [
    "AdaGrad",
    "Adam",
    "Aggregator",
    "AggregatorContext",
    "Audit",
    "Collected",
    "CommonVoice",
    "ConfigError",
    "ConformerOptions",
    "Corpus",
    "CorpusSpec",
    "Correlated",
    "DataError",
    "Encoder",
    "EncoderOptions",
    "Entry",
    "Epsilons",
    "Event",
    "FedProx",
    "Gaussian",
    "HuggingFace",
    "IndependentNoise",
    "Joining",
    "Kaldi",
    "Lamb",
    "Lars",
    "Lhotse",
    "LhotseCuts",
    "LibriSpeech",
    "LocalRule",
    "LocalSgd",
    "LocalState",
    "Model",
    "NeMo",
    "NoiseMechanism",
    "NoiseState",
    "Optimizer",
    "Partition",
    "Plan",
    "Population",
    "PrivacyError",
    "Reason",
    "Rejection",
    "Run",
    "Schedule",
    "Selection",
    "Sgd",
    "SottoError",
    "State",
    "Store",
    "Synthetic",
    "Table",
    "TransformerOptions",
    "__version__",
    "audit",
    "epsilon",
    "evaluate",
    "load",
    "neighbours",
    "plan",
    "prepare",
    "preset",
    "preset_names",
    "publish",
    "report",
    "train_central",
    "train_federated",
]

__getattr__ = lazy_names(
    __name__,
    {
        "api": "epsilon evaluate neighbours plan preset publish train_central train_federated",
        "auditing": "Audit audit",
        "config": "preset_names",
        "data.corpora": "CommonVoice CorpusSpec HuggingFace Kaldi Lhotse LhotseCuts LibriSpeech NeMo Synthetic Table",
        "data.joining": "Joining",
        "data.manifest": "Corpus Entry Reason Rejection",
        "data.population": "Population",
        "data.preparation": "prepare",
        "data.selection": "Selection",
        "data.store": "Store",
        "errors": "ConfigError DataError PrivacyError SottoError",
        "evaluation.model": "Model load",
        "federated.aggregator": "Aggregator AggregatorContext Collected",
        "federated.local_rules": "FedProx LocalRule LocalSgd LocalState",
        "model.encoder": "Encoder",
        "model.encoder_options": "EncoderOptions",
        "model.model_options": "ConformerOptions TransformerOptions",
        "model.partition": "Partition",
        "optim": "AdaGrad Adam Lamb Lars Optimizer Schedule Sgd State",
        "privacy.accounting": "Event",
        "privacy.epsilons": "Epsilons",
        "privacy.noise": "Correlated Gaussian IndependentNoise NoiseMechanism NoiseState",
        "privacy.planner": "Plan",
        "reports": "report",
        "runs.folder": "Run",
    },
)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
