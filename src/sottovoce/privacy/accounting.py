"""Epsilon of a number of releases, computed twice: by Renyi DP (RDP) and, tightly, by privacy loss distributions (PLD).

A release is an `Event`: a Gaussian of noise multiplier z on a sample of users, each in it with probability q.
- Poisson samples, adding or removing one user: the pairs of distributions are the mixture (1-q) N(0, z^2) + q N(1, z^2)
  and N(0, z^2), in both directions.
- Samples of fixed size, replacing one user by another (the sensitivity doubles, so z is halved): the dominating pair is
  symmetric (Dong, Roth and Su 2019, theorem 4.2). Its losses above 0 are those of the mixture against the Gaussian, its
  losses below 0 those of the Gaussian against the mixture, and the rest of its mass lies at 0. Composed, it costs more
  than either direction alone.
Events of several runs add up.

Guarantees: every epsilon is an upper bound, in floating point too. An epsilon that cannot be computed is refused.
- `rdp`: the moments are those of opacus, which agree with 40-digit quadrature; for samples of fixed size we integrate
  ourselves. A bound on the rounding error near order 1 is added. Orders go down to 1 + 1e-10: at z = 0.001 the best
  order is near 1 + 1e-6. The conversion to (epsilon, delta) is the improved one (Balle et al. 2020).
- `pld`: the distributions are dp-accounting's (`loss_distributions.py`), pessimistic on any grid. A bound on the
  rounding error of their convolutions is subtracted from delta. The grid follows from the range that RDP predicts, so
  that time and memory stay bounded.
"""

import importlib.util
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.loss_distributions import sampled_gaussian, symmetric

Floats = npt.NDArray[np.float64]
Adjacency = Literal["add or remove one user", "replace one user by another"]
ADD_OR_REMOVE: Adjacency = "add or remove one user"
REPLACE: Adjacency = "replace one user by another"

# The grid that the paper's tables were made with.
PAPER_ORDERS: tuple[float, ...] = (1.1, 1.3, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 25)
ORDERS: tuple[float, ...] = tuple(
    np.unique(
        np.concatenate([1 + np.logspace(-10, -2, 81), 1 + np.logspace(-2, 0, 61), np.arange(20, 160) / 10,
                        np.arange(32, 128) / 2, np.round(np.logspace(6, 12, 49, base=2)), PAPER_ORDERS])
    ).tolist()
)  # fmt: skip
_STRIDES = (64, 16, 4)  # between the orders that are tried first

_TAIL = 1e-15  # the mass that the grid of a privacy loss distribution may leave out; it is added to delta
_GRID = 400_000  # the intended number of points of a composed distribution
_MOST_PANELS = 20_000  # of a quadrature
_LARGEST_GRID = 8_000_000  # the largest number that is still computed: half a minute, a gigabyte


@dataclass(frozen=True)
class Event:
    """One release, as accounting sees it."""

    z: float
    sampling_prob: float
    adjacency: Adjacency = ADD_OR_REMOVE

    def __post_init__(self) -> None:
        """Refuse what has no guarantee."""
        if not (math.isfinite(self.z) and self.z > 0 and 0 < self.sampling_prob <= 1):
            raise PrivacyError(f"Expected z={self.z:g} > 0 and sampling_prob={self.sampling_prob:g} in (0, 1].")


Counts = Mapping[Event, int]  # how often each event happened


@dataclass(frozen=True)
class Spent:
    """What several releases amount to: how often each event happened, and what the noise's sampler adds to epsilon.

    `extra` is 2 a where the probabilities of the noise are within a factor of e^a of the Gaussian's: (epsilon, delta)
    then becomes (epsilon + 2 a, e^a delta). Spent amounts of several runs on one population add up.
    """

    events: Counts
    extra: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        """Return both together."""
        events = Counter(self.events)
        events.update(other.events)
        return Spent(dict(events), self.extra + other.extra)

    @property
    def adjacency(self) -> Adjacency | None:
        """What the epsilon protects against; None where nothing was released."""
        return next((event.adjacency for event in self.events), None)


def _events(spent: Spent | Counts) -> dict[Event, int]:
    """Return the events that happened; they must protect against one and the same change."""
    counts = spent.events if isinstance(spent, Spent) else spent
    if len({event.adjacency for event in counts}) > 1:
        raise PrivacyError("Runs with Poisson cohorts and runs with cohorts of fixed size do not compose.")
    return {event: count for event, count in counts.items() if count}


def _extra(spent: Spent | Counts) -> float:
    return spent.extra if isinstance(spent, Spent) else 0.0


@dataclass(frozen=True)
class Rdp:
    """Epsilon by Renyi differential privacy, and the order that gives it; no order where nothing was released."""

    epsilon: float
    order: float | None


@dataclass(frozen=True)
class Pld:
    """Epsilon by privacy loss distributions, or why there is none."""

    epsilon: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Accounted:
    """Epsilon by both accountants."""

    rdp: Rdp
    pld: Pld

    @property
    def epsilons(self) -> Epsilons:
        """The two numbers alone."""
        return Epsilons(self.rdp.epsilon, self.pld.epsilon)


def account_for(spent: Spent | Counts, target_delta: float) -> Accounted:
    """Return epsilon at the target delta, by RDP and by PLD."""
    return Accounted(rdp(spent, target_delta), pld(spent, target_delta))


def rdp(spent: Spent | Counts, target_delta: float, orders: tuple[float, ...] = ORDERS) -> Rdp:
    """Return epsilon at the target delta, by moments at the orders, which ascend; 0 where nothing was released.

    Example: `rdp({Event(z=1.0, sampling_prob=0.01): 1000}, target_delta=1e-9).epsilon`
    """
    extra = _extra(spent)
    found = _rdp(_events(spent), _reduced_delta(extra, target_delta), orders)
    return replace(found, epsilon=found.epsilon + extra)


def _rdp(events: Counts, target_delta: float, orders: tuple[float, ...] = ORDERS) -> Rdp:
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
    if q == 1.0:
        return grid / (2 * z**2) * (1 + 2.0**-50)
    if event.adjacency == REPLACE:
        return np.array([_symmetric_moment(z, q, order) for order in orders])
    with np.errstate(all="ignore"):
        found = np.asarray(_opacus_rdp().compute_rdp(q=q, noise_multiplier=z, steps=1, orders=orders), dtype=np.float64)
    found = np.where(np.isfinite(found) & (found >= 0), found, np.inf)  # to leave out an order is safe
    # A moment is a logarithm near 0, divided by order - 1: its rounding error grows toward order 1, and with its
    # terms. opacus also leaves out terms below 1e-13.
    rounding = 2.0**-42 * (1 + grid**2 / (2 * z**2)) / (grid - 1)
    return np.asarray(found * (1 + 1e-9) + rounding)


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


def pld(spent: Spent | Counts, target_delta: float) -> Pld:
    """Return the tight epsilon at the target delta; refused, with a reason, where the grid would be too large."""
    extra = _extra(spent)
    found = _pld(_events(spent), _reduced_delta(extra, target_delta))
    return replace(found, epsilon=None if found.epsilon is None else found.epsilon + extra)


def _pld(events: Counts, target_delta: float) -> Pld:
    if not events:
        return Pld(0.0)
    if all(event.sampling_prob == 1.0 for event in events):
        return Pld(gaussian_epsilon(_multiplier(events), target_delta))
    if (reason := refusal(events)) is not None:
        return Pld(None, reason)
    rounding = _rounding(events)
    if target_delta < 2 * rounding:
        return Pld(None, f"delta {target_delta:g} is not above the rounding errors of its convolutions")
    epsilon = float(_composed(tuple(events.items())).get_epsilon_for_delta(target_delta - rounding))
    if not math.isfinite(epsilon) or epsilon < 0:
        return Pld(None, f"the distribution does not reach delta {target_delta:g}")
    # Both are upper bounds. On a coarse grid RDP may be the smaller one.
    return Pld(min(epsilon, _rdp(events, target_delta).epsilon))


def _reduced_delta(extra: float, target_delta: float) -> float:
    """Return the delta to account for, such that the noise's sampler brings it up to the target."""
    require_delta(target_delta)
    if extra > 0.2:
        raise PrivacyError(f"The grid of the noise is too coarse: it adds {extra:g} to epsilon. Use more noise.")
    return target_delta * math.exp(-extra / 2) if extra else target_delta


def refusal(events: Counts) -> str | None:
    """Return why a privacy loss distribution is not computed; None where it is."""
    _, points = grid_of(events)
    if points > _LARGEST_GRID:
        return f"its grid would have {points:.1e} points, more than {_LARGEST_GRID:.0e}"
    return None


def _rounding(events: Counts) -> float:
    """Return an upper bound on what rounding takes from delta.

    n convolutions by FFT are off by about n 2e-16. The deltas themselves are, too, and where z is small by 2e-16 q / z:
    they are differences of terms whose exponents are near 1 / 2 z^2.
    """
    return math.fsum(count * (2.0**-48 + 2.0**-51 * event.sampling_prob / event.z) for event, count in events.items())


def delta_at(spent: Spent | Counts, epsilon: float) -> float | None:
    """Return delta at an epsilon, by privacy loss distributions; None where they are refused."""
    events = _events(spent)
    if not events:
        return 0.0
    if all(event.sampling_prob == 1.0 for event in events):
        return math.exp(gaussian_log_delta(_multiplier(events), epsilon))
    if refusal(events) is not None:
        return None
    return float(_composed(tuple(events.items())).get_delta_for_epsilon(epsilon)) + _rounding(events)


def _multiplier(events: Counts) -> float:
    """Return the z of the single Gaussian that several Gaussians without sampling compose to."""
    return 1 / math.sqrt(math.fsum(count / event.z**2 for event, count in events.items()))


def grid_of(events: Counts) -> tuple[float, float]:
    """Return the spacing of the grid of privacy losses, and the number of points of the composed distribution."""
    below = math.fsum(-count * math.log1p(-event.sampling_prob) for event, count in events.items() if _sampled(event))
    extent = _rdp(events, _TAIL).epsilon + min(below, _rdp(events, _TAIL).epsilon)
    widest = max(1 / (2 * event.z**2) + 12 / event.z for event in events)
    finest = min(0.1 / event.z for event in events)  # a tenth of the Gaussian's own width
    interval = min(max(extent / _GRID, widest / (_GRID / 4)), finest)
    return interval, extent / interval


def _sampled(event: Event) -> bool:
    return event.sampling_prob < 1.0


@lru_cache(maxsize=4)
def _composed(events: tuple[tuple[Event, int], ...]) -> Any:
    """Return the privacy loss distribution of all releases."""
    interval, _ = grid_of(dict(events))
    composed = None
    for event, count in events:
        losses = symmetric if event.adjacency == REPLACE else sampled_gaussian
        all_of_it = losses(event.z, event.sampling_prob, interval).self_compose(count)
        composed = all_of_it if composed is None else composed.compose(all_of_it)
    return composed


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


def require_delta(target_delta: float) -> None:
    """Raise ConfigError where a delta is not between 0 and 1."""
    if not 0 < target_delta < 1:
        raise ConfigError(f"Expected 0 < target_delta={target_delta:g} < 1.")


def delta_caution(target_delta: float, population: int) -> str | None:
    """Return one line where delta is not below 1/K, and None where it is."""
    if target_delta * population < 1:
        return None
    return (
        f"delta {target_delta:g} is not below 1/K = {1 / population:g}: publishing all audio of one random user would "
        "meet it with epsilon 0. Choose a smaller delta."
    )


def rounded_up(epsilon: float, digits: int = 3) -> str:
    """Return an epsilon as people read it, never smaller than it is."""
    if epsilon == 0 or not math.isfinite(epsilon):
        return f"{epsilon:g}"
    exponent = math.floor(math.log10(abs(epsilon))) - digits + 1
    # 6.29 is a little more than 6.29 in binary, which is not worth another hundredth.
    scaled = Decimal(epsilon * (1 - 1e-12)).scaleb(-exponent).to_integral_value(ROUND_CEILING)
    return f"{float(scaled.scaleb(exponent)):.{digits}g}"


def short_exponents(text: str) -> str:
    """Return a text with the exponents of its numbers as people write them: 3e-6 for 3e-06, 2.67e5 for 2.67e+05."""
    return re.sub(r"(?<=\d)e([+-])0*(?=\d)", lambda found: "e-" if found[1] == "-" else "e", text)


def short_number(value: float, digits: int = 6) -> str:
    """Return a number with this many significant digits and a short exponent: 0.00123, 12.3, 3e-6."""
    return short_exponents(f"{value:.{digits}g}")
