"""The life of a training, central or federated: begin or resume, take steps, evaluate, save, finish.

    training = Training.begin(context, may_change=..., data=...)
    with closing(training.log):
        while training.progress.step < context.steps and not ...:
            ...                                             # compute one step
            training.step_done(line, loss=..., speed=...)
            training.evaluate_or_save(evaluate_every=..., checkpoint_every=...)
        training.finish()

Promises: SIGTERM finishes the step and saves; a run killed or stopped at any moment resumes from its last checkpoint
with the same counters and ends with the same bits; the last step is always evaluated; a model that is not finite is
never saved; a run resumes only with the data it was started with.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sottovoce.config import Config, Resolved
from sottovoce.data.bandwidths import bandwidths_of, difference
from sottovoce.data.population import Population
from sottovoce.distributed import Group
from sottovoce.errors import ConfigError, DataError
from sottovoce.evaluation.scoring import evaluate
from sottovoce.evaluation.utterances import score
from sottovoce.features.bandwidth import BandRange
from sottovoce.files import folder_if_used, only_writer, sha256_of
from sottovoce.model.adapter_options import NO_ADAPTERS, Adapters
from sottovoce.model.importing import token_changes, with_tokens
from sottovoce.model.model_file import model_path
from sottovoce.model.recogniser import Recogniser, load_recogniser
from sottovoce.model.roles import Trainable
from sottovoce.optim import Optimizer, State
from sottovoce.privacy.chain import Mark
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.ledger_lines import Saved
from sottovoce.runs.display import Display, MakeDisplay, NoDisplay, Status
from sottovoce.runs.documents import Checkpoint, Evaluation, Result, RunConfig, TrainingKind
from sottovoce.runs.evaluations import record_evaluations
from sottovoce.runs.folder import Run
from sottovoce.runs.held_out import require_disjoint
from sottovoce.runs.machine import record_machine, this_machine
from sottovoce.runs.metrics_log import Kept, MetricsWriter
from sottovoce.runs.pace import DAY_SECONDS, Pace, duration
from sottovoce.runs.progress import TrainingLog, TrainingProgress
from sottovoce.runs.stop import Stop

# Places of data may change when a run resumes (its own corpus moves with it): hashes tell whether it is the same data.
_DATA_PLACES = ("data.train.store", "data.train.speakers", "data.dev.store", "data.dev.speakers")


@contextlib.contextmanager
def open_run(
    group: Group, kind: TrainingKind, resolved: Resolved, folder: Path, make_display: MakeDisplay, stop: Stop | None
) -> Iterator["OpenRun"]:
    """Hold the folder of a run as its only writer (rank 0), with a display that is always closed.

    Without a `stop`, a new one is used, and the signal handlers are restored when the run is over.
    """
    with contextlib.ExitStack() as closing:
        display: Display = NoDisplay()
        if group.leads:
            Run(folder).require_own(kind)
            closing.enter_context(folder_if_used(folder))  # a refused training leaves no folder behind
            closing.enter_context(only_writer(folder))
            display = closing.enter_context(contextlib.closing(make_display()))
        if stop is None:
            stop = Stop()
            closing.callback(stop.release)
        yield OpenRun(resolved=resolved, group=group, run=Run(folder), display=display, stop=stop)


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """A run whose folder is open for training, in one process. Only rank 0 writes and shows something."""

    resolved: Resolved
    group: Group
    run: Run
    display: Display
    stop: Stop

    def speakers(self) -> Population:
        """Return the speakers of the training set, with the utterances that a model can learn to write."""
        train = self.resolved.config.data.train
        if train is None:
            raise ConfigError("data.train is required. Give a store with --train.")
        return train.open().trainable()

    def prepare(
        self,
        speakers: Population,
        *,
        optimizer: Optimizer,
        steps: int,
        trainable: Trainable = "all",
        adapters: Adapters = NO_ADAPTERS,
    ) -> "TrainingContext":
        """Return the model, the optimizer's state and the held-out sets for training on these speakers."""
        config, fresh = self.resolved.config, not self.run.begun
        recogniser = start_model(
            config, speakers, fresh=fresh, trainable=trainable, adapters=adapters, say=self.display.say
        )
        dev = open_held_out("dev", config, speakers, recogniser)
        test = open_held_out("test", config, speakers, recogniser)
        if dev is not None and test is not None:
            require_disjoint(dev, test, ("dev", "test"), config.privacy.accept)
        return TrainingContext(
            **{field.name: getattr(self, field.name) for field in fields(OpenRun)},
            recogniser=recogniser,
            state=optimizer.start(recogniser.flat.theta),
            dev=dev,
            test=test,
            steps=steps,
        )


@dataclass(frozen=True, kw_only=True)
class TrainingContext(OpenRun):
    """Everything that one process trains with, fixed for the whole run."""

    recogniser: Recogniser
    state: State  # of the optimizer
    dev: Population | None
    test: Population | None
    steps: int  # how many to take

    def knowing(self, heard: BandRange | None) -> "TrainingContext":
        """Return this context with a model that says which bandwidths it has heard; None: it does not."""
        return replace(self, recogniser=replace(self.recogniser, heard=heard))

    def say_differences(self, heard: BandRange | None) -> None:
        """Say where dev or test have another bandwidth than what the model hears, or has heard."""
        for name, population in (("dev", self.dev), ("test", self.test)):
            if population is not None and heard is not None:
                line = difference(heard, bandwidths_of(population), f"utterances of {name}")
                if line is not None:
                    self.display.say(line)


@dataclass
class Training:
    """One process' part in a run, from its beginning or resumption to its end."""

    context: TrainingContext
    progress: TrainingProgress
    log: TrainingLog
    pace: Pace
    shorter: str  # what to change so that a run takes less time
    patience: int | None = None  # evaluations on dev without a lower WER that end the run
    ledger_mark: Mark | None = None  # of the checkpoint that the run resumes from
    ledger: Ledger | None = None  # of a federated run, on rank 0
    secret_noise: Callable[[], Mapping[str, Tensor]] = dict  # the state of a noise mechanism, for checkpoints
    _told: bool = False  # how long the run will take, where that is long

    @classmethod
    def begin(
        cls,
        context: TrainingContext,
        *,
        may_change: Collection[str],
        data: Mapping[str, str | None],
        shorter: str,
        patience: int | None = None,
        max_minutes: float | None = None,
        timed: bool = True,
        events: bool = True,
        exact: bool = True,
    ) -> "Training":
        """Start the run or resume it, with data of the same hashes; `events` also writes TensorBoard events.

        Without `exact` sums over processes, their number is recorded with the machine.
        """
        group, run, resolved = context.group, context.run, context.resolved
        if group.leads:
            config = resolved.config.model_dump(mode="json")
            begun = RunConfig(config=config, data=dict(data), sources=dict(resolved.sources))
            run.begin(begun.with_places(run.path), {*may_change, *_DATA_PLACES})
            machine = this_machine(context.recogniser.flat.theta.device.type)
            processes = None if exact else group.size
            record_machine(run.path, machine.model_copy(update={"processes": processes}))
        group.barrier()
        checkpoint = run.load(context.recogniser, context.state)
        progress = TrainingProgress() if checkpoint is None else TrainingProgress.at(checkpoint)
        if len(set(group.gather(progress.step))) > 1:
            raise DataError(f"Not every process sees the checkpoints in {run.path}. Use a folder that all share.")
        kept = group.from_leader(run.log.cut(progress.step, progress.evaluated) if group.leads else Kept())
        began = time.monotonic() - kept.elapsed_seconds
        context.stop.deadline = None if max_minutes is None else began + 60 * max_minutes
        context.stop.listen()
        writer = MetricsWriter(run.path, progress.step, kept.last, events=events) if group.leads else None
        mark = None if checkpoint is None else checkpoint.ledger
        if 0 < progress.step < context.steps:
            context.display.say(f"{run.path}: resuming after step {progress.step:,} of {context.steps:,}.")
        log, pace = TrainingLog(writer, began, timed), Pace(time.monotonic())
        return cls(context, progress, log, pace, shorter, patience, mark)

    @property
    def stalled(self) -> bool:
        """Whether the last evaluations on dev, as many as `patience` says, brought no lower WER."""
        return self.patience is not None and self.progress.since_best >= self.patience

    @property
    def stop(self) -> Stop:
        """The requests to stop."""
        return self.context.stop

    def step_done(
        self,
        line: Mapping[str, Any],
        *,
        loss: float | None,
        speed: str,
        epsilon: float | None = None,
        timed: bool = True,
    ) -> None:
        """Count a step, write its line into the metrics and show the progress, with times where `timed`."""
        self.progress = replace(self.progress, step=self.progress.step + 1)
        step, now = self.progress.step, time.monotonic()
        self.log.write(step, line)
        self.pace.step_done(now)
        left = self.pace.seconds_for(self.context.steps - step)
        if left is not None and self.stop.deadline is not None:
            left = min(left, max(self.stop.deadline - now, 0.0))
        if timed and not self._told and self.pace.known:
            self._tell_if_long(left)
        wer, wer_step = self.progress.last_wer, self.progress.evaluated
        self.context.display(Status(step, self.context.steps, loss, wer, speed, epsilon, left, wer_step, timed))

    def _tell_if_long(self, left: float | None) -> None:
        """Say, once, that the run will take more than a day, and how it would take less."""
        self._told = True
        if left is not None and left > DAY_SECONDS:
            steps = self.context.steps - self.progress.step
            self.context.display.say(
                f"At this pace the run takes {duration(left)} more: {steps:,} steps of {left / steps:.3g} s. "
                f"To make it shorter: {self.shorter}."
            )

    def evaluate_or_save(self, *, evaluate_every: int, checkpoint_every: int) -> bool:
        """Evaluate or save where the number of steps calls for it; return whether the model was evaluated."""
        if self.progress.step % evaluate_every == 0:
            self.evaluate()
            return True
        if self.progress.step % checkpoint_every == 0:
            self.save()
        return False

    def evaluate(self) -> None:
        """Evaluate on dev, where there is a dev set, and save a checkpoint."""
        dev, before = self.context.dev, self.progress
        if dev is None:
            self.progress = before.after_evaluation(None)
            self.save()
            return
        scores = score(evaluate(self.context.recogniser, dev.store, dev.all_rows(), self.context.group))
        self.progress = before.after_evaluation(scores.wer)
        line = {"dev_loss": scores.loss, "dev_wer": scores.wer, "dev_cer": scores.cer}
        self.log.write(self.progress.step, line)
        self.save(best=before.best_wer is None or scores.wer < before.best_wer)

    def save(self, *, best: bool = False) -> None:
        """Save a checkpoint, unless this step has one with the same evaluation.

        Raise DataError, and save nothing, where the model is not finite.
        """
        context, step = self.context, self.progress.step
        if self.progress.saved == step and self.progress.evaluated != step:
            return
        if not bool(torch.isfinite(context.recogniser.flat.theta).all()):
            raise DataError(f"The model is not finite after {step} steps. Nothing was overwritten; lower the rates.")
        self.progress = replace(self.progress, saved=step)
        if context.group.leads:
            context.run.save(
                self._checkpoint, step, context.recogniser, context.state, best=best, noise=self.secret_noise()
            )
        context.group.barrier()

    def _checkpoint(self, model: str, state: str) -> Checkpoint:
        """Return the counters of a checkpoint whose files have these hashes; the ledger names them first."""
        if self.ledger is not None:
            self.ledger.note_saved(Saved(saved=self.progress.step, model=model, state=state))
        mark = None if self.ledger is None else self.ledger.mark
        return self.progress.checkpoint(self.context.state.steps, mark)

    def finish(self) -> None:
        """Save the last model and evaluate it, unless that was done.

        A training that a signal interrupted is not evaluated: there may be no time, and resuming must take the same
        course as if it had never stopped.
        """
        if self.stop.interrupted:
            if self.progress.saved != self.progress.step:
                self.save()
        elif self.progress.evaluated != self.progress.step:
            self.evaluate()
        if self.stop.by_keyboard:
            raise KeyboardInterrupt

    def forget_result(self) -> None:
        """Remove a result that further steps will outdate (rank 0)."""
        if self.context.group.leads and self.progress.step < self.context.steps and not self.stalled:
            (self.context.run.path / Result.FILE).unlink(missing_ok=True)

    def record_evaluations(self) -> Mapping[str, Evaluation]:
        """Evaluate the last model on dev and test, speaker by speaker; keep the figures and return them."""
        context = self.context
        populations = {"dev": context.dev, "test": context.test}
        return record_evaluations(context.run.path, self.progress.step, context.recogniser, populations, context.group)


def data_hashes(config: Config, run: Run, **populations: Population | None) -> dict[str, str | None]:
    """Return the hashes that identify the run's data, and its seed model where it starts from one."""
    hashes = {name: None if population is None else population.hash for name, population in populations.items()}
    if config.data.seed_model is not None and not run.begun:
        hashes["seed_model"] = sha256_of(model_path(config.data.seed_model))
    return hashes


def start_model(
    config: Config,
    data: Population,
    *,
    fresh: bool,
    trainable: Trainable = "all",
    adapters: Adapters = NO_ADAPTERS,
    say: Callable[[str], None] = lambda message: None,  # noqa: ARG005 - says nothing
) -> Recogniser:
    """Return the seed model, or a model with random parameters; a resumed run loads its checkpoint later.

    Parameters outside `trainable` are frozen, except those of adapters. Where the data has other tokens than the seed
    model, output rows of the tokens that both have are kept, new ones are those of a new model, and `say` gets one line
    about it.
    """
    device = config.hardware.open()
    own: Trainable = "all" if adapters.rank else trainable  # of the model that gets the adapters
    if config.data.seed_model is None or not fresh:
        recogniser = Recogniser.make(config.model, data.store.token_set, device, own).initialise(config.seed)
    else:
        recogniser = load_recogniser(config.data.seed_model, device)
        if not recogniser.options.same_shape(config.model):
            raise DataError(
                f"{config.data.seed_model} has another shape than model.* of the preset. Choose the preset it was "
                "trained with, or set model.* to its shape (see `sotto model`)."
            )
        recogniser = _with_tokens_of(recogniser, data, config.seed, say).with_options(config.model, own)
    if adapters.rank:
        recogniser = recogniser.with_adapters(adapters, trainable, config.seed)
    recogniser.require_store(data.store)
    config.hardware.speed_up_(recogniser.encoder)
    return recogniser


def _with_tokens_of(seed: Recogniser, data: Population, number: int, say: Callable[[str], None]) -> Recogniser:
    """Return the seed model for the tokens of the data."""
    wanted = data.store.token_set
    new, dropped = token_changes(seed.token_set.tokens, wanted.tokens)
    if new or dropped:
        less = f"; {len(dropped)} it had are left out: {' '.join(dropped)}" if dropped else ""
        say(
            f"The seed model writes {'+'.join(seed.token_set.languages)}, the store {'+'.join(wanted.languages)}: "
            f"{len(new)} tokens are new, with random output rows ({' '.join(new) or 'none'}){less}."
        )
    return with_tokens(seed, wanted, number)


def open_held_out(
    name: Literal["dev", "test"], config: Config, train: Population, recogniser: Recogniser
) -> Population | None:
    """Return the population of dev or test: disjoint from training, in the model's language."""
    selection = config.data.dev if name == "dev" else config.data.test
    if selection is None:
        return None
    held_out = selection.open()
    require_disjoint(train, held_out, ("train", name), config.privacy.accept)
    recogniser.require_store(held_out.store)
    return held_out
