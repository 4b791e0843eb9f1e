"""What the tests of ledgers share: small mechanisms, ledgers with some releases, checkpoints that name them."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from safetensors.torch import save as tensors_as_bytes

from sottovoce.config import Config
from sottovoce.data.text import TokenSet
from sottovoce.files import sha256_of
from sottovoce.model.model_file import MODEL_FILE
from sottovoce.model.model_options import TransformerOptions
from sottovoce.model.recogniser import Recogniser
from sottovoce.privacy.chain import Mark
from sottovoce.privacy.ledger import LEDGER_FILE, Ledger
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.ledger_lines import Saved
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.noise import Gaussian
from sottovoce.privacy.privacy_options import Participation, Privacy, RandomSource
from sottovoce.runs.documents import Checkpoint, RunConfig
from sottovoce.runs.folder import STATE_FILE

MODEL = TransformerOptions(blocks=1, width=8, heads=1, mlp_width=8)


@cache
def recogniser() -> Recogniser:
    """Return the model of all these runs."""
    return Recogniser.make(MODEL, TokenSet(("en",)), "cpu").initialise(0)


def mechanism(source="seeded", sigma_dp=0.1, clip_norm=0.01, budget=None, accept=(), noise=None, **participation):
    privacy = Privacy(
        clip_norm=clip_norm, clipping="dim", sigma_dp=sigma_dp, budget=budget, accept=accept, noise=noise or Gaussian()
    )
    options = Participation(**{"population": 1000, "cohort_size": 20} | participation)
    return Mechanism(privacy, options, recogniser().flat.partition("tensor"), source)


def config_of(mech: Mechanism) -> Config:
    """Return the configuration that gives this mechanism."""
    source = RandomSource(source=mech.source)
    return Config(model=MODEL, privacy=mech.privacy, participation=mech.participation, randomness=source)


def opened(folder: Path, mech=None, saved=None, **options) -> Ledger:
    """Open the ledger of a run, and write the configuration that it names."""
    mech = mech or mechanism()
    folder.mkdir(exist_ok=True)
    RunConfig(config=config_of(mech).model_dump(mode="json")).write(folder)
    return Ledger(folder / LEDGER_FILE, header_of(mech), saved, budget=mech.privacy.budget, **options)


def header_of(mech: Mechanism, unit="speaker", seed_model="none", config_hash=None, **more) -> LedgerHeader:
    config_hash = config_hash or config_of(mech).public_hash
    return LedgerHeader.of(mech, unit=unit, seed_model=seed_model, config_hash=config_hash, **more)


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


def checkpoint(folder: Path, step: int, ledger: Ledger | None = None) -> Mark:
    """Save a checkpoint with a real model, which the ledger names first; return the ledger's end."""
    place = folder / "checkpoints" / f"{step:08d}"
    place.mkdir(parents=True, exist_ok=True)
    recogniser().save(place / MODEL_FILE)
    (place / STATE_FILE).write_bytes(b"the optimizer's state")
    ledger = ledger or opened(folder)
    ledger.note_saved(Saved(saved=step, model=sha256_of(place / MODEL_FILE), state=sha256_of(place / STATE_FILE)))
    counters = {"step": step, "optimizer_steps": step, "best_wer": None, "last_wer": None, "evaluated": -1}
    Checkpoint(**counters, ledger=ledger.mark).write(place)
    return ledger.mark


def other_model(place: Path) -> None:
    """Replace a model by another one of the same shape."""
    other = Recogniser.make(MODEL, TokenSet(("en",)), "cpu").initialise(1)
    other.save(place / MODEL_FILE)
    assert tensors_as_bytes(other.flat.tensors()) != tensors_as_bytes(recogniser().flat.tensors())
