"""Central steps on one and two workers, timed user by user: the speed-up, and the test of the simulation.

Users have the heavy tail of Common Voice and train for one epoch, so their times differ by two orders of magnitude.
The same cohorts are trained by one worker, by two with the engine's shares, and by two with shares dealt at random.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cost_laws import Report, Sizes
from documents import MeasuredStep, UserTime
from hand_out import dealt
from setting import CENTRAL_LR, Setting, make_engine, measured, write_users
from torch import Tensor

from sottovoce.data.population import Population
from sottovoce.distributed import Group
from sottovoce.estimate.user_audio import paper_audio
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.federated import process_aggregator
from sottovoce.federated.aggregator import Users
from sottovoce.federated.client import Client
from sottovoce.federated.diagnostics import Figures
from sottovoce.federated.engine import Engine
from sottovoce.federated.local_rules import LocalState
from sottovoce.federated.process_aggregator import ProcessAggregator, local_cost
from sottovoce.model.recogniser import Recogniser
from sottovoce.randomness import stream

USERS = 128
LONGEST = 120.0  # seconds of audio of a user: a whole heavy tail would take hours
ENGINE, DEALT = "engine", "dealt"
STEPS_EACH = 6  # timed, of every cohort size and rule


def worker_steps(sizes: Sizes, folder: Path, report: Report) -> tuple[MeasuredStep, ...]:
    """Measure the same steps on one worker and on two, in turn."""
    store = write_users(folder / "heavy-tail", heavy_tail(USERS))
    steps: list[MeasuredStep] = []
    for cohort in sizes.worker_cohorts:
        people = (f"participation.population={USERS}", f"participation.cohort_size={cohort}")
        local = ("participation.sampling=fixed", "federated.local.epochs=1", "batching.seconds=20")
        setting = Setting(store, "tiny", (*people, *local))
        for workers, rule in ((1, ENGINE), (2, ENGINE), (2, DEALT)):
            documents = measured(watched_steps, (setting, rule, 2 if sizes.quick else STEPS_EACH), workers, folder)
            steps += [MeasuredStep.model_validate(document) for document in documents]
            seconds = ", ".join(f"{step.seconds:.2f} s" for step in steps[-len(documents) :])
            report(f"{cohort} users, {workers} workers, {rule}: {seconds}")
    return tuple(steps)


def heavy_tail(users: int) -> list[list[float]]:
    """Return the utterances, in seconds, of users drawn from Common Voice's distribution, cut at LONGEST."""
    audio, rng = paper_audio("CV-en-train"), stream(0, "heavy-tail")
    totals = np.minimum(rng.choice(audio.seconds, size=users, p=audio.shares), LONGEST)
    return [_utterances(float(total), audio.utterance_seconds, rng) for total in totals]


def _utterances(total: float, typical: float, rng: np.random.Generator) -> list[float]:
    """Return utterances around the typical length that add up to about the total."""
    count = max(round(total / typical), 1)
    lengths = rng.gamma(9.7, 1 / 9.7, size=count)
    spoken: list[float] = np.maximum(total * lengths / lengths.sum(), 0.5).tolist()
    return spoken


class UserClock:
    """Notes when each user of a process starts, and when the phases of a step begin and end."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.starts: list[tuple[str, float]] = []
        self.phases: dict[str, tuple[float, float]] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the engine's own functions."""
        start, timed = Client.start_, Figures.timed

        def noted_start(client: Client, recogniser: Recogniser, theta: Tensor, step: int, user: str) -> LocalState:
            self.starts.append((user, time.perf_counter()))
            return start(client, recogniser, theta, step, user)

        @contextlib.contextmanager
        def noted_phase(figures: Figures, phase: str) -> Iterator[None]:
            began = time.perf_counter()
            with timed(figures, phase):
                yield
            self.phases[phase] = (began, time.perf_counter())

        # The benchmark watches methods of the engine itself, which mypy takes for a mistake.
        Client.start_, Figures.timed = noted_start, noted_phase  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Client.start_, Figures.timed = start, timed  # type: ignore[method-assign]

    def user_seconds(self) -> dict[str, float]:
        """Return how long each user took: until the next one starts, or the phase ends."""
        ends = [began for _, began in self.starts[1:]] + [self.phases["users"][1]]
        return {user: end - began for (user, began), end in zip(self.starts, ends, strict=True)}

    def waited(self) -> float:
        """Return the time before the first user starts: sharing out, and reading its first batch."""
        began, ended = self.phases["users"]
        return (self.starts[0][1] if self.starts else ended) - began


def watched_steps(group: Group, setting: Setting, rule: str, steps: int, out: Path) -> None:
    """Take steps, after one that is not timed, and write them user by user."""
    if rule == DEALT:
        process_aggregator.share_out = _dealt_shares
    engine = make_engine(group, setting)
    documents = []
    for t in range(1 + steps):
        clock = UserClock()
        group.barrier()
        began = time.perf_counter()
        with clock.watching():
            engine.step(t, CENTRAL_LR)
        group.barrier()
        seconds = time.perf_counter() - began
        everyone = group.gather((clock.user_seconds(), clock.waited(), clock.phases["users"][1]))
        if group.leads and t > 0:
            documents.append(_document(engine, clock, everyone, rule, t, seconds))
    if group.leads:
        out.write_text(json.dumps(documents))
    group.barrier()


def _dealt_shares(costs: Sequence[int], shares: int) -> list[Users]:
    return dealt(len(costs), shares, stream(len(costs), "dealt", *costs))


def _document(
    engine: Engine,
    clock: UserClock,
    everyone: list[tuple[dict[str, float], float, float]],
    rule: str,
    t: int,
    seconds: float,
) -> dict[str, Any]:
    costs = _cost_seconds(engine, t)
    users = [
        UserTime(name=name, process=process, cost_seconds=costs[name], seconds=taken)
        for process, (times, _, _) in enumerate(everyone)
        for name, taken in times.items()
    ]
    phases = {name: end - began for name, (began, end) in clock.phases.items()}
    step = MeasuredStep(
        cohort=len(users),
        t=t,
        rule=rule,
        workers=len(everyone),
        users=tuple(users),
        waited=tuple(waited for _, waited, _ in everyone),
        phases=phases | {"users": max(ended for _, _, ended in everyone) - clock.phases["users"][0]},
        seconds=seconds,
    )
    return step.model_dump(mode="json")


def _cost_seconds(engine: Engine, t: int) -> dict[str, float]:
    """Return what every user's local work costs by the engine's estimate, in seconds of audio."""
    aggregator = engine.aggregator
    if not isinstance(aggregator, ProcessAggregator):
        raise TypeError("Expected the aggregator of make_engine.")
    users: Population = aggregator.population
    return {
        users.key_of(user): local_cost(users, user, aggregator.client, t, padded=False) / FRAMES_PER_SECOND
        for user in range(len(users))
    }
