"""Epsilon by Renyi differential privacy (RDP): moments of the loss at many orders, converted to (epsilon, delta).

Guarantees: every epsilon is an upper bound, in floating point too. The moments are those of opacus, which agree with
40-digit quadrature; for samples of fixed size we integrate ourselves. A bound on the rounding error near order 1 is
added. Orders go down to 1 + 1e-10: at z = 0.001 the best order is near 1 + 1e-6. The conversion is the improved one
(Balle et al. 2020). No moment is above that of the Gaussian without sampling, order / 2 z^2, which also stands in for
integrals that would take too long: epsilon is finite however small z is.
"""

import importlib.util
import math
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sottovoce.errors import PrivacyError
from sottovoce.privacy.events import REPLACE, Counts, Event, Spent, events_of, extra_of, reduced_delta

Floats = npt.NDArray[np.float64]

# The grid that the paper's tables were made with.
PAPER_ORDERS: tuple[float, ...] = (1.1, 1.3, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 25)
ORDERS: tuple[float, ...] = tuple(
    np.unique(
        np.concatenate([1 + np.logspace(-10, -2, 81), 1 + np.logspace(-2, 0, 61), np.arange(20, 160) / 10,
                        np.arange(32, 128) / 2, np.round(np.logspace(6, 12, 49, base=2)), PAPER_ORDERS])
    ).tolist()
)  # fmt: skip
_STRIDES = (64, 16, 4)  # between the orders that are tried first

_MOST_PANELS = 20_000  # of a quadrature


@dataclass(frozen=True)
class Rdp:
    """Epsilon by Renyi differential privacy, and the order that gives it; no order where nothing was released."""

    epsilon: float
    order: float | None


def rdp(spent: Spent | Counts, target_delta: float, orders: tuple[float, ...] = ORDERS) -> Rdp:
    """Return epsilon at the target delta, by moments at the orders, which ascend; 0 where nothing was released.

    Example: `rdp({Event(z=1.0, sampling_prob=0.01): 1000}, target_delta=1e-9).epsilon`
    """
    extra = extra_of(spent)
    found = rdp_of(events_of(spent), reduced_delta(extra, target_delta), orders)
    return replace(found, epsilon=found.epsilon + extra)


def rdp_of(events: Counts, target_delta: float, orders: tuple[float, ...] = ORDERS) -> Rdp:
    """Return epsilon of events at a delta; nothing is added for the noise's sampler."""
    if not events:
        return Rdp(0.0, None)
    for stride in _STRIDES:
        orders = _near_the_best(events, target_delta, orders, stride)
    epsilons = _epsilons(events, target_delta, orders)
    best = int(np.argmin(epsilons))
    if not math.isfinite(epsilons[best]):
        raise PrivacyError("The moments of this mechanism cannot be computed. Use another sigma_dp.")
    return Rdp(max(float(epsilons[best]), 0.0), orders[best])


def _near_the_best(events: Counts, target_delta: float, orders: tuple[float, ...], stride: int) -> tuple[float, ...]:
    """Return the orders around the best one: those between the neighbours of the best among every stride-th.

    (order - 1) * epsilon is convex in the order, because (order - 1) * moment is. So epsilon falls, then rises.
    """
    epsilons = _epsilons(events, target_delta, orders[::stride])
    places = [place * stride for place in np.flatnonzero(np.isfinite(epsilons)).tolist()]
    if not places:
        return orders
    best = places.index(int(np.argmin(epsilons)) * stride)
    first = places[best - 1] if best > 0 else 0
    last = places[best + 1] if best + 1 < len(places) else len(orders) - 1
    return orders[first : last + 1]


def _epsilons(events: Counts, target_delta: float, orders: tuple[float, ...]) -> Floats:
    """Return the epsilon that each order gives; inf where it cannot be computed."""
    grid = np.array(orders)
    total = sum((count * moments(event, orders) for event, count in events.items()), np.zeros(len(grid)))
    return np.asarray(total + np.log1p(-1 / grid) - (math.log(target_delta) + np.log(grid)) / (grid - 1))


def moments(event: Event, orders: tuple[float, ...] = ORDERS) -> Floats:
    """Return upper bounds on the RDP of one release at every order; inf where one cannot be computed."""
    known = _known_moments(event)
    if missing := [order for order in orders if order not in known]:
        known.update(zip(missing, _moments(event, missing).tolist(), strict=True))
    return np.array([known[order] for order in orders])


@lru_cache(maxsize=256)
def _known_moments(_event: Event) -> dict[float, float]:
    """Return the moments of an event that were computed before, by order."""
    return {}


def _moments(event: Event, orders: list[float]) -> Floats:
    z, q, grid = event.z, event.sampling_prob, np.array(orders)
    # Sampling never costs anything: the mixture's trade-off curve lies above the Gaussian's, and so does the convex
    # hull of the curves of both directions, which is that of the symmetric pair.
    unsampled = np.asarray(grid / (2 * z**2) * (1 + 2.0**-50))
    if q == 1.0:
        return unsampled
    if event.adjacency == REPLACE:
        return np.minimum([_symmetric_moment(z, q, order) for order in orders], unsampled)
    with np.errstate(all="ignore"):
        found = np.array([_opacus_moment(z, q, order) for order in orders], dtype=np.float64)
    # A moment is a logarithm near 0, divided by order - 1: its rounding error grows toward order 1, and with its
    # terms. opacus also leaves out terms below 1e-13. So a moment that is nearly 0 may come out below 0.
    rounding = 2.0**-42 * (1 + grid**2 / (2 * z**2)) / (grid - 1)
    found = np.where(np.isfinite(found) & (found >= -rounding), found, np.inf)  # to leave out an order is safe
    bound = np.maximum(found, 0.0) * (1 + 1e-9) + rounding
    return np.where(np.isfinite(found), np.minimum(bound, unsampled), np.inf)


def _opacus_moment(z: float, q: float, order: float) -> float:
    """Return a moment by opacus; inf where its alternating series loses so many digits that it gives up."""
    try:
        return float(_opacus_rdp().compute_rdp(q=q, noise_multiplier=z, steps=1, orders=[order])[0])
    except ValueError:
        return math.inf


@cache
def _opacus_rdp() -> Any:
    """Return opacus' module `accountants.analysis.rdp`, loaded on its own.

    It needs only numpy and scipy. Importing it the usual way runs all of opacus, which takes seconds and loads torch.
    """
    package = importlib.util.find_spec("opacus")
    if package is None or not package.submodule_search_locations:
        raise PrivacyError("opacus is not installed. Install sottovoce with its dependencies.")
    file = Path(package.submodule_search_locations[0]) / "accountants" / "analysis" / "rdp.py"
    spec = importlib.util.spec_from_file_location("sottovoce_opacus_rdp", file)
    if spec is None or spec.loader is None:
        raise PrivacyError(f"opacus has no {file}. Install the version in constraints.txt.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _symmetric_moment(z: float, q: float, order: float) -> float:
    """Return the RDP of the symmetric pair at one order, by Gauss-Legendre quadrature; inf where it would be too long.

    With r the mixture's density over the Gaussian's, at least 1 right of 1/2, the moment less 1 is the integral of
    N(x) * ((r^order - 1) + r (r^-order - 1)) over x > 1/2. What rounding can hide near order 1 is added.
    """
    panels = math.ceil((order + 40 * z) / z)
    if panels > _MOST_PANELS:
        return math.inf
    nodes, weights = np.polynomial.legendre.leggauss(24)
    edges = np.linspace(0.5, 0.5 + order + 40 * z, panels + 1)
    half = (edges[1:] - edges[:-1])[:, None] / 2
    x = edges[:-1, None] + half * (nodes + 1)
    log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z**2))
    log_normal = -(x**2) / (2 * z**2) - math.log(z * math.sqrt(2 * math.pi))
    powers = log_normal + order * log_ratio
    largest = float(powers.max())
    if largest > 40:  # everything else is below 1
        whole = math.log(float(np.sum(half * weights * np.exp(powers - largest)))) + largest
        return float(np.logaddexp(whole, 0.0)) / (order - 1) * (1 + 1e-9)
    near = np.minimum(log_ratio, 1 / order)
    low = np.exp(log_normal) * (np.expm1(order * near) + np.exp(near) * np.expm1(-order * near))
    high = (
        np.exp(powers)
        - np.exp(log_normal)
        + np.exp(powers + (1 - 2 * order) * log_ratio)
        - np.exp(log_normal + log_ratio)
    )
    excess = float(np.sum(half * weights * np.where(near < 1 / order, low, high)))
    return (math.log1p(excess) * (1 + 1e-9) + 2.0**-42) / (order - 1)
