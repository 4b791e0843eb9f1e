"""Privacy loss distributions of one sampled Gaussian, on a grid.

dp-accounting turns delta at every point of a grid into a distribution that is pessimistic (`connect the dots`), and
composes it. It computes the deltas one by one, a second or more for 100,000 points; here they are computed at once.

With r(x) = 1 - q + q exp((2 x - 1) / 2 z^2), the density of the mixture (1-q) N(0, z^2) + q N(1, z^2) over that of the
Gaussian N(0, z^2), a loss of epsilon is reached where r(x) = e^epsilon, at x = c(epsilon), and

    mixture against Gaussian   delta = q P[x > c - 1] + (1 - q) P[x > c] - e^epsilon P[x > c],  c = c(epsilon)
    Gaussian against mixture   delta = P[x < c] - e^epsilon ((1 - q) P[x < c] + q P[x < c - 1]),  c = c(-epsilon)

with x from the Gaussian.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def sampled_gaussian(z: float, q: float, interval: float) -> Any:
    """Return the distribution of a Gaussian on a Poisson sample, for adding and for removing one user."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution  # noqa: PLC0415 - slow to load

    either = []
    for removed in (True, False) if q < 1 else (True,):
        low, high = _bounds(z, q, removed=removed)
        first, last = math.floor(low / interval), math.ceil(high / interval)
        deltas = _deltas(z, q, interval * np.arange(first, last + 1, dtype=np.float64), removed=removed)
        either.append(pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas))
    return privacy_loss_distribution.PrivacyLossDistribution(*either)


def symmetric(z: float, q: float, interval: float) -> Any:
    """Return the distribution of the symmetric pair, for samples of fixed size.

    Below 0 it follows from its own symmetry: delta(-e) = 1 - exp(-e) + exp(-e) delta(e).
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution  # noqa: PLC0415 - slow to load

    places = np.arange(math.ceil(_bounds(z, q, removed=True)[1] / interval) + 1)
    deltas = _deltas(z, q, interval * places.astype(np.float64), removed=True)
    below = places[:0:-1] * interval
    mirrored = -np.expm1(-below) + np.exp(-below) * deltas[:0:-1]
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots(
            interval, np.concatenate([-places[:0:-1], places]), np.concatenate([mirrored, deltas])
        )
    )


def _bounds(z: float, q: float, *, removed: bool) -> tuple[float, float]:
    """Return the smallest and largest loss; what is above has a probability of e^-50 and counts as infinite."""
    from dp_accounting.pld.privacy_loss_mechanism import (  # noqa: PLC0415 - slow to load
        AdjacencyType,
        GaussianPrivacyLoss,
    )

    adjacency = AdjacencyType.REMOVE if removed else AdjacencyType.ADD
    bounds = GaussianPrivacyLoss(z, sampling_prob=q, adjacency_type=adjacency).connect_dots_bounds()
    return float(bounds.epsilon_lower), float(bounds.epsilon_upper)


def _deltas(z: float, q: float, epsilons: Floats, *, removed: bool) -> Floats:
    """Return delta at every epsilon of an increasing grid; rounding errors never make a later one larger."""
    from scipy.special import log_ndtr, ndtr  # noqa: PLC0415 - slow to load

    losses = epsilons if removed else -epsilons
    least = math.log1p(-q) if q < 1 else -math.inf
    reached = losses > least  # the mixture's density is nowhere smaller than 1 - q of the Gaussian's
    # A loss l with sampling is one of log(1 + (e^l - 1) / q) without.
    c = 0.5 + z**2 * (losses[reached] - math.log(q) + np.log(-np.expm1(least - losses[reached])))
    deltas = -np.expm1(np.minimum(epsilons, 0.0)) if removed else np.zeros(len(epsilons))
    if removed:
        upper = q * ndtr((1 - c) / z) + (1 - q) * ndtr(-c / z)
        deltas[reached] = upper - np.exp(epsilons[reached] + log_ndtr(-c / z))
    else:
        lower = np.logaddexp(least + log_ndtr(c / z), math.log(q) + log_ndtr((c - 1) / z))
        deltas[reached] = ndtr(c / z) - np.exp(epsilons[reached] + lower)
    return np.maximum.accumulate(np.clip(deltas, 0, 1)[::-1])[::-1]
