"""Cohorts: the users that take part in a central step.

In a Poisson cohort every user joins independently with probability q. The gaps between its members are geometric, and
drawing the gaps costs O(cohort) time and memory instead of O(population). Guarantees: each user is a member with
probability q, independently of all others; a cohort may be empty; q = 1 gives everyone and q = 0 no one.

A cohort may also have a fixed size or contain everyone. The privacy accounting must know which kind is drawn.

Cyclic cohorts leave a user out for b - 1 steps after each step that it may take part in. Users are split into b groups,
one group has its turn in a step, and the cohort is a Poisson sample of that group. A user's group follows from the seed
and the user's own name, so whoever else is there moves nobody. Groups need not be secret or equally large.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sottovoce.errors import ConfigError
from sottovoce.randomness import Randomness, dealt

_LARGEST_POPULATION = 2**61  # a member and one gap after it still fit into int64


@dataclass(frozen=True, eq=False)
class UserGroups:
    """Users 0 to population - 1, split into groups that have their turn one after another."""

    groups: int
    _of_user: npt.NDArray[np.int64]

    @classmethod
    def of(cls, names: Iterable[str], groups: int, seed: int) -> "UserGroups":
        """Split users by their names; with one group nobody's name is looked at."""
        return cls(groups, np.array([dealt(seed, "group", name, groups) for name in names], np.int64))

    def eligible(self, t: int) -> npt.NDArray[np.int64]:
        """Return the users who may take part in step t, in ascending order."""
        return np.flatnonzero(self._of_user == t % self.groups)


def draw_cohort(
    sampling: str, population: int, cohort_size: float, sampling_prob: float, rng: Randomness
) -> npt.NDArray[np.int64]:
    """Return a cohort of users 0 to population - 1 in ascending order; `sampling` is poisson, fixed or everyone."""
    if sampling == "everyone":
        return np.arange(population, dtype=np.int64)
    if sampling == "poisson":
        return poisson_cohort(population, sampling_prob, rng)
    if cohort_size > population:
        raise ConfigError(f"A cohort of {cohort_size:g} cannot be drawn from {population} users. Lower cohort_size.")
    return np.sort(rng.choice(population, int(cohort_size), replace=False))


def poisson_cohort(population: int, sampling_prob: float, rng: Randomness) -> npt.NDArray[np.int64]:
    """Return a Poisson cohort of users 0 to population - 1 in ascending order."""
    if not 0 <= population <= _LARGEST_POPULATION:
        raise ConfigError(f"Expected 0 <= population={population} <= 2^61.")
    if not 0.0 <= sampling_prob <= 1.0:
        raise ConfigError(f"Expected 0 <= sampling_prob={sampling_prob} <= 1.")
    if sampling_prob == 1.0:
        return np.arange(population, dtype=np.int64)
    if sampling_prob == 0.0 or population == 0:
        return np.zeros(0, dtype=np.int64)
    expected = population * sampling_prob
    draws = int(expected + 6 * math.sqrt(expected)) + 16  # almost always enough draws to reach the end at once
    rounds: list[npt.NDArray[np.int64]] = []
    last = -1
    while last < population:
        # Once in 2^53 draws numpy's geometric is 0, which would repeat a user; it is clipped to 1.
        gaps = np.clip(rng.geometric(sampling_prob, size=draws), 1, population + 1)
        members = last + np.cumsum(gaps)
        past_the_end = np.flatnonzero(members >= population)  # this draw and all later ones are beyond the population
        if past_the_end.size:
            members = members[: past_the_end[0]]
        rounds.append(members)
        last = population if past_the_end.size else int(members[-1])
    return np.concatenate(rounds)
