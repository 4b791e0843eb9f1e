"""Which model a place means: the file, whether it is the best or the last of its run, and after how many steps."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from sottovoce.errors import DataError
from sottovoce.runs.documents import Checkpoint
from sottovoce.runs.folder import BEST, CHECKPOINTS, LAST


@dataclass(frozen=True)
class ChosenModel:
    """The model that a place means."""

    place: str  # as it was given
    file: str
    checkpoint: str | None  # "best", "last" or "best and last"; None: neither, or no model of a run
    step: int | None  # None where the file does not lie in a checkpoint

    def __str__(self) -> str:
        """Return it for people: runs/digits (best, step 8,000)."""
        steps = None if self.step is None else f"step {self.step:,}"
        known = ", ".join(part for part in (self.checkpoint, steps) if part)
        return f"{self.place} ({known})" if known else self.place


def chosen_model(place: Path) -> ChosenModel:
    """Return the model of a run (its best one, or else its last one), of a checkpoint, or of a file."""
    from sottovoce.model.recogniser import model_path  # noqa: PLC0415 - loads torch

    file = model_path(place)
    folder = file.resolve().parent
    names, step = [], None
    if folder.parent.name == CHECKPOINTS:
        run = folder.parent.parent
        names = [link for link in (BEST, LAST) if (run / link).resolve() == folder]
    with contextlib.suppress(DataError):  # the model is whole, whatever its counters are
        checkpoint = Checkpoint.find(folder)
        step = None if checkpoint is None else checkpoint.step
    return ChosenModel(str(place), str(file), " and ".join(names) or None, step)
