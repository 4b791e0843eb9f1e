"""The trade-off curve that a ledger claims, and of the same mechanism with more or less noise.

`exceeds_curve` refutes a curve. With the noise as the only thing that varies, the curves are ordered: what refutes one
refutes all with more noise. The least noise that is refuted gives a lower bound on epsilon.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from sottovoce.auditing.one_run import Floor, curve_floor, gaussian_floor
from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import Event, Spent, delta_at, pld

_SMALLEST_DELTA = 1e-9  # of the pairs that stand for a curve
_PAIRS = 24
_LEAST_NOISE, _MOST_NOISE = 2.0**-4, 2.0**4  # factors that are tried
_PRECISION = 0.03


def with_noise(spent: Spent, factor: float) -> Spent:
    """Return what the same releases would cost with this many times the noise."""
    return replace(spent, events={replace(event, z=event.z * factor): count for event, count in spent.events.items()})


def epsilon_of(spent: Spent, target_delta: float) -> float:
    """Return the tight epsilon of some releases."""
    found = pld(spent, target_delta)
    if found.epsilon is None:
        raise PrivacyError(f"The claim cannot be computed tightly: {found.reason}. Audit with more noise.")
    return found.epsilon


def floor_of(spent: Spent) -> Floor:
    """Return the trade-off curve of some releases."""
    return _floor(tuple(spent.events.items()), spent.extra, spent.extra_delta)


@lru_cache(maxsize=64)
def _floor(events: tuple[tuple[Event, int], ...], extra: float, extra_delta: float) -> Floor:
    spent = Spent(dict(events), extra, extra_delta)
    if all(event.sampling_prob == 1.0 for event in spent.events) and not extra and not extra_delta:
        return gaussian_floor(math.sqrt(math.fsum(count / event.z**2 for event, count in spent.events.items())))
    most = epsilon_of(Spent(spent.events, extra), _SMALLEST_DELTA)
    epsilons = np.concatenate([[0.0], most * np.geomspace(0.01, 1.0, _PAIRS)])
    # The sampler's share turns (epsilon, delta) into (epsilon + extra, e^(extra / 2) delta).
    deltas = [delta_at(spent, epsilon) for epsilon in epsilons.tolist()]
    widened = np.array([1.0 if delta is None else delta for delta in deltas]) * math.exp(extra / 2)
    return curve_floor(epsilons + extra, np.minimum(widened, 1.0))


def refuted_noise(spent: Spent, refuted: Callable[[Floor], bool]) -> float | None:
    """Return a factor of the noise whose curve is refuted: the least there is, to 3 %, or 1/16 where that is too.

    None where not even 16 times the noise is refuted: then the guesses are no better than chance.
    """

    def at(factor: float) -> bool:
        return refuted(floor_of(with_noise(spent, factor)))

    low = high = 1.0  # not refuted, refuted
    if at(1.0):
        while low == high:
            low, high = (low / 2, low / 2) if low > _LEAST_NOISE and at(low / 2) else (low / 2, high)
            if high <= _LEAST_NOISE:
                return high
    else:
        while low == high:
            if high >= _MOST_NOISE:
                return None
            low, high = (low, 2 * high) if at(2 * high) else (2 * high, 2 * high)
    while high / low > 1 + _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if at(middle) else (middle, high)
    return high
