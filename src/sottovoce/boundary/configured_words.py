"""What the configuration and the program alone decide of the exported files, so that no name can come from there.

A speaker may be called like a word of the program: "secure", "gaussian", "delta". In a place that holds this word
whatever the users are, it says nothing about them. Everywhere else it is a name.
"""

from typing import Any

from sottovoce.config import Config, public_part
from sottovoce.data.population import SPEAKER, SYNTHETIC_USER
from sottovoce.model.model_file import model_path
from sottovoce.model.model_options import described
from sottovoce.privacy.claims import open_account
from sottovoce.privacy.ledger import LEDGER_FILE
from sottovoce.privacy.ledger_header import EarlierRun, LedgerHeader
from sottovoce.privacy.ledger_lines import Changes, Release, RunEnd, Saved
from sottovoce.privacy.run_files import METRICS_FILE, MODEL_FILE, PUBLIC_METRICS
from sottovoce.runs.folder import LAST, Run
from sottovoce.runs.verification import mechanism_of

PUBLIC_CONFIG_FILE = "public_config.json"
_ENTRIES = (LedgerHeader, Release, Saved, RunEnd)


def configured_words(run: Run) -> dict[str, Any]:
    """Return by file a document with keys that it may have, and with values that do not depend on the users.

    Values that do depend on them, or are numbers or hashes, are None. The lines of a file share one document.
    """
    from sottovoce.features import logmel  # noqa: PLC0415 - loads torch
    from sottovoce.federated.seed import NONE  # noqa: PLC0415 - loads torch
    from sottovoce.model.recogniser import saved_partition  # noqa: PLC0415 - loads torch

    config = Config.model_validate(run.config.completed().config)
    mechanism = mechanism_of(config, run.path / LAST)
    unit = SYNTHETIC_USER if config.users.iid else SPEAKER
    seed_model = NONE if config.data.seed_model is None else ""
    header = LedgerHeader.of(mechanism, unit=unit, seed_model=seed_model, config_hash="")
    same = header.model_dump(mode="json", include={"adjacency", "noise", "noise_mechanism"})
    earlier = dict.fromkeys(EarlierRun.model_fields) | same
    tensors = dict.fromkeys(saved_partition(model_path(run.path / LAST), "tensor").tensors)  # frozen ones, too
    metadata = {"model": described(config.model), "features": logmel.DESCRIPTION, "languages": None, "tokens": None}
    metadata["training"] = {"bandwidth_hz": None}
    return {
        PUBLIC_CONFIG_FILE: public_part(run.config.config),
        LEDGER_FILE: {
            **{key: None for entry in _ENTRIES for key in entry.model_fields},
            **header.line(),
            "previous": None,
            "now": dict.fromkeys(Changes.model_fields) | {"code": header.code},
            "earlier": [earlier] * len(open_account(run.path).header.earlier),
        },
        METRICS_FILE: {
            **dict.fromkeys(("line", *PUBLIC_METRICS)),
            "trust_ratios": dict.fromkeys(mechanism.partition.layers),
        },
        MODEL_FILE: {"sottovoce": metadata, **tensors},
    }
