"""How long a step takes on this machine: measured on the run's own model and data, with as many processes as it uses.

Only a few batches are computed, for some seconds. What they take is scaled to a whole step by the frames of audio in
it, as users and micro-batches are shared out among processes. Nothing is released and nothing is kept.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sottovoce.central.batches import Rows, epoch_of_steps
from sottovoce.central.dealing import deal
from sottovoce.data.population import Population
from sottovoce.data.store import Store
from sottovoce.evaluation.scoring import evaluate
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.federated.aggregator import Collected, Users
from sottovoce.federated.diagnostics import Figures
from sottovoce.federated.engine import Engine
from sottovoce.federated.preparing import Prepared
from sottovoce.federated.process_aggregator import STEP_FRAMES, ProcessAggregator, local_cost, share_out
from sottovoce.model.gradient import add_gradient, prepare_micro
from sottovoce.randomness import Streams, stream
from sottovoce.runs.training import TrainingContext

MEASURED_SECONDS = 5.0
_MOST_USERS = 2000  # whose local work is planned; more are sampled
_COHORTS = 10  # that are drawn to see how unequal the shares of processes are
_STEPS = 20  # of central training, likewise
_EVALUATED_FRAMES = 3000


@dataclass(frozen=True, kw_only=True)
class LocalWork:
    """The local work of the users of a store in one central step: means over users, and the most."""

    steps: float
    most_steps: int
    audio_seconds: float  # computed, over all passes
    own_seconds: float  # of audio that a user has


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One step: how much work it is, and how long it takes with all processes."""

    seconds: float
    audio_seconds: float  # computed in a step, on average
    measured_seconds: float  # how long the measurement computed, on each process
    measured: str  # on what
    log_bytes: int  # of a line of the metrics
    users: float | None = None  # expected in a step; None in central training
    local: LocalWork | None = None
    utterances: float | None = None  # in a step of central training
    steps_per_epoch: int | None = None


@dataclass
class _NoUsers(ProcessAggregator):
    """A cohort of nobody: what is left of a step is noise, release and server optimizer."""

    def collect(self, t: int, theta: torch.Tensor, cohort: Users, figures: Figures) -> Collected:
        """Train nobody."""
        return super().collect(t, theta, cohort[:0], figures)


def federated_step(prepared: Prepared) -> StepTime:
    """Measure local steps of some users of the store, and the server's part of a step."""
    context, users, mechanism = prepared.context, prepared.users, prepared.mechanism
    group, client = context.group, prepared.client
    rng = stream(context.resolved.config.seed, "dry-run")
    chosen = np.sort(rng.permutation(len(users))[:_MOST_USERS])
    padded = context.recogniser.encoder.computes_padding
    costs = np.array([local_cost(users, user, client, 0, padded=padded) for user in chosen.tolist()], dtype=np.float64)
    local = _local_work(prepared, chosen)
    measured = _measured_users(prepared, rng.permutation(chosen)[group.rank :: group.size].tolist())
    spent, cost, batches = (sum(part) for part in zip(*group.gather(measured), strict=True))
    pace = spent / max(cost, 1)
    cohorts = [
        mechanism.draw_cohort(len(users), stream(index, "dry-run-cohort"), t=index, groups=prepared.groups)
        for index in range(_COHORTS)
    ]
    expected = float(np.mean([len(cohort) for cohort in cohorts]))
    if mechanism.participation.sampling in ("poisson", "cyclic"):
        expected = mechanism.sampling_prob * len(users)
    # Sampled users stand for all: a user's number, modulo their count, says whose cost it has.
    busiest = [_busiest([costs[user % len(costs)] for user in cohort.tolist()], group.size) for cohort in cohorts]
    server, line = _server(prepared)
    return StepTime(
        seconds=pace * float(np.mean(busiest)) + server,
        audio_seconds=expected * local.audio_seconds,
        measured_seconds=spent / group.size,
        measured=f"{round(batches)} local steps of users of this store, and the server's part of a step",
        log_bytes=len(line),
        users=expected,
        local=local,
    )


def _local_work(prepared: Prepared, chosen: npt.NDArray[np.int64]) -> LocalWork:
    """Return the local work of the chosen users, as they would do it in the first step."""
    users, client = prepared.users, prepared.client
    steps, frames, own = [], [], []
    for user in chosen.tolist():
        rows = users.rows_of(user)
        batches = client.planned(0, users.key_of(user), rows)
        steps.append(len(batches))
        frames.append(sum(int(users.store.frames_of(batch.rows).sum()) for batch in batches))
        own.append(int(users.store.frames_of(rows).sum()))
    return LocalWork(
        steps=float(np.mean(steps)),
        most_steps=max(steps),
        audio_seconds=float(np.mean(frames)) / FRAMES_PER_SECOND,
        own_seconds=float(np.mean(own)) / FRAMES_PER_SECOND,
    )


def _measured_users(prepared: Prepared, mine: Sequence[int]) -> tuple[float, int, int]:
    """Train users for some seconds; return the seconds, what was done, in frames as `local_cost` counts, and steps."""
    recogniser, client, users = prepared.context.recogniser, prepared.client, prepared.users
    theta, cost, steps = recogniser.flat.theta.clone(), 0, 0
    began = time.perf_counter()
    for user in itertools.cycle(mine):
        key, rows = users.key_of(user), users.rows_of(user)
        state = client.start_(recogniser, theta, 0, key)
        for batch in client.batches(0, key, rows, recogniser.encoder):
            client.step_(recogniser, theta, batch, state)
            cost += STEP_FRAMES + sum(_frames(micro.batch.frames, prepared) for micro in batch.micro)
            steps += 1
            if _over(began, theta.device):
                recogniser.flat.load_(theta)
                return time.perf_counter() - began, cost, steps
        if not len(rows) and _over(began, theta.device):
            break
    recogniser.flat.load_(theta)
    return time.perf_counter() - began, cost, steps


def _frames(frames: npt.NDArray[np.int64], prepared: Prepared) -> int:
    padded = prepared.context.recogniser.encoder.computes_padding
    return int(frames.max()) * len(frames) if padded else int(frames.sum())


def _over(began: float, device: torch.device) -> bool:
    """Return whether enough was measured; work that a device has queued counts."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began > MEASURED_SECONDS


def _busiest(costs: Sequence[float], processes: int) -> float:
    """Return the work of the process that has most of it."""
    whole = [round(cost) for cost in costs]
    return float(
        max((sum(whole[place] for place in share.tolist()) for share in share_out(whole, processes)), default=0)
    )


def _server(prepared: Prepared) -> tuple[float, str]:
    """Return how long a step without users takes, and the line that it writes into the metrics."""
    context, config = prepared.context, prepared.context.resolved.config
    aggregator = _NoUsers(
        context.group, prepared.users, context.recogniser, prepared.client, prepared.mechanism, context.stop
    )
    engine = Engine(
        aggregator,
        context.recogniser,
        prepared.mechanism,
        config.federated.optimizer,
        context.state,
        users=len(prepared.users),
        seed=config.seed,
    )
    engine.step(0, config.federated.schedule.at(0))  # the first one also makes room in memory
    began = time.perf_counter()
    figures = engine.step(1, config.federated.schedule.at(1))
    return time.perf_counter() - began, json.dumps(figures.line(diagnostics=config.diagnostics))


def central_step(context: TrainingContext, train: Population) -> StepTime:
    """Measure micro-batches of the first steps, and the optimizer's part of a step."""
    config, group, store = context.resolved.config, context.group, train.store
    options, rows = config.central, train.all_rows()
    frames, order = store.frames_of(rows), stream(config.seed, "central-order", 0)
    steps = epoch_of_steps(rows, frames, options.micro_batch_seconds, options.micro_batches, order)
    padded = context.recogniser.encoder.computes_padding

    def cost(part: Rows) -> int:
        lengths = store.frames_of(part)
        return int(lengths.max()) * len(lengths) if padded else int(lengths.sum())

    micro = [part for step in steps for part in step]
    spent, work, batches = _measured_batches(context, store, micro[group.rank :: group.size] or micro, cost)
    spent, work, batches = (sum(part) for part in zip(*group.gather((spent, work, batches)), strict=True))
    busiest = []
    for step in steps[:_STEPS]:
        dealt = deal([store.frames_of(part) for part in step], group.size, options.micro_batches)
        shares = [sum(cost(step[piece.place][piece.first : piece.last]) for piece in hand) for hand in dealt]
        busiest.append(max(shares))
    return StepTime(
        seconds=spent / max(work, 1) * float(np.mean(busiest)) + _optimizer(context),
        audio_seconds=float(frames.sum()) / FRAMES_PER_SECOND / len(steps),
        measured_seconds=spent / group.size,
        measured=f"{round(batches)} batches of this store, and the optimizer's part of a step",
        log_bytes=200,
        utterances=len(rows) / len(steps),
        steps_per_epoch=len(steps),
    )


def _measured_batches(
    context: TrainingContext, store: Store, micro: Sequence[Rows], cost: Callable[[Rows], int]
) -> tuple[float, int, int]:
    """Compute gradients for some seconds; return the seconds, the frames and the number of batches.

    The batches grow up to whole micro-batches, so that a large model is not measured for hours.
    """
    recogniser, config = context.recogniser, context.resolved.config
    recogniser.encoder.train()
    work = batches = 0
    began = time.perf_counter()
    for place, part in enumerate(_growing(micro)):
        streams = Streams(config.seed, (place,))
        ready = prepare_micro(store, part, config.specaugment, streams, 0, recogniser.encoder)
        with recogniser.flat.new_gradient():
            add_gradient(recogniser, ready, recogniser.encoder.draw_batch(streams), 1 / len(part))
        work, batches = work + cost(part), batches + 1
        if _over(began, recogniser.flat.theta.device):
            break
    return time.perf_counter() - began, work, batches


def _growing(micro: Sequence[Rows]) -> Iterator[Rows]:
    """Yield micro-batches again and again: one utterance of the first, two of the second, and so on by doubling."""
    size = 1
    for part in itertools.cycle(micro):
        yield part[:size]
        size = min(2 * size, 1 << 20)


def _optimizer(context: TrainingContext) -> float:
    """Return how long adding up the gradient and moving the model take."""
    flat, options = context.recogniser.flat, context.resolved.config.central
    began = time.perf_counter()
    context.group.sum_(flat.gradient)
    options.optimizer.step(flat.theta, flat.gradient, context.state, options.schedule.at(0), flat.partition())
    return time.perf_counter() - began


def evaluation_seconds(context: TrainingContext, population: Population | None) -> float:
    """Return how long an evaluation on a population takes, from some of its utterances; 0 without a population."""
    if population is None:
        return 0.0
    rows = population.all_rows()
    frames = population.store.frames_of(rows)
    count = max(int(np.searchsorted(np.cumsum(frames), _EVALUATED_FRAMES * context.group.size)), 1)
    began = time.perf_counter()
    evaluate(context.recogniser, population.store, rows[:count], context.group)
    return (time.perf_counter() - began) * float(frames.sum()) / float(frames[:count].sum())
