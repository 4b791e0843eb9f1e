"""Central steps on many GPUs, simulated: cohorts with the paper's heavy tail under every hand-out rule.

A user's time is the law that the estimate fits to the paper's runs on an A100: a time for every local step, and a time
for every second of audio. Real times lie around it as far as measured users do (`fits.user_law`). Cohorts are Poisson.
Everything is drawn from named streams, so a simulation repeats to the bit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from hand_out import (
    Chunk,
    Floats,
    Outcome,
    common_queue,
    dealt,
    fixed_shares,
    guided,
    longest_first,
    one_by_one,
)

from sottovoce.config import Config, parse_setting, resolve
from sottovoce.data.text import TokenSet
from sottovoce.estimate.calibration import PAPER_MODEL, calibrate
from sottovoce.estimate.user_audio import UserAudio, paper_audio
from sottovoce.estimate.work import flops_per_second, local_work
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.federated.aggregator import Users
from sottovoce.federated.process_aggregator import STEP_FRAMES
from sottovoce.randomness import stream

CORPUS = "CV-en-train"
STEP_SECONDS = STEP_FRAMES / FRAMES_PER_SECOND  # of audio, which the engine counts a local step as
CAP_SECONDS = 600.0  # of audio of one user, under the rule that limits it
FETCH_SECONDS = 1e-3  # assumed between machines
PACE_SPREAD = 0.05  # assumed: standard deviation of the pace of GPUs
_MOST_DRAWN, _MOST_COHORTS, _LEAST_COHORTS = 1 << 15, 20, 4


@dataclass(frozen=True)
class Pace:
    """Seconds of one GPU for the paper's model; both from the estimate's fit to the paper's runs."""

    per_local_step: float
    per_audio_second: float


@cache
def paper_pace() -> Pace:
    """Return the pace of the paper's own runs: A100, TF32."""
    fit = calibrate().fit
    tokens = len(TokenSet(("en",)).tokens)
    flops = flops_per_second(resolve(PAPER_MODEL).config.model, tokens, paper_audio(CORPUS).utterance_seconds)
    return Pace(fit.per_local_step, fit.per_flop * sum(flops.values()))


@dataclass(frozen=True)
class Workload:
    """Users' audio and their local work."""

    name: str
    settings: tuple[str, ...]
    corpus: str = CORPUS
    capped: bool = False

    @property
    def config(self) -> Config:
        """The configuration, as far as it decides the cost."""
        cap = (f"batching.max_seconds_per_user={CAP_SECONDS}",) if self.capped else ()
        texts = ("batching.seconds=120", *self.settings, *cap)
        return resolve(PAPER_MODEL, *(parse_setting(text) for text in texts)).config

    @property
    def audio(self) -> UserAudio:
        """The audio per user."""
        return paper_audio(self.corpus)


STEPS = Workload("10 local steps", ("federated.local.steps=10",))
EPOCHS = Workload("10 local epochs", ("federated.local.epochs=10",))


@dataclass(frozen=True, eq=False)
class Cohort:
    """The users of one step."""

    cost: Floats  # what the engine shares out by, in seconds of audio
    expected: Floats  # seconds by the law
    real: Floats  # seconds that they take


@cache
def user_costs(workload: Workload) -> tuple[Floats, Floats]:
    """Return, for every amount of audio in the distribution, the engine's cost of a step and the time by the law."""
    steps, seconds = local_work(workload.config, workload.audio.seconds, workload.audio.utterance_seconds)
    pace = paper_pace()
    cost = seconds + STEP_SECONDS * steps
    return cost, pace.per_local_step * steps + pace.per_audio_second * seconds


def mean_cost(workload: Workload) -> float:
    """Return the expected seconds of one user."""
    return workload.audio.mean(user_costs(workload)[1])


def draw(workload: Workload, cohort_size: int, spread: float, number: int) -> Cohort:
    """Draw the cohort of a step."""
    rng = stream(0, "scaling-cohort", cohort_size, number)
    users = rng.poisson(cohort_size)
    places = rng.choice(len(workload.audio.shares), size=users, p=workload.audio.shares)
    cost, expected = (values[places] for values in user_costs(workload))
    real = expected * np.exp(spread * rng.standard_normal(users) - spread**2 / 2)
    return Cohort(cost, expected, real)


@dataclass(frozen=True)
class Circumstances:
    """Everything but the cohort that a step's time depends on."""

    workers: int
    rng: np.random.Generator
    paces: Floats | None = None
    fetch_seconds: float = FETCH_SECONDS


Simulate = Callable[[Cohort, Circumstances], Outcome]


@dataclass(frozen=True)
class Rule:
    """A hand-out rule."""

    name: str
    simulate: Simulate
    capped: bool = False


def _by_cost(cohort: Cohort, around: Circumstances) -> Outcome:
    return fixed_shares(longest_first(cohort.cost, around.workers), cohort.real, around.paces)


def _by_time(cohort: Cohort, around: Circumstances) -> Outcome:
    return fixed_shares(longest_first(cohort.expected, around.workers), cohort.real, around.paces)


def _dealt(cohort: Cohort, around: Circumstances) -> Outcome:
    return fixed_shares(dealt(len(cohort.real), around.workers, around.rng), cohort.real, around.paces)


def _random_queue(cohort: Cohort, around: Circumstances) -> Outcome:
    return _queued(around.rng.permutation(len(cohort.real)), cohort, around)


def _sorted_queue(cohort: Cohort, around: Circumstances) -> Outcome:
    return _queued(np.argsort(-cohort.expected, kind="stable"), cohort, around)


def _guided_queue(cohort: Cohort, around: Circumstances) -> Outcome:
    return _queued(around.rng.permutation(len(cohort.real)), cohort, around, guided)


def _queued(order: Users, cohort: Cohort, around: Circumstances, chunk: Chunk = one_by_one) -> Outcome:
    return common_queue(
        order,
        cohort.real,
        around.workers,
        fetch_seconds=around.fetch_seconds,
        chunk=chunk,
        paces=around.paces,
    )


TODAY = Rule("fixed shares, longest first by cost", _by_cost)
BY_TIME = Rule("fixed shares, longest first by time", _by_time)
SORTED_QUEUE = Rule("queue, longest first", _sorted_queue)
CAPPED_QUEUE = Rule("queue, longest first, audio limited", _sorted_queue, capped=True)
RULES = (
    TODAY,
    BY_TIME,
    Rule("fixed shares, at random", _dealt),
    Rule("queue, random order", _random_queue),
    SORTED_QUEUE,
    Rule("queue, random order, guided pieces", _guided_queue),
    Rule("fixed shares, longest first by cost, audio limited", _by_cost, capped=True),
    CAPPED_QUEUE,
)


@dataclass(frozen=True)
class Summary:
    """The outcomes of a rule over some cohorts."""

    outcomes: tuple[Outcome, ...]

    @property
    def idle(self) -> float:
        """The idle share of all workers' time, over all cohorts."""
        return 1 - sum(outcome.ideal for outcome in self.outcomes) / sum(outcome.seconds for outcome in self.outcomes)

    @property
    def idle_range(self) -> tuple[float, float]:
        """The least and the largest idle share of a cohort."""
        shares = [outcome.idle for outcome in self.outcomes]
        return min(shares), max(shares)

    @property
    def over_ideal(self) -> float:
        """The time of a step over that of an even division, on average."""
        return 1 / (1 - self.idle)

    @property
    def least_idle(self) -> float:
        """The idle share that no rule can go below, because a user is never divided."""
        return 1 - sum(outcome.ideal for outcome in self.outcomes) / sum(outcome.bound for outcome in self.outcomes)


def simulate(
    rule: Rule, workload: Workload, cohort_size: int, workers: int, spread: float, *, uneven: bool = False
) -> Summary:
    """Simulate steps of some cohorts; with `uneven`, the paces of the workers differ."""
    capped = replace(workload, capped=rule.capped)
    cohorts = min(max(_MOST_DRAWN // cohort_size, _LEAST_COHORTS), _MOST_COHORTS)
    outcomes = []
    for number in range(cohorts):
        rng = stream(0, "scaling-rule", cohort_size, workers, number)
        paces = 1 + PACE_SPREAD * rng.standard_normal(workers) if uneven else None
        around = Circumstances(workers, rng, paces)
        outcomes.append(rule.simulate(draw(capped, cohort_size, spread, number), around))
    return Summary(tuple(outcomes))
