"""What central and federated training share: a run that goes on, stops when asked, evaluates, saves and talks.

Promises: SIGTERM finishes the step and saves; a run killed or stopped at any moment goes on from its last checkpoint
with the same counters and ends with the same bits; the last step is always evaluated; a model that is not finite is
never saved; a run goes on only with the data it was started with.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch

from sottovoce.config import Config, Resolved
from sottovoce.data.population import Population
from sottovoce.data.selection import Selection, require_disjoint
from sottovoce.distributed import FINISHING, Group
from sottovoce.errors import DataError
from sottovoce.evaluation.evaluate import Scores, evaluate, score
from sottovoce.files import make_folder, only_writer
from sottovoce.model.recogniser import Recogniser, load_recogniser
from sottovoce.model.roles import Trainable
from sottovoce.optim import State
from sottovoce.privacy.ledger import Ledger, Mark
from sottovoce.runs.folder import Metrics, Run


@dataclass
class Status:
    """What a display shows of a training."""

    step: int
    steps: int
    loss: float | None
    wer: float | None
    speed: str
    epsilon: float | None = None


class Display(Protocol):
    """Shows how far a training is."""

    def __call__(self, status: Status) -> None:
        """Show it."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class NoDisplay:
    """Shows nothing: other processes than rank 0 are silent."""

    def __call__(self, status: Status) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing."""


MakeDisplay = Callable[[], Display]
# Where data lies may change when a run goes on (its own corpus moves with it): a hash says whether it is the same.
_DATA_PLACES = ("data.train.store", "data.train.speakers", "data.dev.store", "data.dev.speakers")


@contextlib.contextmanager
def open_run(group: Group, folder: Path, make_display: MakeDisplay) -> Iterator[tuple[Run, Display]]:
    """Hold the folder of a run as its only writer (rank 0), with a display that is always closed."""
    if not group.leads:
        yield Run(folder), NoDisplay()
        return
    make_folder(folder)
    with only_writer(folder), contextlib.closing(make_display()) as display:
        yield Run(folder), display


VOTES = 2  # because it was asked to, and because time is up


@dataclass
class Stop:
    """Whether to stop after the current step: asked for by a signal, or out of time."""

    asked: bool = False
    deadline: float | None = None
    interrupted: bool = False  # by a signal, as all processes agreed
    by_keyboard: bool = False

    def listen(self) -> None:
        """Take SIGTERM, and Ctrl-C the first time, as a wish to stop, not as an end."""
        signal.signal(signal.SIGTERM, self._ask)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._ask)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if number == signal.SIGINT:
            self.by_keyboard = True
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.stderr.write(FINISHING)

    def votes(self) -> list[float]:
        """Return this process' votes for stopping."""
        return [float(self.asked), float(self.deadline is not None and time.monotonic() > self.deadline)]

    def decide(self, votes: Sequence[float]) -> bool:
        """Return whether to stop, from the sum of all processes' votes: the same answer everywhere."""
        self.interrupted = votes[0] > 0
        return any(votes)

    def agreed(self, group: Group) -> bool:
        """Ask all processes for their votes, and decide."""
        return self.decide(group.sum_(torch.tensor(self.votes())).tolist())


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
    stop: Stop
    best_wer: float | None = None
    last_wer: float | None = None
    evaluated: int = -1  # after how many steps the last evaluation was
    saved: int = -1  # after how many steps the last checkpoint was
    timed: bool = True  # write times into the metrics; how long users take is private
    began: float = 0.0
    metrics: Metrics | None = None
    events: bool = True  # write TensorBoard events, which hold times too
    ledger: Ledger | None = None  # of rank 0, in a federated run
    ledger_mark: Mark | None = None  # of the checkpoint that the run goes on from

    def begin(
        self, may_change: Collection[str], hashes: Mapping[str, str | None], max_minutes: float | None = None
    ) -> int:
        """Start the run or take it up again, on data with the same hashes; return how many steps are done."""
        if self.group.leads:
            config = self.resolved.config.model_dump(mode="json")
            self.run.begin(config, self.resolved.sources, hashes, {*may_change, *_DATA_PLACES})
        self.group.barrier()
        counters = self.run.load(self.recogniser, self.state)
        done = 0
        self.ledger_mark = None if counters is None or "ledger" not in counters else Mark(**counters["ledger"])
        if counters is not None:
            done = self.saved = counters["step"]
            self.evaluated = counters["evaluated"]
            self.best_wer, self.last_wer = counters["best_wer"], counters["last_wer"]
        if len(set(self.group.gather(done))) > 1:
            raise DataError(f"Not every process sees the checkpoints in {self.run.path}. Use a folder that all share.")
        elapsed = self.group.from_leader(self.run.cut_metrics(done, self.evaluated) if self.group.leads else 0.0)
        self.began = time.monotonic() - elapsed
        self.stop.deadline = None if max_minutes is None else self.began + 60 * max_minutes
        self.stop.listen()
        self.metrics = Metrics(self.run, done, events=self.events) if self.group.leads else None
        return done

    def write(self, done: int, line: dict[str, Any]) -> None:
        """Add a line to the metrics."""
        if self.metrics is not None:
            elapsed = {"elapsed_seconds": time.monotonic() - self.began} if self.timed else {}
            self.metrics.write({"step": done, **line, **elapsed})

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
        """Save a checkpoint, unless it is there already; a model that is not finite is never saved."""
        if self.saved == done and self.evaluated != done:
            return
        if not bool(torch.isfinite(self.recogniser.flat.theta).all()):
            raise DataError(f"The model is not finite after {done} steps. Nothing was overwritten; lower the rates.")
        self.saved = done
        if self.group.leads:
            counters: dict[str, Any] = {
                "best_wer": self.best_wer,
                "last_wer": self.last_wer,
                "evaluated": self.evaluated,
            }
            if self.ledger is not None:
                counters["ledger"] = asdict(self.ledger.mark)
            self.run.save(done, self.recogniser, self.state, counters, best=best)
        self.group.barrier()

    def finish(self, done: int) -> None:
        """Save and, unless a signal interrupted the training, evaluate what was not; close the metrics.

        An interrupted training is not evaluated: there may be no time, and it will go on as if nothing had happened.
        """
        if self.stop.interrupted:
            if self.saved != done:
                self.save(done)
        elif self.evaluated != done:
            self.evaluate(done)
        if self.metrics is not None:
            self.metrics.close()
        if self.stop.by_keyboard:
            raise KeyboardInterrupt


def hashes(**data: Population | None) -> dict[str, str | None]:
    """Return what tells the data of a run from other data."""
    return {name: None if part is None else part.hash for name, part in data.items()}


def start_model(config: Config, data: Population, *, fresh: bool, trainable: Trainable = "all") -> Recogniser:
    """Return the seed model, or a model with random parameters; a resumed run loads its checkpoint later.

    Parameters outside `trainable` are frozen.
    """
    device = config.hardware.open()
    if config.data.seed_model is None or not fresh:
        recogniser = Recogniser.make(config.model, data.store.token_set, device, trainable).initialise(config.seed)
    else:
        recogniser = load_recogniser(config.data.seed_model, device)
        if not recogniser.options.same_shape(config.model):
            raise DataError(
                f"{config.data.seed_model} has another shape than model.* of the preset. Choose the preset it was "
                "trained with, or set model.* to its shape (see `sotto model`)."
            )
        recogniser = recogniser.with_options(config.model, trainable)
    recogniser.require_store(data.store)
    config.hardware.speed_up_(recogniser.encoder)
    return recogniser


def open_held_out(
    name: str, selection: Selection | None, train: Population, recogniser: Recogniser
) -> Population | None:
    """Return what is evaluated on, dev or test: disjoint from training, in the model's language."""
    if selection is None:
        return None
    held_out = selection.open()
    require_disjoint(train, held_out, ("train", name))
    recogniser.require_store(held_out.store)
    return held_out
