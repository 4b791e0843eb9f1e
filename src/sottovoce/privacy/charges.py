"""Charges: the releases of a run, or of copies of it, each counted once, and what they cost.

A release is identified by its step and the hash of its noised sum. Two copies of a run share the releases that were
made before they were copied; those count once.

A step may be released more than once: after a kill, or by two copies of a run. What that costs depends on the cohort.
- Secure randomness draws a new cohort each time: k releases of one step are k independent events.
- Seeded randomness draws the same cohort again. One user then moves k sums at once, so k releases with independent
  noise are one event whose noise multiplier is z / sqrt(k).
- Noise with a memory is accounted for as a whole, and with seeded randomness never drawn twice for a step: k > 1 is
  refused. With secure randomness, noise that can start afresh does so at the repeated step. The rows of both parts are
  then disjoint, and a user who may take part in the step takes part once more: each repetition adds what a single
  release costs.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import Adjacency, Spent
from sottovoce.privacy.noise import AnyNoise, IndependentNoise

Repetitions = Mapping[int, int]  # how many steps were released once, twice, ...


class Charges:
    """The releases made, by step."""

    def __init__(self, releases: Iterable[tuple[int, str]] = ()) -> None:
        """Count releases, each given by its step and the hash of its noised sum."""
        self._by_step: dict[int, set[str]] = {}
        self._repetitions: Counter[int] = Counter()
        for step, aggregate in releases:
            self.add(step, aggregate)

    def add(self, step: int, aggregate: str) -> None:
        """Count a release, unless it was counted before."""
        known = self._by_step.setdefault(step, set())
        if aggregate not in known:
            self._repetitions[len(known)] -= 1
            known.add(aggregate)
            self._repetitions[len(known)] += 1

    def of(self, step: int) -> frozenset[str]:
        """Return the hashes of the sums that were released for a step."""
        return frozenset(self._by_step.get(step, ()))

    def pairs(self) -> set[tuple[int, str]]:
        """Return all releases."""
        return {(step, aggregate) for step, known in self._by_step.items() for aggregate in known}

    @property
    def repetitions(self) -> Repetitions:
        """How many steps were released once, twice, and so on."""
        return self.repetitions_with(())

    def repetitions_with(self, releases: Iterable[tuple[int, str]]) -> Repetitions:
        """Return what `repetitions` would be with more releases."""
        more: dict[int, set[str]] = {}
        for step, aggregate in releases:
            if aggregate not in self._by_step.get(step, ()):
                more.setdefault(step, set()).add(aggregate)
        changed = Counter(self._repetitions)
        for step, new in more.items():
            known = len(self._by_step.get(step, ()))
            changed[known] -= 1
            changed[known + len(new)] += 1
        return {times: steps for times, steps in sorted(changed.items()) if times > 0 and steps > 0}

    def __len__(self) -> int:
        """Return the number of releases."""
        return sum(times * steps for times, steps in self.repetitions.items())


class Costly(Protocol):
    """The mechanism of a run, as far as its releases' cost depends on it."""

    @property
    def z(self) -> float:
        """The noise multiplier."""

    @property
    def sampling_prob(self) -> float:
        """The probability q that a user takes part."""

    @property
    def adjacency(self) -> Adjacency | None:
        """What changes between neighbouring populations; None without a guarantee."""

    @property
    def sampler_epsilon(self) -> float | None:
        """What the sampler of the noise adds to epsilon with every release."""

    @property
    def noise_mechanism(self) -> AnyNoise:
        """The noise."""

    @property
    def simulated(self) -> bool:
        """Whether cohorts and noise came from a seed."""


def cost(mechanism: Costly, repetitions: Repetitions) -> Spent:
    """Return what the releases of one mechanism cost; raise PrivacyError where nothing bounds it."""
    if mechanism.adjacency is None:
        raise PrivacyError("There is no epsilon: the mechanism has no guarantee.")
    noise, releases = mechanism.noise_mechanism, sum(times * steps for times, steps in repetitions.items())
    spent = Spent({}, releases * (mechanism.sampler_epsilon or 0.0))
    if not isinstance(noise, IndependentNoise):
        return spent + _with_memory(mechanism, releases, sum(repetitions.values()))
    same_cohort = repetitions if mechanism.simulated else {1: releases}
    for times, steps in same_cohort.items():
        z = mechanism.z / math.sqrt(times)
        spent += Spent(noise.spent(z, mechanism.sampling_prob, mechanism.adjacency, steps))
    return spent


def _with_memory(mechanism: Costly, releases: int, steps: int) -> Spent:
    """Return what releases of some steps cost, with noise that has a memory."""
    noise, adjacency = mechanism.noise_mechanism, mechanism.adjacency
    if adjacency is None or (releases > steps and (mechanism.simulated or not noise.restarts)):
        raise PrivacyError("A step was released twice with noise that has a memory: there is no epsilon.")
    spent = Spent(noise.spent(mechanism.z, mechanism.sampling_prob, adjacency, steps))
    again = noise.spent(mechanism.z, mechanism.sampling_prob, adjacency, 1)
    return spent + Spent({event: count * (releases - steps) for event, count in again.items() if releases > steps})
