"""Exact draws: the tree of proposals, their distribution, and the coins that float64 cannot decide."""

import decimal
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sottovoce.privacy import discrete_gaussian as sampler
from sottovoce.privacy.discrete_gaussian import discrete_gaussian


class Given:
    """Random bytes and words that a test chooses, in the order in which the sampler asks for them."""

    def __init__(self, *, octets=(), words=()):
        self._octets, self._words = iter(octets), iter(words)

    def urandom(self, count):
        return next(self._octets).to_bytes(count, "big")

    def words(self, count, octets):
        return np.broadcast_to(np.asarray(next(self._words), np.uint64), count).copy()


def curve(cells, n):
    """Return c f(n) to 60 digits."""
    with decimal.localcontext(prec=60):
        return cells.height * (-(decimal.Decimal(n) ** 2) / (2 * decimal.Decimal(cells.std) ** 2)).exp()


def cells_by_block(cells):
    """Return, by the first integer of a block, the levels of its cells below the curve and of those it may cross."""
    levels = cells.levels.astype(int).tolist()
    blocks = {start: ([], []) for start in cells.starts[: cells.crossed].tolist()}
    for cell, start in enumerate(cells.starts[: cells.crossed].tolist()):
        blocks[start][cell >= cells.below].append(levels[cell])
    return blocks


SMALL_AND_LARGE = pytest.mark.parametrize(
    ("std", "reach"), [(1.0, 6), (1.7, 3), (17.25, 6), (64.0, 3), (100.3, 6), (0.6 * 2**38, 6), (2.0**57, 3)]
)


@SMALL_AND_LARGE
def test_every_integer_has_exactly_its_share_of_the_cells(std, reach):
    """An integer is accepted in a + b f(n) of the cells; a is 0 and b is c, exactly, for every integer."""
    cells = sampler._cut_into_cells(std, reach)
    width, blocks = 2**cells.shift, cells_by_block(cells)
    assert sorted(blocks) == list(range(-cells.blocks * width, cells.blocks * width, width))  # without gaps
    assert cells.blocks * width >= reach * std
    for start, (below, crossed) in blocks.items():
        # In a large block the curve is checked at both ends and in the middle: it is monotonous there.
        for n in range(start, start + width) if width < 4 else (start, start + width // 2, start + width - 1):
            height = curve(cells, n)
            constant, slope = len(below), 0
            assert all(level + 1 <= height for level in below)  # these accept every integer of the block
            for level in crossed:
                if level + 1 <= height:
                    constant += 1
                elif level < height:
                    constant, slope = constant - level, slope + cells.height
            if slope == 0:  # only the curve's top lies on the edge of a cell
                assert constant == height == cells.height
            else:
                assert (constant, slope) == (0, cells.height)
            assert len(below) + len(crossed) >= height
    assert cells.crossed + 2 * cells.tail <= 2**16


@pytest.mark.parametrize("std", [1.7, 100.3])
def test_a_crossed_cell_accepts_exactly_as_much_as_lies_below_the_curve(std, monkeypatch):
    cells = sampler._cut_into_cells(std, 3)
    numbers = np.arange(2**16, dtype=np.uint64)
    for within in range(2**cells.shift):
        n = cells.starts + within
        share = np.array([curve(cells, int(one)) for one in n[cells.below : cells.crossed]]) - [
            decimal.Decimal(level) for level in cells.levels[cells.below : cells.crossed]
        ]
        last = [min(max(math.ceil(part * 2**64), 0), 2**64) for part in share]  # words below this one accept
        for shift in (-2, 2):
            words = [min(max(word + shift, 0), 2**64 - 1) for word in last]
            given = Given(words=[(numbers << np.uint64(48)) | np.uint64(within), words])
            monkeypatch.setattr(sampler, "_words", given.words)
            monkeypatch.setattr(sampler, "_tail", lambda *_: None)
            draws = np.empty(2**16, np.int64)
            rejected = np.zeros(2**16, bool)
            rejected[sampler._propose(draws, cells)] = True
            assert (draws == n)[: cells.crossed].all()
            assert not rejected[: cells.below].any()
            assert rejected[cells.crossed :].all()
            for word, end, refused in zip(words, last, rejected[cells.below : cells.crossed], strict=True):
                assert refused == (word >= end)


@SMALL_AND_LARGE
def test_the_tail_has_exactly_its_share(std, reach, monkeypatch):
    cells = sampler._cut_into_cells(std, reach)
    width, step_width = 2**cells.shift, 2 ** (cells.shift + 4)
    begin = cells.blocks * width
    for step, negative in itertools.product(range(12), (False, True)):
        height = Fraction(cells.tail, 2 ** (step + 1)) * width / step_width
        for within in (0, step_width // 3, step_width - 1):
            distance = begin + step * step_width + within
            n = -1 - distance if negative else distance
            share = Fraction(curve(cells, n)) / height  # of the proposals that are accepted
            assert share <= 1
            assert Fraction(cells.tail, 2 ** (step + 1)) / step_width / height == Fraction(1, width)
            for word in (math.floor(share * 2**64) - 2, math.ceil(share * 2**64) + 2):
                if not 0 <= word < 2**64:
                    continue
                given = Given(octets=[*[1] * step, 0, within], words=[word])
                with monkeypatch.context() as patch:
                    patch.setattr(sampler, "_words", given.words)
                    drawn = sampler._tail(cells.crossed + cells.tail * negative, cells, given.urandom)
                assert drawn == (n if word < share * 2**64 else None)


def chi_square(draws, std):
    """Return the p-value of the draws of a small std, with everything far out in two bins."""
    most = math.ceil(3.7 * std)
    weights = np.exp(-(np.arange(-40 * most, 40 * most + 1) ** 2) / (2 * std**2))
    expected = np.add.reduceat(weights, [0, *range(39 * most, 41 * most + 2)]) / weights.sum() * len(draws)
    found = np.bincount(np.clip(draws, -most - 1, most + 1) + most + 1, minlength=2 * most + 3)
    return stats.chi2.sf(((found - expected) ** 2 / expected).sum(), len(found) - 1)


@pytest.mark.parametrize(
    ("std", "reach", "error", "size"),
    [(1.0, 3, 2.0**-40, 30_000), (40.0, 3, 2.0**-40, 400_000), (3.3, 3, 0.5, 20_000), (9.0, 6, 0.5, 30_000)],
)
def test_the_tail_and_the_exact_coins_change_nothing(std, reach, error, size, monkeypatch):
    """With a tail that begins early, and with an error of 1/2, which leaves most coins to decimal arithmetic."""
    monkeypatch.setattr(sampler, "_REACH", reach)
    monkeypatch.setattr(sampler, "_ERROR", error)
    draws = discrete_gaussian(std, size)
    assert chi_square(draws, std) > 1e-6
    assert chi_square(draws, 1.1 * std) < 1e-6


def percentiles(draws, std, bins):
    """Count the draws in bins of equal probability; within an integer, its share of the Gaussian is spread evenly."""
    spread = draws + np.random.default_rng(0).random(len(draws)) - 0.5
    return np.bincount((stats.norm.cdf(spread / std) * bins).astype(int), minlength=bins)


@pytest.mark.parametrize("std", [2.0**10, 2.0**20, 1.3 * 2**38, 2.0**57])
def test_large_ones_are_exact_in_the_middle_in_the_tails_and_in_their_last_bits(std):
    draws = discrete_gaussian(std, 1_000_000)
    assert stats.chisquare(percentiles(draws, std, 256)).pvalue > 1e-6
    last = np.bincount(draws & 255, minlength=256)
    assert stats.chisquare(last).pvalue > 1e-6
    for reach in (2.0, 3.0, 4.0):
        for side in (draws, -draws):
            found = int((side > reach * std).sum())
            assert stats.binomtest(found, len(draws), stats.norm.sf(reach)).pvalue > 1e-6
    scaled = draws / std
    for lag in (1, 2, 7):
        assert abs(float(np.mean(scaled[lag:] * scaled[:-lag]))) < 5 / math.sqrt(len(draws))
        assert abs(float(np.mean(scaled[lag:] ** 2 * scaled[:-lag] ** 2)) - 1) < 6 * 3 / math.sqrt(len(draws))
    assert ((draws[1:] ^ draws[:-1]) & 1).mean() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(len(draws)))


@pytest.mark.slow
@pytest.mark.parametrize("std", [700.0, 1.3 * 2**38])
def test_a_hundred_million_have_their_distribution(std):
    counts, last, moments, total = np.zeros(4096), np.zeros(1024), np.zeros(3), 0
    for _ in range(100):
        draws = discrete_gaussian(std, 1_000_000)
        counts += percentiles(draws, std, 4096)
        last += np.bincount(draws & 1023, minlength=1024)
        moments += [np.mean((draws / std) ** power) for power in (2, 4, 6)]
        total += len(draws)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert stats.chisquare(last).pvalue > 1e-6
    for found, expected, variance in zip(moments / 100, (1, 3, 15), (2, 96, 10_170), strict=True):
        assert found == pytest.approx(expected, abs=5 * math.sqrt(variance / total))


@pytest.mark.parametrize("std", [1.0, 2.3, 17.25])
def test_small_ones_have_their_probabilities(std):
    draws = discrete_gaussian(std, 400_000)
    values = np.arange(-math.ceil(4 * std), math.ceil(4 * std) + 1)
    weights = np.exp(-(values**2) / (2 * std**2))
    expected = weights / np.exp(-(np.arange(-400, 401) ** 2) / (2 * std**2)).sum() * len(draws)
    found = np.array([(draws == value).sum() for value in values])
    assert stats.chi2.sf(((found - expected) ** 2 / expected).sum(), len(values) - 1) > 1e-6


def test_large_ones_are_gaussian_and_even_as_often_as_odd():
    std = 0.6 * 2**38
    draws = discrete_gaussian(std, 300_000)
    assert stats.kstest(draws / std, "norm").pvalue > 1e-6
    assert stats.kstest(draws / std, stats.norm(scale=1.03).cdf).pvalue < 1e-3
    for bit in range(4):
        assert ((draws >> bit) & 1).mean() == pytest.approx(0.5, abs=0.005)
    assert len(np.unique(draws)) > 0.999 * len(draws)


def test_coins_that_lie_on_the_edge_are_decided_exactly(monkeypatch):
    half = Fraction(math.log(2))  # exp(-x) is a little more or less than 1/2, in the 54th bit
    exact = [sampler._exact_coin(word, half) for word in (2**63 - 10_000, 2**63 + 10_000)]
    assert exact == [True, False]
    # With an error of 1/2 nearly all coins are decided exactly; their distribution stays the same.
    monkeypatch.setattr(sampler, "_ERROR", 0.5)
    coins = sampler._coins(np.full(4000, 1.0), lambda _: Fraction(1))
    assert coins.mean() == pytest.approx(math.exp(-1), abs=0.04)


def test_a_std_outside_its_range_is_refused():
    with pytest.raises(ValueError, match="1 <= std"):
        discrete_gaussian(0.5, 10)
    assert len(discrete_gaussian(5.0, 0)) == 0
