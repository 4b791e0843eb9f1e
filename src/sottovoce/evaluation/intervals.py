"""Estimates over speakers and seeds with 95 % intervals: of a WER, and of a weighted sum of the WERs of several rows.

The estimate is the mean over seeds. Two things make it uncertain: other speakers could be in the test set, and other
seeds could have been trained. Speakers are resampled (a bootstrap), the same ones for all rows and seeds, so that what
rows have in common cancels. A seed number is the same seed model and the same random streams in every row, so the
contrast is taken seed by seed.

With speaker effects a, seed effects b and their interaction c, K speakers and n seeds, the variance of the mean is
var(a)/K + var(b)/n + var(c)/(nK). The bootstrap over speakers of the mean estimates the first and the third part, the
variance over seeds divided by n the second and the third. The third is estimated by itself, from how differently the
seeds move in the bootstrap, and is taken off the speakers' part. The two estimates have about K - 1 and n - 1 degrees
of freedom, so the half-width is a quantile of A t(K - 1) + B t(n - 1), where A^2 and B^2 are the two parts: the
Behrens-Fisher solution. It is Student's t where one part is 0, and it covers at least as often as it says otherwise,
which the usual approximation (Satterthwaite, Welch) does not with two or three seeds.

Measured with 800 simulations each (test_intervals.py: word errors of 40 and 200 speakers; effects of seeds
on the mean from none to four times those of speakers; an interaction of 0.3 and 2 times the speakers' effect): the 95 %
interval covers in 95.2 to 99.5 % of cases with 2 seeds, in 95.2 to 98.4 % with 3, in 94.1 to 97.1 % with 5. It covers
most where 2 seeds hardly differ, and is then wider than it need be. Satterthwaite's covers in 87 % of cases with 2
seeds where seeds matter most. With one seed the interval is over speakers alone: it says nothing about other seeds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from sottovoce.randomness import stream

Scale = Literal["points", "relative"]

_LEVEL = 0.95
_UPPER = (1 + _LEVEL) / 2
_RESAMPLES = 2000  # of every part: resamples of several parts are added up one by one
_CELLS = 4_000_000  # of a table of resamples that is multiplied at once; every speaker has a column
_NODES = 96  # of the quadrature for a quantile
_HALVINGS = 30
_LEAST_EDITS = 0.5  # in a logarithm, so that a model without errors has one


@dataclass(frozen=True, eq=False)
class Counts:
    """The word errors of one model on the speakers of one part, in an order that is the same for all models."""

    part: str  # counts of the same part are of the same speakers
    words: npt.NDArray[np.int64]  # of the references
    edits: npt.NDArray[np.int64]

    @property
    def wer(self) -> float:
        """All edits over all words."""
        return int(self.edits.sum()) / max(int(self.words.sum()), 1)

    @property
    def speakers(self) -> int:
        """How many there are."""
        return len(self.words)

    def value(self, scale: Scale) -> float:
        """Return the WER in percent, or its logarithm."""
        edits, words = (np.array([of.sum()], np.float64) for of in (self.edits, self.words))
        return float(_scaled(edits, words, scale)[0])

    def resampled(self, scale: Scale) -> npt.NDArray[np.float64]:
        """Return the same for every resample of the speakers."""
        edits, words = self._resampled
        return _scaled(edits, words, scale)

    @cached_property
    def _resampled(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        drawn, edits, words = _resamples(self.part, self.speakers), *map(_floats, (self.edits, self.words))
        blocks = [(block @ edits, block @ words) for block in map(_floats, _in_blocks(drawn))]
        return np.concatenate([of for of, _ in blocks]), np.concatenate([of for _, of in blocks])


def _floats(numbers: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    return numbers.astype(np.float64)


def _scaled(edits: npt.NDArray[np.float64], words: npt.NDArray[np.float64], scale: Scale) -> npt.NDArray[np.float64]:
    words = np.maximum(words, 1)  # a resample may have drawn speakers without words alone
    if scale == "points":
        return np.asarray(100 * edits / words, np.float64)
    return np.asarray(np.log(np.maximum(edits, _LEAST_EDITS) / words), np.float64)


@lru_cache(maxsize=8)
def _resamples(part: str, speakers: int) -> npt.NDArray[np.uint8]:
    """Return how often each speaker is in each resample. Different parts are resampled independently."""
    drawn = np.empty((_RESAMPLES, speakers), np.uint8)  # a speaker is hardly ever drawn ten times
    generator = stream(0, "bench-bootstrap", part)
    for block in _in_blocks(drawn):
        count = len(block)
        cells = generator.integers(0, speakers, (count, speakers)) + speakers * np.arange(count)[:, None]
        block[:] = np.bincount(cells.ravel(), minlength=count * speakers).reshape(count, speakers)
    return drawn


def _in_blocks(table: npt.NDArray[np.uint8]) -> list[npt.NDArray[np.uint8]]:
    """Return views of some rows each, so that what is computed with one of them takes little memory."""
    rows = max(_CELLS // table.shape[1], 1)
    return [table[first : first + rows] for first in range(0, len(table), rows)]


@dataclass(frozen=True)
class MeanOverSeeds:
    """A figure over seeds: in percent or points, or a logarithm of a ratio; the half-width of its 95 % interval."""

    seeds: Mapping[int, float]  # the figure of each seed alone
    half: float | None  # None: a single speaker has no interval
    scale: Scale = "points"

    @property
    def value(self) -> float:
        """The mean over seeds, in percent or points; a ratio as its difference from 1 in percent."""
        return self._shown(self._mean)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval, on the scale of `value`."""
        return None if self.half is None else (self._shown(self._mean - self.half), self._shown(self._mean + self.half))

    @property
    def by_seed(self) -> dict[int, float]:
        """The figure of each seed alone, on the scale of `value`."""
        return {seed: self._shown(figure) for seed, figure in self.seeds.items()}

    @property
    def _mean(self) -> float:
        return math.fsum(self.seeds.values()) / len(self.seeds)

    def _shown(self, figure: float) -> float:
        return figure if self.scale == "points" else 100 * math.expm1(figure)


Term = tuple[float, Mapping[int, Counts]]  # a weight, and the counts of a row by seed


def estimate(terms: Sequence[Term], scale: Scale = "points") -> MeanOverSeeds | None:
    """Return the weighted sum over rows, by the seeds that all of them have; None where they share none.

    `points` adds up WERs in percent, `relative` their logarithms. Deterministic.
    """
    seeds = sorted(set.intersection(*(set(counts) for _, counts in terms))) if terms else []
    if not seeds:
        return None
    figures = {seed: math.fsum(weight * counts[seed].value(scale) for weight, counts in terms) for seed in seeds}
    resampled = np.stack(
        [np.sum([weight * counts[seed].resampled(scale) for weight, counts in terms], axis=0) for seed in seeds],
        axis=1,
    )
    fewest = min(counts[seed].speakers for _, counts in terms for seed in seeds)
    return MeanOverSeeds(figures, _half_width(np.array(list(figures.values())), resampled, fewest), scale)


def wer_estimate(counts: Mapping[int, Counts]) -> MeanOverSeeds | None:
    """Return the WER of one row in percent."""
    return estimate([(1.0, counts)])


def _half_width(figures: npt.NDArray[np.float64], resampled: npt.NDArray[np.float64], speakers: int) -> float | None:
    """Return the half-width from the figure of each seed, and from those of each resample (rows) and seed (columns)."""
    if speakers < 2:
        return None
    seeds, correction = len(figures), speakers / (speakers - 1)
    means = resampled.mean(axis=1)
    over_speakers = correction * float(means.var(ddof=1))
    if seeds == 1:
        return half_width(over_speakers, speakers - 1, 0.0, 1)
    apart = (resampled - means[:, None]).var(axis=0, ddof=1)
    interaction = correction * float(apart.sum()) / (seeds * (seeds - 1))
    over_seeds = float(figures.var(ddof=1)) / seeds
    return half_width(max(over_speakers - interaction, 0.0), speakers - 1, over_seeds, seeds - 1)


def half_width(first: float, first_freedom: int, second: float, second_freedom: int) -> float:
    """Return the 97.5 % quantile of sqrt(first) t(first_freedom) + sqrt(second) t(second_freedom), within 0.1 %."""
    from scipy.special import stdtr, stdtrit  # noqa: PLC0415 - slow to load

    # The distribution of the wider one is smooth beside the narrower one: integrate over the latter.
    (narrow, narrow_freedom), (wide, wide_freedom) = sorted(
        [(math.sqrt(first), first_freedom), (math.sqrt(second), second_freedom)]
    )
    ends = [narrow * float(stdtrit(narrow_freedom, _UPPER)), wide * float(stdtrit(wide_freedom, _UPPER))]
    if narrow == 0.0:
        return ends[1]
    places, weights = _quadrature()
    shifts = narrow * stdtrit(narrow_freedom, places)
    low, high = max(ends), sum(ends)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        covered = float(stdtr(wide_freedom, (middle - shifts) / wide) @ weights)
        low, high = (middle, high) if covered < _UPPER else (low, middle)
    return high


@lru_cache(maxsize=1)
def _quadrature() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return places between 0 and 1, and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (nodes + 1) / 2, weights / 2
