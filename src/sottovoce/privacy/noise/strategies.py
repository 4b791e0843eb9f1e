"""Strategies of correlated noise: integer matrices, optimised for the error of prefix sums, with exact sensitivities.

A strategy is a lower-triangular matrix A of integers, one row per step. Correlated noise hides A G, where row t of G is
the integer sum of step t (`correlated.py`). No two entries of a column are `bands` rows apart or more, so two steps of
one user that are at least `bands` apart touch different rows of A G. What one step of one user can change is then
bounded by the largest norm of a column. The entries are integers, so its square is one, too: nothing is rounded.

Two structures:
- `toeplitz`: A_ij = a_(i-j), with a_0 > a_1 >= ... >= 0 and `bands` of them (Choquette-Choo et al. 2023). Noise at step
  t depends on all earlier draws.
- `blocks`: the steps are cut into blocks of `bands`, and A is the same dense triangular matrix on every block. Noise
  depends on the draws of its own block alone, at an error of prefix sums that is 3 to 7 % larger.

Both minimise the root mean square over steps of the error of the prefix sum g_0 + ... + g_t, per unit of sensitivity:
RMSE = |P A^-1|_F / sqrt(T) * (largest norm of a column), with P the matrix of ones on and below the diagonal. Then the
entries are rounded to integers of 12 bits, which costs less than a millionth of the error. The optimum is flat, so
nothing about privacy depends on how well it was found.

Toeplitz: with a(x) = sum a_i x^i and b(x) = 1 / ((1 - x) a(x)), |P A^-1|_F^2 = sum over t of (T - t) b_t^2. L-BFGS
minimises its logarithm with the exact gradient. Blocks: the Gram matrix X = A^T A minimises tr(M X^-1) with a diagonal
of ones, where M = P^T P + R 1 1^T on one block and R is the mean number of steps after a block. A fixed-point iteration
solves that (Denisov et al. 2022).

jax-privacy 2.0.0 and opake-dpftrl 0.16.1 optimise the same Toeplitz matrices. `tests/golden/strategies.json` has their
errors: those of jax-privacy agree with ours to 8 digits, and so do opake's where its optimiser leaves its starting
point (T = 2000 with 2 or 4 bands it does not, and its error is 5 and 10 % larger). Neither is a dependency. Their
sensitivities are rounded to the nearest float64, so many are too small in exact arithmetic, if only by an ulp; they
take seconds to minutes for what takes 20 ms here; jax-privacy needs JAX, and the accounting of opake-dpftrl does not
load under Python 3.11.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Structure = Literal["toeplitz", "blocks"]
UNIT = 1 << 12  # the diagonal of a Toeplitz strategy, and the norm of the columns of a block
_ITERATIONS = 2000
_CONVERGED = 1e-10
_HORIZON = 64  # times `bands`: after so many steps the response to one draw has died down


@dataclass(frozen=True)
class Strategy:
    """A lower-triangular matrix of integers: a Toeplitz matrix, or the same block again and again."""

    rows: tuple[tuple[int, ...], ...]  # each from the diagonal to the left; one row: Toeplitz

    @property
    def bands(self) -> int:
        """The number of rows that a column touches, at most."""
        return len(self.rows[-1])

    @property
    def window(self) -> int | None:
        """After so many steps the noise starts afresh; None: never."""
        return None if len(self.rows) == 1 else len(self.rows)

    def row(self, place: int) -> tuple[int, ...]:
        """Return a row from the diagonal to the left; `place` counts the steps since the noise started afresh."""
        return self.rows[0][: place + 1] if self.window is None else self.rows[place]

    @cached_property
    def squared_norm(self) -> int:
        """The square of the largest norm of a column: exact."""
        if self.window is None:
            return sum(entry**2 for entry in self.rows[0])
        columns = range(self.bands)
        return max(sum(self.rows[row][row - column] ** 2 for row in range(column, self.bands)) for column in columns)

    @cached_property
    def norm(self) -> float:
        """The largest norm of a column, rounded up."""
        root = math.isqrt((self.squared_norm << 100) - 1) + 1  # at least the root times 2^50
        return math.nextafter(root / (1 << 50), math.inf)

    def responses(self, steps: int) -> Floats:
        """Return the part of draw j in the noise of step i: A^-1, of this many steps or of one block."""
        size = steps if self.window is None else min(steps, self.window)
        matrix = np.zeros((size, size))
        for place in range(size):
            row = self.row(place)
            matrix[place, place - len(row) + 1 : place + 1] = row[::-1]
        return np.asarray(np.linalg.solve(matrix, np.eye(size)), np.float64)

    @cached_property
    def _response(self) -> Floats:
        """The response to one draw over time, of a Toeplitz strategy."""
        return _filtered(self._lags, _impulse(_HORIZON * self.bands))

    @property
    def _lags(self) -> Floats:
        return np.array(self.rows[0], np.float64)

    @cached_property
    def spread(self) -> float:
        """The largest standard deviation of the noise of one step, in units of the noise that counts for privacy."""
        if self.window is None:
            return self.norm * float(np.linalg.norm(self._response))
        return self.norm * float(np.linalg.norm(self.responses(self.bands), axis=1).max())

    def prefix_error(self, steps: int) -> float:
        """Return the root mean square error of the prefix sums of this many steps, per unit of sensitivity."""
        if self.window is None:
            sums = _filtered(self._lags, np.ones(steps))
            total = float((np.arange(steps, 0, -1) * sums**2).sum())
            return self.norm * math.sqrt(total / steps)
        sums = np.cumsum(self.responses(self.bands), axis=0)
        within = (sums**2).sum(axis=1)  # the variance of the sum since the beginning of the block
        blocks, rest = divmod(steps, self.bands)
        before = within[-1] * (self.bands * blocks * (blocks - 1) / 2 + blocks * rest)
        return self.norm * math.sqrt((blocks * within.sum() + within[:rest].sum() + before) / steps)


def independent_error(steps: int) -> float:
    """Return the prefix error of independent noise."""
    return math.sqrt((steps + 1) / 2)


def strategy_of(structure: Structure, entries: tuple[int, ...], bands: int) -> Strategy:
    """Return a strategy of given entries: those of the first column, or of the block row by row, from left to right.

    Raise ValueError where they are not one: too few, a diagonal that is not positive, or lags that do not fall.
    """
    if structure == "toeplitz":
        falling = all(one >= other for one, other in itertools.pairwise(entries))
        if len(entries) != bands or entries[-1] < 0 or not falling or (bands > 1 and entries[0] <= entries[1]):
            raise ValueError(f"Expected {bands} integers that fall, a_0 > a_1 >= ... >= 0")
        if entries[0] <= 0:
            raise ValueError("Expected a_0 > 0")
        return Strategy((entries,))
    if len(entries) != bands * (bands + 1) // 2:
        raise ValueError(f"Expected {bands * (bands + 1) // 2} integers, the block of {bands} steps row by row")
    rows = tuple(entries[place * (place + 1) // 2 :][: place + 1][::-1] for place in range(bands))
    if any(row[0] <= 0 for row in rows):
        raise ValueError("Expected a diagonal above 0")
    return Strategy(rows)


def entries_of(strategy: Strategy) -> tuple[int, ...]:
    """Return the entries that `strategy_of` takes."""
    if strategy.window is None:
        return strategy.rows[0]
    return tuple(entry for row in strategy.rows for entry in reversed(row))


@lru_cache(maxsize=64)
def optimised(structure: Structure, bands: int, steps: int) -> Strategy:
    """Return the strategy with the least error of the prefix sums of `steps` steps."""
    if bands == 1:
        return Strategy(((UNIT,),))
    if structure == "toeplitz":
        lags = np.rint(UNIT * _optimal_lags(min(bands, steps), steps)).astype(int).tolist()
        lags += [0] * (bands - len(lags))
        return Strategy(((UNIT, *(min(lag, UNIT - 1) for lag in lags[1:])),))
    block = np.rint(UNIT * _optimal_block(bands, steps)).astype(int)
    return Strategy(tuple(tuple(block[place, place::-1].tolist()) for place in range(bands)))


def _impulse(size: int) -> Floats:
    return np.eye(1, size).reshape(-1)


def _filtered(lags: Floats, signal: Floats) -> Floats:
    """Return A^-1 signal, for the Toeplitz matrix A of these lags."""
    from scipy.signal import lfilter  # noqa: PLC0415 - slow to load

    return np.asarray(lfilter([1.0], lags, signal))


def _optimal_lags(bands: int, steps: int) -> Floats:
    """Return a_i / a_0 of the best banded Toeplitz matrix, from those of the square root of P on."""
    from scipy.optimize import minimize  # noqa: PLC0415 - slow to load

    weights = np.arange(steps, 0, -1, dtype=np.float64)

    def loss(tail: Floats) -> tuple[float, Floats]:
        lags = np.concatenate([[1.0], tail])
        sums = _filtered(lags, np.ones(steps))
        weighted, twice = weights * sums, _filtered(lags, sums)
        error, squared = float(weighted @ sums), float(lags @ lags)
        slopes = np.array([-2 * (twice[: steps - lag] @ weighted[lag:]) for lag in range(1, bands)])
        return math.log(error * squared), slopes / error + 2 * tail / squared

    places = np.arange(1, bands)
    start = np.cumprod((2 * places - 1) / (2 * places))
    options = {"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS, "ftol": 1e-15, "gtol": _CONVERGED}
    # Lags between 0 and 1 keep the first trial steps from overflowing; the best ones lie inside.
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(start), options=options)
    return np.minimum.accumulate(np.concatenate([[1.0], found.x]))


def _optimal_block(bands: int, steps: int) -> Floats:
    """Return the best block, with columns of norm 1."""
    blocks = max(steps // bands, 1)
    after = max(steps - bands * (blocks + 1) / 2, 0.0)  # steps after a block, on average
    ones = np.tril(np.ones((bands, bands)))
    workload = ones.T @ ones + after
    duals = np.diagonal(_root(workload))
    for _ in range(_ITERATIONS):
        scale = np.sqrt(duals)
        found = np.diagonal(_root(workload * np.outer(scale, scale)))
        change = float(np.abs(found / duals - 1).max())
        duals = found
        if change < _CONVERGED:
            break
    scale = np.sqrt(duals)
    gram = _root(workload * np.outer(scale, scale)) / np.outer(scale, scale)
    lower = np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T  # lower^T lower is the Gram matrix
    return np.asarray(lower / np.linalg.norm(lower, axis=0))


def _root(matrix: Floats) -> Floats:
    """Return the square root of a positive definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
