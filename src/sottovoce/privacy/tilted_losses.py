"""Composition of privacy losses by a tilted FFT: certified bounds where a plain FFT drowns in its rounding errors.

An FFT is exact to about 1e-16 of the *largest* masses, but a delta of 1e-20 is a sum of the smallest. So the masses
p(l) of every release are tilted first: p~(l) = p(l) exp(lambda l - c). Tilted masses compose as the others do,

    p^T(l) = exp(T c - lambda l) p~^T(l),

and lambda is chosen such that the losses that decide delta are the most likely ones after the tilt. Rounding errors
then are 1e-16 of *them*. With E a bound on the error of every composed mass,

    delta(epsilon) <= exp(T c - lambda epsilon) sum over l > epsilon of
                          exp(-lambda (l - epsilon)) (1 - exp(epsilon - l)) (p~^T(l) + E)   + beyond + infinite.

Why this is an upper bound, in floating point:
- The masses of one release (`loss_masses.py`) are pessimistic, and computed with a relative error. delta is a sum of
  products of masses with positive factors, so an error of e in each mass is at most one of (1 - e)^-T in delta.
- The convolution is circular. Whatever comes round the circle adds to masses and takes from none. Only losses above the
  window are missing: `beyond`, a Chernoff bound. `infinite` is the union bound over the releases.
- FFT: |computed - exact|_2 <= G |exact|_2 with G = 8 log2(n) 2^-53 for n points (Higham 2002, theorem 24.2, has 6.7
  for twiddle factors that are rounded correctly; scipy computes them in higher precision and rounds).
- The T-th power is taken point by point: with X the transform, d = G |X|_2 a bound on its error in every point and m =
  |computed X| + d, the error of X^T is at most T d_k m_k^(T-1) in the point k. By the inequality of Cauchy and Schwarz
  the sum over k is at most T d |m^(T-1)|_2. Repeated squaring adds T 2^-51 of m^T, and the way back G |m^T|_2.
  Several kinds of releases multiply, and their errors add up.

`tilt_search.py` chooses tilts and windows, and answers for epsilon and delta. Any choice gives an upper bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sottovoce.privacy.loss_masses import UNIT, Floats, Masses


@dataclass(frozen=True)
class Window:
    """A tilt, and the losses between which its composed distribution lies."""

    tilt: float
    steeper: float  # the tilt that bounds what lies above
    low: float
    high: float


def log_sum(logs: Floats) -> float:
    """Return the logarithm of the sum of exponentials."""
    largest = float(np.max(logs))
    return largest + math.log(float(np.sum(np.exp(logs - largest))))


@dataclass(frozen=True)
class _Tilted:
    """The tilted masses of one kind of release; exp(-log_total) makes their sum 1."""

    masses: Masses
    count: int
    tilt: float

    @cached_property
    def logs(self) -> Floats:
        """The logarithms of the tilted masses, before their sum is made 1."""
        losses = self.masses.anchor + self.masses.interval * self.masses.places
        return self.masses.log_masses + self.tilt * losses

    @cached_property
    def log_total(self) -> float:
        """The logarithm of the sum of the tilted masses."""
        return log_sum(self.logs)

    @property
    def error(self) -> float:
        """A bound on the relative error of every tilted mass: that of the mass, and that of the exponents."""
        finite = np.isfinite(self.logs)
        exponents = np.abs(self.masses.log_masses[finite]) + 2 * np.abs(self.logs[finite]) + abs(self.log_total)
        return self.masses.error + 4 * UNIT * float(exponents.max() + 40)

    def folded(self, points: int) -> Floats:
        """Return the masses on a circle of points."""
        found = np.bincount(self.masses.places % points, np.exp(self.logs - self.log_total), points)
        return np.asarray(found, dtype=np.float64)

    def folding(self, points: int) -> float:
        """Return a bound on the relative error of adding up the masses that meet in one point of the circle."""
        return UNIT * (len(self.masses.log_masses) / points + 1)


@dataclass(frozen=True)
class Composed:
    """The tilted masses of all releases in a window of losses, with bounds on what is wrong with them."""

    tilt: float
    log_scale: float  # sum of T c, and of T times the relative errors of the masses
    losses: Floats
    tilted: Floats  # p~^T
    error: float  # E
    outside: float  # the mass at infinite losses and above the window

    @property
    def low(self) -> float:
        """The smallest epsilon for which the window holds all larger losses."""
        return float(self.losses[0])

    def delta(self, epsilon: float, *, certified: bool = True) -> float:
        """Return an upper bound on delta at an epsilon that is not below the window.

        Not certified, it leaves out the rounding errors of the FFT, to see how much they matter.
        """
        if epsilon < self.low:
            raise ValueError(f"Expected epsilon={epsilon:g} >= {self.low:g}.")
        first = int(np.searchsorted(self.losses, epsilon))
        above = self.losses[first:] - epsilon
        masses = self.tilted[first:] + (self.error if certified else 0.0)
        with np.errstate(divide="ignore"):
            # In logarithms: where the tilt is steep, exp(-tilt * above) is rounded to 0 and exp(log_scale) is infinite.
            logs = np.log(-np.expm1(-above)) + np.log(masses) - self.tilt * above
        if not len(logs) or logs.max() == -math.inf:
            return min(self.outside, 1.0)
        rounding = 1e-9 + 4 * UNIT * (abs(self.log_scale) + self.tilt * abs(epsilon))
        log_delta = self.log_scale - self.tilt * epsilon + log_sum(logs) + rounding
        return min(math.exp(min(log_delta, 0.0)) + self.outside, 1.0)


def compose(releases: Sequence[tuple[Masses, int]], log_weight: float, window: Window) -> Composed:
    """Return the distribution of several kinds of releases, each some number of times, in a window, times a weight."""
    parts = [_Tilted(each, count, window.tilt) for each, count in releases]
    interval = parts[0].masses.interval
    points = 1 << max(math.ceil(math.log2(max(window.high - window.low, 0.0) / interval + 2)), 8)
    anchor = math.fsum(part.count * part.masses.anchor for part in parts)
    first = math.floor((window.low - anchor) / interval) - 1  # below the window, in floating point too
    powers, error = _power(parts, points)
    # Losses are moved up by more than their rounding errors; the tilt back must not profit from that.
    farthest = math.fsum(part.count * abs(part.masses.anchor) for part in parts) + interval * (abs(first) + points)
    slack = 8 * UNIT * farthest
    losses = anchor + interval * (first + np.arange(points, dtype=np.float64)) + slack
    infinite = math.fsum(part.count * part.masses.infinite for part in parts)
    return Composed(
        tilt=window.tilt,
        log_scale=log_weight + _log_moment(parts, points) + 2 * window.tilt * slack,
        losses=losses,
        tilted=np.roll(powers, -(first % points)),
        error=error,
        outside=infinite + _beyond(parts, log_weight, (window.tilt, window.steeper), float(losses[-1])),
    )


def _log_moment(parts: Sequence[_Tilted], points: int | None = None) -> float:
    """Return the logarithm of the sum of all composed tilted masses, with their relative errors, on a circle or not."""
    errors = [part.error + (0.0 if points is None else part.folding(points)) for part in parts]
    return math.fsum(part.count * (part.log_total + 1.01 * error) for part, error in zip(parts, errors, strict=True))


def _beyond(parts: Sequence[_Tilted], log_weight: float, tilts: Sequence[float], loss: float) -> float:
    """Return a Chernoff bound on the mass of composed losses above a loss."""
    exponents = [_log_moment([replace(part, tilt=tilt) for part in parts]) - tilt * loss for tilt in tilts]
    return math.exp(min(min(*exponents, 0.0) + log_weight, 700.0) + 1e-9)


def _power(parts: Sequence[_Tilted], points: int) -> tuple[Floats, float]:
    """Return the masses of all releases together, on a circle of points, and a bound on the error of each."""
    from scipy.fft import irfft, rfft  # noqa: PLC0415 - slow to load

    rounding = 8 * math.log2(points) * UNIT
    product = np.ones(points // 2 + 1, dtype=np.complex128)
    sizes, errors = [], []
    for part in parts:
        folded = part.folded(points)
        transform = rfft(folded)
        errors.append(rounding * math.sqrt(points) * float(np.linalg.norm(folded)))
        sizes.append(np.log(np.abs(transform) + errors[-1]))
        product *= _to_the(transform, part.count)
    log_size = sum((part.count * size for part, size in zip(parts, sizes, strict=True)), np.zeros(len(product)))
    size = np.exp(log_size)
    error = sum(part.count for part in parts) * 2.0**-51 * 2 * float(np.sum(size)) / points
    error += rounding * math.sqrt(2 / points) * float(np.linalg.norm(size))
    for part, one, off in zip(parts, sizes, errors, strict=True):
        error += part.count * off * math.sqrt(2) * float(np.linalg.norm(np.exp(log_size - one))) / points
    return np.maximum(irfft(product, points), 0.0), 1.01 * error + 1e-300


def _to_the(values: npt.NDArray[np.complex128], power: int) -> npt.NDArray[np.complex128]:
    """Return a power by repeated squaring."""
    result = np.ones_like(values)
    while power:
        if power & 1:
            result = result * values
        power >>= 1
        if power:
            values = values * values
    return result
