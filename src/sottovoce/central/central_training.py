"""Central training: seed models and baselines. Killed at any moment and started again, it ends with the same bits."""

import math
import time
from pathlib import Path
from typing import Any

import torch

from sottovoce.central.batches import steps_from
from sottovoce.central.step import Rows, step_gradient
from sottovoce.config import Resolved
from sottovoce.data.population import Population
from sottovoce.distributed import Group
from sottovoce.errors import ConfigError, DataError
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.files import sha256_of
from sottovoce.model.recogniser import model_path
from sottovoce.randomness import Streams
from sottovoce.runs.evaluations import record
from sottovoce.runs.folder import Run
from sottovoce.runs.training import (
    Display,
    MakeDisplay,
    Status,
    Stop,
    Training,
    hashes,
    open_held_out,
    open_run,
    start_model,
)

# What may be changed when a run goes on: none of it changes the steps already taken.
MAY_CHANGE = (
    *("central.steps", "central.max_minutes", "central.evaluate_every", "central.checkpoint_every"),
    *("central.layer_norms_every", "data.test", "data.seed_model", "about", "corpus", "joining"),
    *("users", "batching", "participation", "privacy", "randomness", "federated"),  # of federated training
)


def train_central(
    group: Group, resolved: Resolved, folder: Path, make_display: MakeDisplay, stop: Stop | None = None
) -> None:
    """Train until the steps or the minutes are over; rank 0 writes into `folder`."""
    with open_run(group, folder, make_display) as (run, display):
        _train(group, resolved, run, display, stop or Stop())


def _train(group: Group, resolved: Resolved, run: Run, display: Display, stop: Stop) -> None:
    config = resolved.config
    if config.data.train is None:
        raise ConfigError("data.train is required. Give a store with --train.")
    train = config.data.train.open()
    recogniser = start_model(config, train, fresh=not run.begun)
    dev = open_held_out("dev", config.data.dev, train, recogniser)
    test = open_held_out("test", config.data.test, train, recogniser)
    state = config.central.optimizer.start(recogniser.flat.theta)
    training = Training(resolved, group, run, recogniser, state, dev, display, stop)
    found = hashes(train=train, dev=dev)
    if config.data.seed_model is not None and not run.begun:
        found["seed_model"] = sha256_of(model_path(config.data.seed_model))
    done = training.begin(MAY_CHANGE, found, config.central.max_minutes)
    done = _loop(training, train, done)
    training.finish(done)
    if not stop.interrupted:
        record(run.path, done, recogniser, {"dev": dev, "test": test}, group)


def _loop(training: Training, train: Population, done: int) -> int:
    """Take the steps that are left; return how many are done."""
    config, store = training.resolved.config, train.store
    options, rows = config.central, train.all_rows()
    steps = steps_from(
        done, rows, store.frames_of(rows), options.micro_batch_seconds, options.micro_batches, config.seed
    )
    for step, micro in steps:
        if step >= options.steps or training.stop.agreed(training.group):
            break
        at = time.monotonic()
        line = _one_step(training, train, step, micro)
        audio = sum(int(store.frames_of(part).sum()) for part in micro) / FRAMES_PER_SECOND
        speed = line["audio_seconds_per_second"] = audio / (time.monotonic() - at)
        done = step + 1
        training.write(done, line)
        training.display(Status(done, options.steps, line["loss"], training.last_wer, f"{speed:.0f} s/s"))
        if done % options.evaluate_every == 0:
            training.evaluate(done)
        elif done % options.checkpoint_every == 0:
            training.save(done)
    return done


def _one_step(training: Training, train: Population, step: int, micro: list[Rows]) -> dict[str, Any]:
    config, recogniser = training.resolved.config, training.recogniser
    streams = Streams(config.seed, (step,))
    loss = step_gradient(recogniser, train.store, micro, streams, config.specaugment, training.group)
    gradient, partition = recogniser.flat.gradient, recogniser.flat.partition()
    line: dict[str, Any] = {"loss": loss, "lr": config.central.schedule.at(step)}
    norms = partition.norms(gradient)
    norm = float(torch.linalg.vector_norm(norms))
    if not math.isfinite(norm):
        raise DataError(
            f"The gradient of step {step} is not finite. Nothing was overwritten; lower the learning rate or set "
            "central.gradient_clip."
        )
    line["gradient_norm"] = norm
    every = config.central.layer_norms_every
    if every is not None and step % every == 0:
        line["layer_gradient_norms"] = dict(zip(partition.layers, norms.tolist(), strict=True))
    if config.central.gradient_clip is not None and norm > config.central.gradient_clip:
        gradient.mul_(config.central.gradient_clip / norm)
    config.central.optimizer.step(recogniser.flat.theta, gradient, training.state, line["lr"], partition)
    return line
