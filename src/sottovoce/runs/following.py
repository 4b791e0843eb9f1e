"""Following a run from outside, by nothing but its own files: how far it is, and whether anybody still trains it.

What is private stays as private as on the terminal of the training: a run without diagnostics shows no loss and no
times, because both depend on its users.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sottovoce.errors import DataError
from sottovoce.files import is_being_written, lock_of
from sottovoce.privacy.ledger import LEDGER_FILE
from sottovoce.privacy.run_files import RUN_FILES
from sottovoce.runs.documents import Evaluation, Evaluations, Result, RunConfig, TrainingKind
from sottovoce.runs.folder import Run
from sottovoce.runs.metrics_log import Line

RunState = Literal["not started", "starting", "running", "finished", "stopped", "killed"]
ENDED: tuple[RunState, ...] = ("finished", "stopped", "killed")
_RECENT = 20  # steps that the pace is of


@dataclass(frozen=True)
class RunStatus:
    """How far a run is; what is unknown, or may not be shown, is None."""

    state: RunState
    kind: TrainingKind | None = None
    step: int = 0  # how many are done
    steps: int = 0  # how many there will be
    loss: float | None = None
    dev_wer: float | None = None  # at the last evaluation
    best_dev_wer: float | None = None
    epsilon: float | None = None
    seconds_per_step: float | None = None  # over the last steps
    elapsed_seconds: float | None = None
    seconds_left: float | None = None

    @property
    def ended(self) -> bool:
        """Whether nobody trains the run any more."""
        return self.state in ENDED


def has_ended(step: int, steps: int, result: Result | None, evaluations: Iterable[Evaluation]) -> bool:
    """Return whether a run has ended: after its last step, at its time limit, or at the end of its privacy budget."""
    return result is not None or any(one.steps == step for one in evaluations) or step >= steps


@dataclass
class _Figures:
    """The figures of the metrics so far."""

    step: int = 0
    federated: bool = False
    loss: float | None = None
    dev_wer: float | None = None
    best_dev_wer: float | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        self.times: deque[tuple[int, float]] = deque(maxlen=_RECENT + 1)  # steps and seconds since the start

    def add(self, line: Line, *, private: bool) -> None:
        """Read a line of the metrics; `private` figures only where they may be shown."""
        self.federated = self.federated or "central_lr" in line or "guarantee" in line
        if "dev_wer" in line:
            self.dev_wer = float(line["dev_wer"])
            self.best_dev_wer = min(self.dev_wer, math.inf if self.best_dev_wer is None else self.best_dev_wer)
        if "lr" not in line and "central_lr" not in line:
            return
        self.step = int(line["step"])
        self.epsilon = _number(line, "epsilon")
        source: Any = line.get("not_private") if "central_lr" in line else line
        if private and isinstance(source, Mapping):
            self.loss = _number(source, "loss")
            elapsed = _number(source, "elapsed_seconds")
            if elapsed is not None:
                self.times.append((self.step, elapsed))

    @property
    def pace(self) -> float | None:
        """The seconds of a step, over the last ones."""
        if len(self.times) < 2 or self.times[-1][0] <= self.times[0][0]:
            return None
        (first, began), (last, now) = self.times[0], self.times[-1]
        return max(now - began, 0.0) / (last - first)


def _number(line: Mapping[str, Any], key: str) -> float | None:
    value = line.get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


class FollowedRun:
    """A run that is looked at again and again; its folder need not exist yet.

    Looking changes nothing. Its metrics are read only where they have changed since the last look.
    """

    def __init__(self, path: Path) -> None:
        """Name the folder."""
        self.path = path
        self._seen: tuple[object, ...] = ()
        self._status = RunStatus("not started")

    @property
    def version(self) -> tuple[object, ...]:
        """What changes whenever the run's files do."""
        log = Run(self.path).log
        places = (log.public, log.private, *(self.path / name for name in _FILES))
        return tuple(_mark(place) for place in places)

    def look(self) -> RunStatus:
        """Return how far the run is now; raise DataError where its folder holds something else, or is damaged."""
        writing, killed = is_being_written(self.path), lock_of(self.path).exists()
        if not (self.path / RunConfig.FILE).is_file():
            if not writing and self._is_something_else():
                raise DataError(f"{self.path} is not a run: it holds no {RunConfig.FILE}. Give the folder after --run.")
            return RunStatus("starting" if writing else "not started")
        version = (writing, killed, *self.version)
        if version != self._seen:
            self._status, self._seen = self._read(writing=writing, killed=killed), version
        return self._status

    def _is_something_else(self) -> bool:
        """Return whether the folder holds what no run has; before its configuration, a run may make its own corpus."""
        if not self.path.is_dir():
            return self.path.exists()
        return not all(entry.name.startswith(_NAMES) for entry in self.path.iterdir())

    def _read(self, *, writing: bool, killed: bool) -> RunStatus:
        run, config = Run(self.path), RunConfig.read(self.path)
        figures = _Figures()
        for line in run.log.lines():
            figures.add(line, private=not config.secure)
        federated = figures.federated or "users" in config.data
        planned = config.setting("federated.central_steps" if federated else "central.steps")
        steps = planned if isinstance(planned, int) else 0
        result = run.result
        state: RunState = "running"
        if not writing:
            ended = has_ended(figures.step, steps, result, run.evaluations.values())
            state = "finished" if ended else "killed" if killed else "stopped"
        left = figures.pace * max(steps - figures.step, 0) if figures.pace is not None and state == "running" else None
        elapsed = figures.times[-1][1] if figures.times else None
        minutes = config.setting("central.max_minutes")
        if left is not None and elapsed is not None and not federated and isinstance(minutes, int | float):
            left = min(left, max(60 * minutes - elapsed, 0.0))
        return RunStatus(
            state=state,
            kind="federated" if federated else "central",
            step=figures.step,
            steps=steps,
            loss=figures.loss,
            dev_wer=figures.dev_wer,
            best_dev_wer=figures.best_dev_wer,
            epsilon=figures.epsilon if result is None else result.epsilon.tightest,
            seconds_per_step=figures.pace,
            elapsed_seconds=elapsed,
            seconds_left=left,
        )


_NAMES = (".", *(file.pattern.partition("/")[0] for file in RUN_FILES))  # how the names of a run's files begin
_FILES = (RunConfig.FILE, Result.FILE, Evaluations.FILE, LEDGER_FILE)


def _mark(place: Path) -> tuple[int, int, int] | None:
    try:
        found = place.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
