"""Masses of the privacy losses of one release on a grid, each of them with small *relative* error and pessimistic.

`loss_distributions.py` takes differences of deltas, which are exact to about 1e-16: good enough beside the rounding
errors of a plain FFT, but not for the tail of 1e-20 that decides a small delta. Here every mass is an integral of
positive terms, so that it is known to a relative error (`Masses.error`), however small it is.

With r(x) the density of the mixture (1-q) N(0, z^2) + q N(1, z^2) over that of the Gaussian N(0, z^2), the grid of
losses l_i = l_0 + i h cuts the line into cells x_i < x < x_(i+1) with r(x_i) = exp(l_i). The Gaussian's mass of a cell
is split between its two ends such that the masses of both distributions stay what they are:

    to the upper end, l_(i+1):  integral of N(x) (r(x) - r_i) / (r_(i+1) - r_i)
    to the lower end, l_i:      integral of N(x) (r_(i+1) - r(x)) / (r_(i+1) - r_i)

This is a mean-preserving spread of the ratio, and delta is a convex function of the ratio, whatever else is composed
with it: so delta can only grow ("connect the dots", Doroshenko et al. 2022). With g_i the Gaussian's mass at l_i:

    mixture against Gaussian (a user is removed)   mass exp(l_i) g_i at l_i
    Gaussian against mixture (a user is added)     mass g_i at -l_i
    the symmetric pair (samples of fixed size)     both, for l_i > 0 alone, and the rest of the mass at 0

What lies beyond the grid is moved up: to the next place of the grid, or to an infinite loss.

The grid starts where no difference cancels: at log(1-q), the smallest loss there is, or at 0 for the symmetric pair.
With s_i = (r_i - (1-q)) / r_i the integrands are s_i expm1(t / z^2) / expm1(h), t from the lower end of the cell, and
s_(i+1) expm1(-t / z^2) / expm1(-h), t from its upper end. Gauss-Legendre panels of 8 nodes integrate them; they are so
short that an analytic bound on their error (`_NODES`) is below 1e-14 of the integral.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Direction = Literal["remove", "add", "symmetric"]

UNIT = 2.0**-53  # the relative error of one rounding
MOST_PANELS = 4_000_000  # of a quadrature: some seconds

# With n nodes on a panel of length w, a = w |x| / z^2, c = w / z^2 and b = w^2 / 2 z^2, the integrand on the Bernstein
# ellipse of parameter p is at most exp(a R + b R^2) expm1(c R), R = 1/2 + (p + 1/p) / 4, and the integral at least
# exp(-a - b) expm1(c / 2). So the relative error is below 2.2 p^(-2n) exp(a (R+1) + b (R^2+1)) expm1(c R) / expm1(c/2)
# (Trefethen 2013, theorem 19.3). This is 2e-15 for n = 8, a, c <= 1/2, b <= 1/8 with p = 15, and for n = 4,
# a, c <= 1/100, b <= 5e-5 with p = 150. Panels that do not begin at the end of a cell have smaller quotients.
_NODES = ((8, 0.5, 0.5), (4, 0.01, 0.01))  # nodes, the largest a and c, the largest w / z
_QUADRATURE = 1e-14
_WIDEST = 50.0  # an interval that is so wide belongs to an epsilon that protects nobody
_FURTHEST = 36.0  # standard deviations: the Gaussian's density is 1e-282 there, and would soon be no number
_CHUNK = 1 << 15  # panels at a time


@dataclass(frozen=True)
class Masses:
    """exp(log_masses[k]) at the loss anchor + (first + k) * interval; `infinite` is the mass at an infinite loss.

    Every mass is at least (1 - error) times the one that is meant.
    """

    anchor: float
    first: int
    interval: float
    log_masses: Floats
    infinite: float
    error: float

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """The places of the masses, in intervals above the anchor."""
        return self.first + np.arange(len(self.log_masses))

    def between(self, low: float, high: float) -> "Masses":
        """Return the part with losses from `low` to below `high`, and the infinite one."""
        begin, end = self._place(low), self._place(high)
        return replace(self, first=self.first + begin, log_masses=self.log_masses[begin:end])

    def _place(self, loss: float) -> int:
        """Return how many of the masses lie below a loss, which may be infinite."""
        place = (loss - self.anchor) / self.interval - self.first
        return math.ceil(min(max(place, 0.0), float(len(self.log_masses))))


@dataclass(frozen=True)
class _Cells:
    """The Gaussian's masses at the places first, first + 1, ... of a grid; `low` and `high` are the ends in x."""

    start: float  # l_0
    first: int
    gaussian: Floats
    low: float
    high: float
    open_below: bool  # the first cell begins at `low`, above the x of its place


def reach(z: float, q: float, tail: float) -> tuple[float, float]:
    """Return between which x all lies but a share of `tail` of the Gaussian below and of the mixture above."""
    below, above = (math.sqrt(max(2 * math.log(share / tail), 1.0)) for share in (1.0, max(q, tail)))
    return -z * below, max(1 + z * above, z * below)


def losses_at(z: float, q: float, x: Floats) -> Floats:
    """Return the loss log r(x)."""
    without = (2 * x - 1) / (2 * z**2)
    return without if q == 1.0 else np.logaddexp(math.log1p(-q), math.log(q) + without)


def masses(z: float, q: float, direction: Direction, interval: float, tail: float) -> Masses | None:
    """Return the masses of one release; None where they are too many, or too small for float64.

    A mass of up to about `tail` counts as an infinite loss. Where z is small, the mixture lies where the Gaussian has
    no mass that float64 can hold; masses that became 0 there would be missing from delta.
    """
    cells = _cells(z, q, interval, tail, symmetric=direction == "symmetric")
    if cells is None:
        return None
    places = cells.first + np.arange(len(cells.gaussian))
    with np.errstate(divide="ignore"):
        added = np.log(cells.gaussian)
    losses = cells.start + interval * places
    removed = added + losses
    beyond_mixture = _above(z, q, cells.high)
    error = _error(z, q, cells, float(np.max(np.abs(losses))))
    if direction == "remove":
        _put(removed, 1 if cells.open_below else 0, _below(z, q, cells.low))
        return Masses(cells.start, cells.first, interval, removed, beyond_mixture, error)
    if direction == "add":
        _put(added, -1, _above(z, 0.0, cells.high))
        return Masses(-cells.start, -int(places[-1]), interval, added[::-1], _below(z, 0.0, cells.low), error)
    at_zero = (1 - q) * math.erf(1 / (z * math.sqrt(8)))
    _put(added, -1, _above(z, 0.0, cells.high))
    _put(removed, 0, at_zero + float(cells.gaussian[0]))
    both = np.concatenate([added[:0:-1], removed])
    return Masses(0.0, -int(places[-1]), interval, both, beyond_mixture, error)


def _put(log_masses: Floats, place: int, mass: float) -> None:
    """Add a mass at a place."""
    if mass > 0:
        log_masses[place] = np.logaddexp(log_masses[place], math.log(mass))


def _above(z: float, q: float, x: float) -> float:
    """Return the mass of the mixture above x, rounded up; of the Gaussian where q is 0."""
    from scipy.special import ndtr  # noqa: PLC0415 - slow to load

    return float(q * ndtr((1 - x) / z) + (1 - q) * ndtr(-x / z)) * (1 + 1e-10)


def _below(z: float, q: float, x: float) -> float:
    """Return the mass of the mixture below x, rounded up."""
    from scipy.special import ndtr  # noqa: PLC0415 - slow to load

    return float(q * ndtr((x - 1) / z) + (1 - q) * ndtr(x / z)) * (1 + 1e-10)


def _error(z: float, q: float, cells: _Cells, largest: float) -> float:
    """Return a bound on the relative error of a mass.

    The density at x has the error of its exponent x^2 / 2 z^2, and that of x, which is 1/2 + z^2 (l + log s - log q):
    a few roundings of each of its terms. Everything else is a few dozen roundings.
    """
    furthest = max(abs(cells.low), abs(cells.high))
    terms = 1 + largest + abs(math.log(q)) + 40
    return _QUADRATURE + UNIT * (200 + 8 * (furthest / z) ** 2 + 8 * furthest * terms)


def _cells(z: float, q: float, interval: float, tail: float, *, symmetric: bool) -> _Cells | None:
    low, high = reach(z, q, tail)
    start = 0.0 if symmetric or q == 1.0 else math.log1p(-q)
    if symmetric:
        low = 0.5
    bottom, top = ((float(losses_at(z, q, np.array([x]))[0]) - start) / interval for x in (low, high))
    if top - bottom > MOST_PANELS or interval > _WIDEST or max(abs(low), abs(high)) > _FURTHEST * z:
        return None
    first, last = math.floor(bottom), math.ceil(top) + 1
    if symmetric or q < 1.0:
        first = max(first, 0)
    places = np.arange(first, last + 1, dtype=np.float64)
    share, x = _edges(z, q, interval * places, symmetric=symmetric)
    if x[-1] > _FURTHEST * z:
        return None
    with np.errstate(divide="ignore"):
        widths = z**2 * np.log1p(math.expm1(interval) / share[:-1])
    open_below = share[0] == 0.0  # the lowest loss of all is reached at x = -infinity only
    if open_below:
        x[0] = min(low, float(x[1]) - z)
        widths[0] = x[1] - x[0]
    gaussian = _split(z, interval, x, widths, share, open_below=open_below)
    return None if gaussian is None else _Cells(start, first, gaussian, float(x[0]), float(x[-1]), open_below)


def _edges(z: float, q: float, above: Floats, *, symmetric: bool) -> tuple[Floats, Floats]:
    """Return s_i and x_i at the losses l_0 + `above`; without sampling s is 1."""
    if q == 1.0:
        return np.ones(len(above)), 0.5 + z**2 * above
    share = -np.expm1(-above)
    if symmetric:
        share = share + q * np.exp(-above)
    start = 0.0 if symmetric else math.log1p(-q)
    with np.errstate(divide="ignore"):
        return share, 0.5 + z**2 * (above + np.log(share) + start - math.log(q))


@cache
def legendre(nodes: int) -> tuple[Floats, Floats]:
    """Return nodes between 0 and 1, and their weights."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return (places + 1) / 2, weights / 2


def _split(z: float, interval: float, x: Floats, widths: Floats, share: Floats, *, open_below: bool) -> Floats | None:
    """Return the Gaussian's mass of every cell, split between the two ends of the cell."""
    furthest = np.maximum(np.abs(x[:-1]), np.abs(x[1:]))
    steep = widths * np.maximum(furthest, 1.0) / z**2
    nodes, steepest, widest = next(
        kind for kind in reversed(_NODES) if kind is _NODES[0] or _fits(steep, widths / z, kind[1:])
    )
    panels = np.maximum(np.ceil(np.maximum(steep / steepest, widths / z / widest)), 1).astype(np.int64)
    if panels.sum() > MOST_PANELS:
        return None
    t, weights = legendre(nodes)
    gaussian = np.zeros(len(x))
    cell = np.repeat(np.arange(len(widths)), panels)
    number = np.arange(len(cell)) - np.repeat(np.cumsum(panels) - panels, panels)
    for begin in range(0, len(cell), _CHUNK):
        here, count = cell[begin : begin + _CHUNK], panels[cell[begin : begin + _CHUNK]]
        passed = (number[begin : begin + _CHUNK, None] + t) / count[:, None]
        left = (count[:, None] - number[begin : begin + _CHUNK, None] - t) / count[:, None]
        wide = widths[here][:, None]
        density = np.exp(-0.5 * ((x[here][:, None] + passed * wide) / z) ** 2) / (z * math.sqrt(2 * math.pi))
        density *= weights * (wide / count[:, None])
        with np.errstate(over="ignore", invalid="ignore"):  # in an open cell, which has another formula
            up = share[here][:, None] * np.expm1(passed * wide / z**2) / math.expm1(interval)
        if open_below and here[0] == 0:
            up[here == 0] = np.exp(-(left * wide)[here == 0] / z**2)
        down = share[here + 1][:, None] * np.expm1(-left * wide / z**2) / math.expm1(-interval)
        ends = gaussian[here[0] : here[-1] + 2]
        ends[1:] += np.bincount(here - here[0], (density * up).sum(axis=1))
        ends[:-1] += np.bincount(here - here[0], (density * down).sum(axis=1))
    return gaussian


def _fits(steep: Floats, wide: Floats, limits: tuple[float, float]) -> bool:
    return bool(steep.max() <= limits[0] and wide.max() <= limits[1])
