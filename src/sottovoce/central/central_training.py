"""Central training: seed models and baselines. Killed at any moment and started again, it ends with the same bits."""

import itertools
import math
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from sottovoce.central.batches import Rows, steps_from
from sottovoce.central.central_step import PreparedStep, Preparing, prefetch_pays, step_gradient
from sottovoce.config import Resolved
from sottovoce.data.bandwidths import heard_in
from sottovoce.data.population import Population
from sottovoce.data.store import Store
from sottovoce.distributed import Group
from sottovoce.errors import ConfigError, DataError
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.runs.display import MakeDisplay
from sottovoce.runs.documents import Result
from sottovoce.runs.stop import Stop
from sottovoce.runs.training import OpenRun, Training, TrainingContext, data_hashes, open_run

# Settings that may differ when a run resumes: none of them changes the steps already taken.
MAY_CHANGE = (
    *("central.steps", "central.max_minutes", "central.evaluate_every", "central.checkpoint_every"),
    *("central.patience", "central.layer_norms_every", "data.test", "data.seed_model", "about", "corpus", "joining"),
    "features",
    *("users", "batching", "participation", "privacy", "randomness", "federated"),  # of federated training
)

SHORTER = "set fewer central.steps, a limit central.max_minutes, or central.patience to stop once dev stays as it is"


def train_central(
    group: Group, resolved: Resolved, folder: Path, make_display: MakeDisplay, stop: Stop | None = None
) -> None:
    """Train until the steps or the minutes are over; rank 0 writes into `folder`."""
    with open_run(group, "central", resolved, folder, make_display, stop) as opened:
        _train(opened)


def require_dev_for_patience(context: TrainingContext) -> None:
    """Raise ConfigError where dev shall end the run and there is no dev set."""
    if context.resolved.config.central.patience is not None and context.dev is None:
        raise ConfigError("central.patience counts evaluations on dev. Give a dev set with --dev.")


def _train(opened: OpenRun) -> None:
    config = opened.resolved.config
    train = opened.speakers()
    heard = heard_in(train, config.specaugment)
    context = opened.prepare(train, optimizer=config.central.optimizer, steps=config.central.steps).knowing(heard)
    require_dev_for_patience(context)
    training = Training.begin(
        context,
        may_change=MAY_CHANGE,
        data=data_hashes(config, context.run, train=train, dev=context.dev),
        shorter=SHORTER,
        patience=config.central.patience,
        max_minutes=config.central.max_minutes,
        exact=False,
    )
    training.forget_result()
    if training.progress.step < context.steps:
        context.say_differences(heard)
    with closing(training.log):
        _take_steps(training, train)
        training.finish()
    if not context.stop.interrupted:
        _conclude(training)


def _conclude(training: Training) -> None:
    """Evaluate on dev and test, speaker by speaker, and write the result (rank 0)."""
    context, progress = training.context, training.progress
    evaluations = training.record_evaluations()
    if not context.group.leads:
        return
    early = "by central.patience" if training.stalled else "by central.max_minutes"
    Result(
        steps=progress.step,
        dev_wer=progress.last_wer,
        best_dev_wer=progress.best_wer,
        test=evaluations["test"].total if "test" in evaluations else None,
        stopped=early if progress.step < context.steps else None,
    ).write(context.run.path)


def _take_steps(training: Training, train: Population) -> None:
    """Take the remaining steps, until the last one or a request to stop."""
    context, store = training.context, train.store
    options, group = context.resolved.config.central, context.group
    first = training.progress.step
    remaining = itertools.islice(_batches(context, train, first), max(options.steps - first, 0))
    preparing = Preparing(
        store,
        context.resolved.config.specaugment,
        context.resolved.config.seed,
        context.recogniser.encoder,
        group,
        options.micro_batches,
    )
    device = context.recogniser.flat.theta.device
    with closing(preparing.steps(remaining, prefetch=prefetch_pays(device))) as steps:
        since = time.monotonic()  # waiting for a step that is not ready counts
        for step in steps:
            if training.stalled or training.stop.agreed(group):
                return
            figures = _take_step(context, store, step)
            audio = sum(int(store.frames_of(part).sum()) for part in step.micro) / FRAMES_PER_SECOND
            speed = audio / (time.monotonic() - since)
            line = {**figures.line(), "audio_seconds_per_second": speed}
            training.step_done(line, loss=figures.loss, speed=f"{speed:.0f} s of audio per second")
            training.evaluate_or_save(evaluate_every=options.evaluate_every, checkpoint_every=options.checkpoint_every)
            since = time.monotonic()


def _batches(context: TrainingContext, train: Population, first: int) -> Iterator[tuple[int, list[Rows]]]:
    """Yield the micro-batches of every step, from step `first` on."""
    options, rows = context.resolved.config.central, train.all_rows()
    frames = train.store.frames_of(rows)
    seconds, count = options.micro_batch_seconds, options.micro_batches
    return steps_from(first, rows, frames, seconds, count, context.resolved.config.seed)


@dataclass(frozen=True)
class StepFigures:
    """The figures of one central step; norms are of the gradient before it is clipped."""

    loss: float
    lr: float
    gradient_norm: float
    layer_gradient_norms: dict[str, float] | None

    def line(self) -> dict[str, float | dict[str, float]]:
        """Return the figures as they are in the metrics; norms by layer only where they were recorded."""
        line: dict[str, float | dict[str, float]] = {
            "loss": self.loss,
            "lr": self.lr,
            "gradient_norm": self.gradient_norm,
        }
        return (
            line if self.layer_gradient_norms is None else {**line, "layer_gradient_norms": self.layer_gradient_norms}
        )


def _take_step(context: TrainingContext, store: Store, prepared: PreparedStep) -> StepFigures:
    """Compute the gradient, clip it and move the model."""
    config, recogniser = context.resolved.config, context.recogniser
    options, step = config.central, prepared.number
    loss = step_gradient(recogniser, store, prepared, context.group)
    gradient, partition = recogniser.flat.gradient, recogniser.flat.partition()
    norms = partition.norms(gradient)
    norm = float(torch.linalg.vector_norm(norms))
    if not math.isfinite(norm):
        raise DataError(
            f"The gradient of step {step} is not finite. Nothing was overwritten; lower the learning rate or set "
            "central.gradient_clip."
        )
    every = options.layer_norms_every
    recorded = every is not None and step % every == 0
    by_layer = dict(zip(partition.layers, norms.tolist(), strict=True)) if recorded else None
    if options.gradient_clip is not None and norm > options.gradient_clip:
        gradient.mul_(options.gradient_clip / norm)
    lr = options.schedule.at(step)
    options.optimizer.step(recogniser.flat.theta, gradient, context.state, lr, partition)
    return StepFigures(loss, lr, norm, by_layer)
