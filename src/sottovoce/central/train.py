"""Central training: seed models and baselines. Killed at any moment and started again, it ends with the same bits."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from sottovoce.central.batches import steps_from
from sottovoce.central.step import Randomness, step_gradient
from sottovoce.config import Config, Resolved
from sottovoce.data.population import Population
from sottovoce.data.selection import require_disjoint
from sottovoce.distributed import Group
from sottovoce.errors import ConfigError
from sottovoce.evaluation.evaluate import evaluate, score
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.files import make_folder, only_writer
from sottovoce.model.recogniser import Recogniser
from sottovoce.optim import State
from sottovoce.runs import Metrics, Run

# What may be changed when a run goes on: none of it changes the steps already taken.
MAY_CHANGE = ("central.steps", "central.max_minutes", "central.evaluate_every", "central.checkpoint_every")


@dataclass
class Status:
    """What a display shows of a training."""

    step: int
    steps: int
    loss: float
    wer: float | None
    audio_seconds_per_second: float


Display = Callable[[Status], None]


@dataclass
class _Stop:
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
class _Training:
    """Everything a training holds."""

    config: Config
    group: Group
    run: Run
    recogniser: Recogniser
    state: State
    train: Population
    dev: Population | None
    display: Display
    best_wer: float | None = None
    last_wer: float | None = None
    evaluated: int = -1  # after how many steps the last evaluation was
    metrics: Metrics | None = None
    stop: _Stop = field(default_factory=_Stop)


def train_central(group: Group, resolved: Resolved, folder: Path, make_display: Callable[[], Display]) -> None:
    """Train until the steps or the minutes are over; rank 0 writes into `folder`."""
    if group.leads:
        make_folder(folder)
        with only_writer(folder):
            _train(group, resolved, Run(folder), make_display())
    else:
        _train(group, resolved, Run(folder), lambda _status: None)


def _train(group: Group, resolved: Resolved, run: Run, display: Display) -> None:
    config = resolved.config
    training = _set_up(group, config, run, display)
    if group.leads:
        run.begin(config.model_dump(mode="json"), resolved.sources, MAY_CHANGE)
    group.barrier()
    counters = run.load(training.recogniser, training.state)
    start = 0
    elapsed = 0.0
    if counters is not None:
        start, training.best_wer, training.last_wer = counters["step"], counters["best_wer"], counters["last_wer"]
        training.evaluated = counters["evaluated"]
        elapsed = run.cut_metrics(start) if group.leads else 0.0
    elif group.leads:
        run.cut_metrics(0)
    if config.central.max_minutes is not None:
        training.stop.deadline = time.monotonic() + 60 * config.central.max_minutes - group.from_leader(elapsed)
    training.stop.listen()
    training.metrics = Metrics(run) if group.leads else None
    _loop(training, start, time.monotonic() - elapsed)
    if training.metrics is not None:
        training.metrics.close()


def _set_up(group: Group, config: Config, run: Run, display: Display) -> _Training:
    if config.data.train is None:
        raise ConfigError("data.train is required. Give a store with --train.")
    train = config.data.train.open()
    dev = config.data.dev.open() if config.data.dev is not None else None
    if dev is not None:
        require_disjoint(train, dev, ("train", "dev"))
    recogniser = Recogniser.make(config.model, train.store.token_set, config.hardware.open()).initialise(config.seed)
    config.hardware.speed_up_(recogniser.encoder)
    if dev is not None:
        recogniser.require_store(dev.store)
    state = config.central.optimizer.start(recogniser.flat.theta)
    return _Training(config, group, run, recogniser, state, train, dev, display)


def _loop(training: _Training, start: int, began: float) -> None:
    options, store = training.config.central, training.train.store
    rows = training.train.all_rows()
    steps = steps_from(
        start, rows, store.frames_of(rows), options.micro_batch_seconds, options.micro_batches, training.config.seed
    )
    done = start
    for step, micro in steps:
        if step >= options.steps or training.stop.agreed(training.group):
            break
        at = time.monotonic()
        line = _one_step(training, step, micro)
        audio = sum(int(store.frames_of(part).sum()) for part in micro) / FRAMES_PER_SECOND
        line["audio_seconds_per_second"] = audio / (time.monotonic() - at)
        line["elapsed_seconds"] = time.monotonic() - began
        done = step + 1
        _write(training, {"step": done, **line})
        training.display(Status(done, options.steps, line["loss"], training.last_wer, line["audio_seconds_per_second"]))
        if done % options.evaluate_every == 0:
            _evaluate(training, done, began)
        elif done % options.checkpoint_every == 0:
            _save(training, done, best=False)
    if training.evaluated != done:
        _evaluate(training, done, began)


def _one_step(training: _Training, step: int, micro: list[Any]) -> dict[str, Any]:
    config, recogniser = training.config, training.recogniser
    loss = step_gradient(
        recogniser, training.train.store, micro, Randomness(config.seed, step), config.specaugment, training.group
    )
    gradient, partition = recogniser.flat.gradient, recogniser.flat.partition()
    line: dict[str, Any] = {"loss": loss, "lr": config.central.schedule.at(step)}
    norm = float(torch.linalg.vector_norm(gradient.double()))
    line["gradient_norm"] = norm
    every = config.central.layer_norms_every
    if every is not None and step % every == 0:
        line["layer_gradient_norms"] = dict(zip(partition.layers, partition.norms(gradient).tolist(), strict=True))
    if config.central.gradient_clip is not None and norm > config.central.gradient_clip:
        gradient.mul_(config.central.gradient_clip / norm)
    config.central.optimizer.step(recogniser.flat.theta, gradient, training.state, line["lr"], partition)
    return line


def _evaluate(training: _Training, done: int, began: float) -> None:
    """Evaluate on dev, if there is one, and save a checkpoint."""
    best = False
    training.evaluated = done
    if training.dev is not None:
        result = score(evaluate(training.recogniser, training.dev.store, training.dev.all_rows(), training.group))
        best = training.best_wer is None or result.wer < training.best_wer
        training.last_wer = result.wer
        training.best_wer = result.wer if best or training.best_wer is None else training.best_wer
        line = {"dev_loss": result.loss, "dev_wer": result.wer, "dev_cer": result.cer}
        _write(training, {"step": done, **line, "elapsed_seconds": time.monotonic() - began})
    _save(training, done, best=best)


def _save(training: _Training, done: int, *, best: bool) -> None:
    if training.group.leads:
        counters = {"best_wer": training.best_wer, "last_wer": training.last_wer, "evaluated": training.evaluated}
        training.run.save(done, training.recogniser, training.state, counters, best=best)
    training.group.barrier()


def _write(training: _Training, line: dict[str, Any]) -> None:
    if training.metrics is not None:
        training.metrics.write(line)
