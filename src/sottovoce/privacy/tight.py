"""Epsilon by privacy loss distributions (PLD): tight, an upper bound in floating point too, or refused with a reason.

Three ways to the same number, each where it is best:
- Everyone takes part (q = 1): the closed form of the Gaussian mechanism (Balle and Wang 2018).
- A plain FFT by dp-accounting on the pessimistic distributions of `loss_distributions.py`. A bound on the rounding
  errors of its convolutions is subtracted from delta. The grid follows from the range that RDP predicts, so that time
  and memory stay bounded.
- A tilted FFT (`tilt_search.py`), where delta is not far above those rounding errors, or where that grid is coarse
  beside the loss of one release.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sottovoce.privacy.events import (
    REPLACE,
    Counts,
    Event,
    Spent,
    events_of,
    extra_delta_of,
    extra_of,
    reduced_delta,
)
from sottovoce.privacy.loss_distributions import sampled_gaussian, symmetric
from sottovoce.privacy.renyi import rdp_of
from sottovoce.privacy.tilt_search import tilted_delta, tilted_epsilon

_TAIL = 1e-15  # the mass that the grid of a privacy loss distribution may leave out; it is added to delta
_GRID = 400_000  # the intended number of points of a composed distribution
_LARGEST_GRID = 8_000_000  # the largest number that is still computed: half a minute, a gigabyte
_WIDEST = 500.0  # the widest interval: the exponential of one above 709 is no number
_MOST_NOISE = 1e6  # the largest z that is accounted for; a grid for more noise is too fine
_LEAST_NOISE = 1e-8  # the smallest z of a Gaussian whose closed form is still resolved in double precision
_ROUNDING_SHARE = 0.01  # of delta, that rounding errors may take before the tilted FFT is used
_COARSE = 1 / 16  # of a standard deviation of the loss of one release: a wider interval is coarse


@dataclass(frozen=True)
class Pld:
    """Epsilon by privacy loss distributions, or why there is none."""

    epsilon: float | None
    reason: str | None = None


def pld(spent: Spent | Counts, target_delta: float) -> Pld:
    """Return the tight epsilon at the target delta; refused, with a reason, where the grid would be too large."""
    extra = extra_of(spent)
    found = _pld(events_of(spent), reduced_delta(spent, target_delta))
    return replace(found, epsilon=None if found.epsilon is None else found.epsilon + extra)


def _pld(events: Counts, target_delta: float) -> Pld:
    if not events:
        return Pld(0.0)
    loose = rdp_of(events, target_delta).epsilon
    if all(event.sampling_prob == 1.0 for event in events):
        if (z := _multiplier(events)) < _LEAST_NOISE:
            return Pld(None, f"z of all releases together is {z:.3g}, below {_LEAST_NOISE:g}: too small for its digits")
        return Pld(min(gaussian_epsilon(z, target_delta), loose))
    events = _with_less_noise(events)
    if (reason := refusal(events)) is not None:
        return Pld(None, reason)
    lost, bounds = rounding(events), []
    if target_delta >= 2 * lost:
        bounds.append(float(composed(tuple(events.items())).get_epsilon_for_delta(target_delta - lost)))
    if lost > _ROUNDING_SHARE * target_delta or coarse(events):
        tilted = tilted_epsilon(events, target_delta)
        bounds += [] if tilted is None else [tilted]
    bounds = [bound for bound in bounds if math.isfinite(bound) and bound >= 0]
    if not bounds:
        return Pld(None, f"delta {target_delta:g} is not above the rounding errors of its convolutions")
    # All are upper bounds. On a coarse grid RDP may be the smallest one.
    return Pld(min(*bounds, loose))


def _with_less_noise(events: Counts) -> Counts:
    """Return the events with z of at most _MOST_NOISE: they cost no less, and their grid is not too fine."""
    found: Counter[Event] = Counter()
    for event, count in events.items():
        found[replace(event, z=min(event.z, _MOST_NOISE))] += count
    return found


def refusal(events: Counts) -> str | None:
    """Return why a privacy loss distribution is not computed; None where it is."""
    interval, points = grid_of(events)
    if interval > _WIDEST:
        return f"losses are so large that its grid would have an interval of {interval:.3g}, more than {_WIDEST:g}"
    if points > _LARGEST_GRID:
        return f"its grid would have {points:.1e} points, more than {_LARGEST_GRID:.0e}"
    return None


def rounding(events: Counts) -> float:
    """Return an upper bound on what rounding takes from delta.

    n convolutions by FFT are off by about n 2e-16. The deltas themselves are, too, and where z is small by 2e-16 q / z:
    they are differences of terms whose exponents are near 1 / 2 z^2.
    """
    return math.fsum(count * (2.0**-48 + 2.0**-51 * event.sampling_prob / event.z) for event, count in events.items())


def coarse(events: Counts) -> bool:
    """Return whether the grid is coarse beside the loss of one release, whose std is about q sqrt(e^(1/z^2) - 1)."""
    interval, _ = grid_of(events)
    return any(
        interval > _COARSE * event.sampling_prob * math.sqrt(math.expm1(min(event.z**-2, 700.0))) for event in events
    )


def delta_at(spent: Spent | Counts, epsilon: float, *, small: bool = False) -> float | None:
    """Return delta at an epsilon, by privacy loss distributions; None where they are refused.

    With `small`, a delta near the rounding errors, or on a coarse grid, is computed by a tilted FFT: that takes longer.
    What the noise's sampler adds is left to the caller.
    """
    found = _delta_at(events_of(spent), epsilon, small=small)
    return None if found is None else found + extra_delta_of(spent)


def _delta_at(events: Counts, epsilon: float, *, small: bool) -> float | None:
    if not events:
        return 0.0
    if all(event.sampling_prob == 1.0 for event in events):
        return math.exp(gaussian_log_delta(_multiplier(events), epsilon))
    if refusal(events) is not None:
        return None
    plain = float(composed(tuple(events.items())).get_delta_for_epsilon(epsilon)) + rounding(events)
    if not small or not (coarse(events) or rounding(events) > _ROUNDING_SHARE * plain):
        return plain
    tilted = tilted_delta(events, epsilon)
    return plain if tilted is None else min(plain, tilted)


def _multiplier(events: Counts) -> float:
    """Return the z of the single Gaussian that several Gaussians without sampling compose to."""
    return 1 / math.sqrt(math.fsum(count / event.z**2 for event, count in events.items()))


def grid_of(events: Counts) -> tuple[float, float]:
    """Return the spacing of the grid of privacy losses, and the number of points of the composed distribution."""
    below = math.fsum(-count * math.log1p(-event.sampling_prob) for event, count in events.items() if _sampled(event))
    extent = rdp_of(events, _TAIL).epsilon + min(below, rdp_of(events, _TAIL).epsilon)
    widest = max(1 / (2 * event.z**2) + 12 / event.z for event in events)
    finest = min(0.1 / event.z for event in events)  # a tenth of the Gaussian's own width
    interval = min(max(extent / _GRID, widest / (_GRID / 4)), finest)
    return interval, extent / interval


def _sampled(event: Event) -> bool:
    return event.sampling_prob < 1.0


@lru_cache(maxsize=4)
def composed(events: tuple[tuple[Event, int], ...]) -> Any:
    """Return the privacy loss distribution of all releases."""
    interval, _ = grid_of(dict(events))
    total = None
    for event, count in events:
        losses = symmetric if event.adjacency == REPLACE else sampled_gaussian
        all_of_it = losses(event.z, event.sampling_prob, interval).self_compose(count)
        total = all_of_it if total is None else total.compose(all_of_it)
    return total


def gaussian_epsilon(z: float, target_delta: float) -> float:
    """Return the exact epsilon of one Gaussian without sampling (Balle and Wang 2018), rounded up."""
    from scipy.optimize import brentq  # noqa: PLC0415 - slow to load

    def excess(epsilon: float) -> float:
        return gaussian_log_delta(z, epsilon) - math.log(target_delta)

    if excess(0.0) <= 0:
        return 0.0
    above = 1 / (2 * z**2) + 40 / z
    found = float(brentq(excess, 0.0, above, xtol=1e-12 * above)) * (1 + 1e-9)
    while excess(found) > 0:
        found += 1e-12 * above
    return found


def gaussian_log_delta(z: float, epsilon: float) -> float:
    """Return log delta of one Gaussian at epsilon: delta = Phi(1/2z - epsilon z) - e^epsilon Phi(-1/2z - epsilon z)."""
    from scipy.special import log_ndtr  # noqa: PLC0415 - slow to load

    first, second = (float(log_ndtr(sign / (2 * z) - epsilon * z)) for sign in (1, -1))
    ratio = min(epsilon + second - first, 0.0)
    return first + math.log(-math.expm1(ratio)) if ratio < 0 else -math.inf
