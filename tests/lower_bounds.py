"""Rigorous lower bounds on delta, by another route than the accountants: post-processing, and exact integers.

- Cells instead of points: what a release shows is reduced to the cell of a partition that it falls into. That is
  post-processing, so delta can only fall. The cells are chosen such that the loss of each cell is just above a place of
  a uniform grid, to which it is then rounded down.
- The masses of the cells have 60 digits and are rounded down to multiples of 2^-BITS. They are composed as polynomials
  with integer coefficients, rounded down after every product. No floating point, no FFT, nothing circular; masses
  outside a window are dropped.
"""

import math
from dataclasses import dataclass
from functools import cache

import mpmath
import numpy as np
from scipy.optimize import brentq

BITS = 192


@dataclass(frozen=True)
class Lattice:
    """Masses in units of 2^-BITS at the losses anchor + (first + k) * interval."""

    anchor: mpmath.mpf
    first: int
    masses: list


def multiply(one: list, other: list) -> list:
    """Return the product of two polynomials with integer coefficients, as one product of two large integers."""
    slot = (2 * BITS + max(len(one), len(other)).bit_length() + 8) // 8

    def packed(values):
        return int.from_bytes(b"".join(value.to_bytes(slot, "little") for value in values), "little")

    size = len(one) + len(other) - 1
    data = (packed(one) * packed(other)).to_bytes((size + 2) * slot, "little")
    return [int.from_bytes(data[slot * k : slot * (k + 1)], "little") for k in range(size)]


def product(one: Lattice, other: Lattice, low: float, high: float, interval: float) -> Lattice:
    """Return the composition of two, between two losses."""
    anchor, first = one.anchor + other.anchor, one.first + other.first
    masses = multiply(one.masses, other.masses)
    start = max(math.floor((low - float(anchor)) / interval) - first, 0)
    stop = max(math.ceil((high - float(anchor)) / interval) - first, start + 1)
    return Lattice(anchor, first + start, [mass >> BITS for mass in masses[start:stop]])


def power(base: Lattice, count: int, spread: float, high: float, interval: float) -> Lattice:
    """Return `count` releases; dropped are losses `spread` below the mean of the bulk, and above `high`."""
    mean = float(base.anchor) + interval * sum((base.first + k) * mass for k, mass in enumerate(base.masses)) / 2**BITS
    result, taken, releases = None, 0, 1
    while True:
        if count & 1:
            taken += releases
            low = mean * taken - spread
            result = base if result is None else product(result, base, low, high, interval)
        count >>= 1
        if not count:
            return result
        releases *= 2
        base = product(base, base, mean * releases - spread, high, interval)


def delta_below(composed: Lattice, epsilon: float, interval: float) -> float:
    """Return a lower bound on delta."""
    with mpmath.workdps(60):
        total = mpmath.mpf(0)
        for place, mass in enumerate(composed.masses):
            above = composed.anchor + mpmath.mpf(interval) * (composed.first + place) - mpmath.mpf(epsilon)
            if above > 0 and mass:
                total += mass * -mpmath.expm1(-above)
        return float(total / mpmath.mpf(2) ** BITS)


def lower_delta(z, q, count, direction, epsilon, *, interval, spread, high, reach=13.0) -> float:
    """Return a lower bound on delta of `count` releases at an epsilon.

    `spread` is how far below the mean composed losses are kept, `high` the largest loss that is kept.
    """
    base = lattice(z, q, direction, interval, min(reach, _reach_of(z, q, high)))
    return delta_below(power(base, count, spread, high, interval), epsilon, interval)


def _reach_of(z: float, q: float, loss: float) -> float:
    """Return where a loss is reached, in standard deviations above 1."""
    return max((math.log(math.expm1(loss) / q + 1) * z * z - 0.5) / z, 1.0)


@cache
def lattice(z: float, q: float, direction: str, interval: float, reach: float) -> Lattice:
    """Return the masses of one release at losses rounded down."""
    if direction == "symmetric":
        return _symmetric(z, q, interval, reach)
    removed = direction == "remove"
    with mpmath.workdps(60):
        start = mpmath.log(1 - mpmath.mpf(q))
        cells = _cells(z, q, interval, reach, -reach * z, float(start), above=removed)
        placed: dict[int, int] = {}
        for low, high in cells:
            mixture, gaussian = _masses(z, q, low, high)
            place = (
                _place(mixture, gaussian, start, interval) if removed else _place(gaussian, mixture, -start, interval)
            )
            _add(placed, place, mixture if removed else gaussian)
        return _lattice(start if removed else -start, placed)


def _symmetric(z: float, q: float, interval: float, reach: float) -> Lattice:
    with mpmath.workdps(60):
        zero, placed = mpmath.mpf(0), {}
        for removed in (True, False):
            for low, high in _cells(z, q, interval, reach, 0.5, 0.0, above=removed):
                mixture, gaussian = _masses(z, q, low, high)
                pair = (mixture, gaussian) if removed else (gaussian, mixture)
                _add(placed, _place(*pair, zero, interval), pair[0])
        _add(placed, 0, (1 - mpmath.mpf(q)) * mpmath.erf(1 / (mpmath.mpf(z) * mpmath.sqrt(8))))
        return _lattice(zero, placed)


def _lattice(anchor, placed: dict) -> Lattice:
    first, last = min(placed), max(placed)
    return Lattice(anchor, first, [placed.get(place, 0) for place in range(first, last + 1)])


def _add(placed: dict, place: int, mass) -> None:
    placed[place] = placed.get(place, 0) + int(mpmath.floor(mass * mpmath.mpf(2) ** BITS))


def _place(over, under, anchor, interval: float) -> int:
    """Return the place of the loss log(over / under), rounded down."""
    return int(mpmath.floor((mpmath.log(over / under) - anchor) / mpmath.mpf(interval)))


def _masses(z: float, q: float, low: float, high: float) -> tuple:
    """Return the masses of mixture and Gaussian between two x."""
    scale, share = mpmath.mpf(z), mpmath.mpf(q)
    at_zero, at_one = (
        _between((mpmath.mpf(low) - centre) / scale, (mpmath.mpf(high) - centre) / scale) for centre in (0, 1)
    )
    return (1 - share) * at_zero + share * at_one, at_zero


def _between(low, high):
    return _ncdf(high) - _ncdf(low) if high <= 0 else _ncdf(-low) - _ncdf(-high)


@cache
def _ncdf(x):
    return mpmath.ncdf(x)


def _cells(z, q, interval, reach, bottom, start, *, above):
    """Return cells from `bottom` to 1 + reach z whose losses lie just above (or below) places of the grid.

    Floats decide where the cells are cut, and nothing else.
    """
    nodes, weights = np.polynomial.legendre.leggauss(10)

    def loss(x):
        return np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z))

    def crossing(value):
        ratio = math.expm1(value - math.log1p(-q)) * (1 - q) / q
        return 0.5 + z * z * math.log(ratio) if ratio > 0 else -math.inf

    def excess(low, high, value):
        """Return the mean of exp(loss - value) over a cell, less 1."""
        pieces = max(1, math.ceil((high - low) / z * 2))
        edges = np.linspace(low, high, pieces + 1)
        x = (edges[:-1, None] + np.diff(edges)[:, None] * (nodes + 1) / 2).ravel()
        mass = np.exp(-0.5 * ((x / z) ** 2 - (low / z) ** 2)) if low > 0 else np.exp(-0.5 * (x / z) ** 2)
        mass = mass * np.tile(weights, pieces)
        return float(np.sum(mass * np.expm1(loss(x) - value)) / np.sum(mass))

    cells, low, end = [], bottom, 1 + reach * z
    place = max(math.floor((float(loss(np.float64(bottom))) - start) / interval), 0) + 1
    margin = 1e-7 * interval * (1 if above else -1)
    while low < end:
        value = start + place * interval + margin
        place += 1
        if crossing(value) <= low:  # the cell before reaches beyond this place
            continue
        far = crossing(value + interval / 2)
        while excess(low, far, value) < 0 and far < end:
            far += far - low
        high = _root(lambda x, value=value, low=low: excess(low, x, value), crossing(value), far)
        cells.append((low, high))
        low = high
    return cells


def _root(function, low, high):
    """Return where an increasing function crosses 0; `high` where it stays below."""
    if function(high) <= 0:
        return high
    return low if function(low) >= 0 else brentq(function, low, high, xtol=1e-15, rtol=1e-12)
