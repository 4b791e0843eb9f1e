"""What the tests of ledgers share: small mechanisms, ledgers with some releases, checkpoints that name them."""

import hashlib
import json
from pathlib import Path
from typing import Any

from sottovoce.model.partition import make_partition
from sottovoce.privacy.ledger import LEDGER_FILE, Ledger, Mark
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy
from sottovoce.runs.documents import Checkpoint

PARTITION = make_partition(["blocks.0.w1.weight", "output.bias"], [400, 20], "tensor")


def mechanism(source="seeded", sigma_dp=0.1, clip_norm=0.01, budget=None, **participation):
    privacy = Privacy(clip_norm=clip_norm, clipping="dim", sigma_dp=sigma_dp, budget=budget)
    options = Participation(**{"population": 1000, "cohort_size": 20} | participation)
    return Mechanism(privacy, options, PARTITION, source)


def opened(folder: Path, mech=None, saved=None) -> Ledger:
    mech = mech or mechanism()
    folder.mkdir(exist_ok=True)
    return Ledger(folder / LEDGER_FILE, mech, header_of(mech), saved)


def header_of(mech: Mechanism, unit="speaker", seed_model="none", config_hash="c" * 64) -> LedgerHeader:
    return LedgerHeader.of(mech, unit=unit, seed_model=seed_model, config_hash=config_hash)


def charged(folder: Path, steps: int = 4, mech=None) -> Ledger:
    ledger = opened(folder, mech)
    for step in range(steps):
        assert ledger.charge(step, 0, f"{step:064x}")
    return ledger


def append_line(folder: Path, line: dict[str, Any]) -> None:
    """Add any line to a ledger, so that the chain of hashes holds."""
    path = folder / LEDGER_FILE
    last = path.read_bytes().splitlines()[-1]
    document = {"previous": hashlib.sha256(last).hexdigest(), **line}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(document, ensure_ascii=False) + "\n")


def checkpoint(folder: Path, step: int, mark: Mark) -> None:
    place = folder / "checkpoints" / f"{step:08d}"
    place.mkdir(parents=True, exist_ok=True)
    Checkpoint(step=step, optimizer_steps=step, best_wer=None, last_wer=None, evaluated=-1, ledger=mark).write(place)
