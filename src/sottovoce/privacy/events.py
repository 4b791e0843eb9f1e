"""What accounting counts: releases, how often each happened, and which change of the users they protect against.

A release is an `Event`: a Gaussian of noise multiplier z on a sample of users, each in it with probability q.
- Poisson samples, adding or removing one user: the pairs of distributions are the mixture (1-q) N(0, z^2) + q N(1, z^2)
  and N(0, z^2), in both directions.
- Samples of fixed size, replacing one user by another (the sensitivity doubles, so z is halved): the dominating pair is
  symmetric (Dong, Roth and Su 2019, theorem 4.2). Its losses above 0 are those of the mixture against the Gaussian, its
  losses below 0 those of the Gaussian against the mixture, and the rest of its mass lies at 0. Composed, it costs more
  than either direction alone.
Events of several runs add up.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sottovoce.errors import PrivacyError
from sottovoce.privacy.target_delta import require_delta

Adjacency = Literal["add or remove one user", "replace one user by another", "replace all updates of one user by zeros"]
ADD_OR_REMOVE: Adjacency = "add or remove one user"
REPLACE: Adjacency = "replace one user by another"
# Costs what adding or removing costs: the user's updates are in the sum, or nothing is in their place. What else
# depends on who takes part, such as whether enough clients are left for a masked sum, is the same on both sides.
ZERO_OUT: Adjacency = "replace all updates of one user by zeros"
_MULTIPLIERS = (1e-100, 1e100)  # noise multipliers whose squares are numbers


@dataclass(frozen=True)
class Event:
    """One release, as accounting sees it."""

    z: float
    sampling_prob: float
    adjacency: Adjacency = ADD_OR_REMOVE

    def __post_init__(self) -> None:
        """Refuse what has no guarantee."""
        least, most = _MULTIPLIERS
        if not (least <= self.z <= most and 0 < self.sampling_prob <= 1):
            raise PrivacyError(
                f"Expected z={self.z:g} in [{least:g}, {most:g}] and sampling_prob={self.sampling_prob:g} in (0, 1]."
            )


Counts = Mapping[Event, int]  # how often each event happened


@dataclass(frozen=True)
class Spent:
    """What several releases amount to: how often each event happened, and what is added to their epsilon and delta.

    `extra` is 2 a where the probabilities of the noise are within a factor of e^a of the Gaussian's: (epsilon, delta)
    then becomes (epsilon + 2 a, e^a delta). `extra_delta` is what cohorts with a largest size add to delta, before that
    (`truncation.py`). Spent amounts of several runs on one population add up.
    """

    events: Counts
    extra: float = 0.0
    extra_delta: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        """Return both together."""
        events = Counter(self.events)
        events.update(other.events)
        return Spent(dict(events), self.extra + other.extra, self.extra_delta + other.extra_delta)

    @property
    def adjacency(self) -> Adjacency | None:
        """What the epsilon protects against; None where nothing was released."""
        return next((event.adjacency for event in self.events), None)


def events_of(spent: Spent | Counts) -> dict[Event, int]:
    """Return the events that happened; they must protect against one and the same change."""
    counts = spent.events if isinstance(spent, Spent) else spent
    if any(count < 0 for count in counts.values()):
        raise PrivacyError(f"There are no {min(counts.values())} releases. Give a number of releases from 0 on.")
    if len({event.adjacency for event in counts}) > 1:
        raise PrivacyError("Runs with Poisson cohorts and runs with cohorts of fixed size do not compose.")
    return {event: count for event, count in counts.items() if count}


def extra_of(spent: Spent | Counts) -> float:
    """Return what the noise's sampler adds to epsilon."""
    return spent.extra if isinstance(spent, Spent) else 0.0


def extra_delta_of(spent: Spent | Counts) -> float:
    """Return what cohorts with a largest size add to delta, rounded up."""
    return spent.extra_delta * (1 + 2.0**-40) if isinstance(spent, Spent) else 0.0


def reduced_delta(spent: Spent | Counts, target_delta: float) -> float:
    """Return the delta to account for, such that cut cohorts and the noise's sampler bring it up to the target."""
    require_delta(target_delta)
    extra, lost = extra_of(spent), extra_delta_of(spent)
    if extra > 0.2:
        raise PrivacyError(f"The grid of the noise is too coarse: it adds {extra:g} to epsilon. Use more noise.")
    reduced = target_delta * math.exp(-extra / 2) if extra else target_delta
    if lost >= reduced:
        raise PrivacyError(
            f"A cohort is cut to participation.cap with a probability of up to {min(lost, 1):.2g}, not below delta "
            f"{target_delta:g}: there is no epsilon. Raise the cap, or delta."
        )
    return (reduced - lost) * (1 - 2.0**-50) if lost else reduced
