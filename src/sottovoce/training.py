"""What central and federated training share: a run that goes on, stops when asked, evaluates, saves and talks.

Promises: SIGTERM finishes the step and saves; a run killed at any moment goes on from its last checkpoint with the same
counters and ends with the same bits; the last step is always evaluated.
"""

import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from sottovoce.config import Resolved
from sottovoce.data.population import Population
from sottovoce.data.selection import Selection, require_disjoint
from sottovoce.distributed import Group
from sottovoce.evaluation.evaluate import Scores, evaluate, score
from sottovoce.model.recogniser import Recogniser
from sottovoce.optim import State
from sottovoce.runs import Metrics, Run


@dataclass
class Status:
    """What a display shows of a training."""

    step: int
    steps: int
    loss: float | None
    wer: float | None
    speed: str
    epsilon: float | None = None


Display = Callable[[Status], None]


@dataclass
class Stop:
    """Whether to stop after the current step: asked for by a signal, or out of time."""

    asked: bool = False
    deadline: float | None = None

    def listen(self) -> None:
        """Take SIGTERM as a wish to stop, not as an end."""
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def agreed(self, group: Group) -> bool:
        """Return whether any process was asked to stop, or time is up; the same answer everywhere."""
        now = self.asked or (self.deadline is not None and time.monotonic() > self.deadline)
        return bool(group.sum_(torch.tensor([int(now)]))[0])


@dataclass
class Training:
    """One process' part in a training: its model, its optimizer, and where it writes (rank 0 only)."""

    resolved: Resolved
    group: Group
    run: Run
    recogniser: Recogniser
    state: State
    dev: Population | None
    display: Display
    best_wer: float | None = None
    last_wer: float | None = None
    evaluated: int = -1  # after how many steps the last evaluation was
    began: float = 0.0
    metrics: Metrics | None = None
    stop: Stop = field(default_factory=Stop)

    def begin(self, may_change: Collection[str], max_minutes: float | None = None) -> int:
        """Start the run or take it up again; return how many steps are done."""
        if self.group.leads:
            self.run.begin(self.resolved.config.model_dump(mode="json"), self.resolved.sources, may_change)
        self.group.barrier()
        counters = self.run.load(self.recogniser, self.state)
        done = 0
        if counters is not None:
            done, self.evaluated = counters["step"], counters["evaluated"]
            self.best_wer, self.last_wer = counters["best_wer"], counters["last_wer"]
        elapsed = self.group.from_leader(self.run.cut_metrics(done) if self.group.leads else 0.0)
        self.began = time.monotonic() - elapsed
        if max_minutes is not None:
            self.stop.deadline = self.began + 60 * max_minutes
        self.stop.listen()
        self.metrics = Metrics(self.run) if self.group.leads else None
        return done

    def write(self, done: int, line: dict[str, Any]) -> None:
        """Add a line to the metrics."""
        if self.metrics is not None:
            self.metrics.write({"step": done, **line, "elapsed_seconds": time.monotonic() - self.began})

    def evaluate(self, done: int) -> None:
        """Evaluate on dev, if there is one, and save a checkpoint."""
        best = False
        self.evaluated = done
        if self.dev is not None:
            result = self.scores(self.dev)
            best = self.best_wer is None or result.wer < self.best_wer
            self.last_wer = result.wer
            self.best_wer = result.wer if best or self.best_wer is None else self.best_wer
            self.write(done, {"dev_loss": result.loss, "dev_wer": result.wer, "dev_cer": result.cer})
        self.save(done, best=best)

    def scores(self, population: Population) -> Scores:
        """Return how well the model recognises a population."""
        return score(evaluate(self.recogniser, population.store, population.all_rows(), self.group))

    def save(self, done: int, *, best: bool = False) -> None:
        """Save a checkpoint."""
        if self.group.leads:
            counters = {"best_wer": self.best_wer, "last_wer": self.last_wer, "evaluated": self.evaluated}
            self.run.save(done, self.recogniser, self.state, counters, best=best)
        self.group.barrier()

    def finish(self, done: int) -> None:
        """Evaluate the last step, if that was not done, and close the metrics."""
        if self.evaluated != done:
            self.evaluate(done)
        if self.metrics is not None:
            self.metrics.close()


def open_dev(selection: Selection | None, train: Population, recogniser: Recogniser) -> Population | None:
    """Return the population that chooses the best checkpoint: disjoint from training, in the model's language."""
    if selection is None:
        return None
    dev = selection.open()
    require_disjoint(train, dev, ("train", "dev"))
    recogniser.require_store(dev.store)
    return dev
