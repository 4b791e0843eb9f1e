"""Intervals over speakers and seeds: their limits, their second opinions, and how often they cover the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from bench_counts import counts
from sottovoce.evaluation.intervals import Counts, estimate, half_width, wer_estimate


def one_set(words, edits, part="test"):
    return Counts(part, np.asarray(words, np.int64), np.asarray(edits, np.int64))


def simulated(rng, speakers, seeds, *, seed_effect, interaction):
    """Return two rows whose difference has effects of speakers, seeds and both; the true difference is 10 points.

    The seeds' effect is in units of what the speakers' does to the mean.
    """
    words = np.full(speakers, 2000)
    own = 0.08 * rng.standard_normal(speakers)  # of the row
    common = 0.05 * rng.standard_normal(speakers)  # of both rows: it cancels
    first, second = {}, {}
    for seed in range(seeds):
        shift = 0.08 / math.sqrt(speakers) * seed_effect * rng.standard_normal()
        rates = 0.5 + common + own + shift + 0.08 * interaction * rng.standard_normal(speakers)
        first[seed] = one_set(words, np.rint(words * rates))
        second[seed] = one_set(words, np.rint(words * (0.4 + common)))
    return first, second


def coverage(speakers, seeds, *, seed_effect, interaction, repetitions):
    rng = np.random.default_rng([speakers, seeds, int(10 * seed_effect), int(10 * interaction)])
    inside = 0
    for _ in range(repetitions):
        first, second = simulated(rng, speakers, seeds, seed_effect=seed_effect, interaction=interaction)
        low, high = estimate([(1.0, first), (-1.0, second)]).interval
        inside += low <= 10.0 <= high
    return inside / repetitions


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_interval_covers_the_truth(seeds):
    found = coverage(40, seeds, seed_effect=1.5, interaction=1.0, repetitions=150)
    assert found > 0.9  # 95 % is 142; fewer than 136 has a probability below 1 %


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("speakers", [40, 200])
@pytest.mark.parametrize("seed_effect", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("interaction", [0.3, 2.0])
def test_the_interval_covers_as_often_as_it_says(seeds, speakers, seed_effect, interaction):
    found = coverage(speakers, seeds, seed_effect=seed_effect, interaction=interaction, repetitions=1000)
    assert 0.93 <= found <= (0.998 if seeds == 2 else 0.985)


def test_the_quantile_of_two_students_has_its_limits():
    for freedom in (1, 2, 39):
        assert half_width(0.0, 39, 4.0, freedom) == pytest.approx(2 * stats.t.ppf(0.975, freedom))
        assert half_width(4.0, freedom, 0.0, 1) == pytest.approx(2 * stats.t.ppf(0.975, freedom))
    # Two of one degree of freedom add up to one that is twice as wide; many degrees are normal.
    assert half_width(1.0, 1, 1.0, 1) == pytest.approx(2 * stats.t.ppf(0.975, 1), rel=1e-3)
    assert half_width(9.0, 10**6, 16.0, 10**6) == pytest.approx(5 * stats.norm.ppf(0.975), rel=1e-3)


def test_the_quantile_of_two_students_agrees_with_drawing_them():
    rng = np.random.default_rng(0)
    for first, second, freedom in ((1.0, 1.0, 1), (1.0, 0.05, 2), (0.3, 2.0, 4)):
        drawn = math.sqrt(first) * rng.standard_t(39, 200_000) + math.sqrt(second) * rng.standard_t(freedom, 200_000)
        assert half_width(first, 39, second, freedom) == pytest.approx(np.quantile(np.abs(drawn), 0.95), rel=0.03)


def test_speakers_are_resampled_as_scipy_does():
    rng = np.random.default_rng(3)
    words = rng.integers(20, 60, 80)
    one, other = (rng.binomial(words, rate) for rate in (0.4, 0.3))
    ours = estimate([(1.0, {0: one_set(words, one)}), (-1.0, {0: one_set(words, other)})])

    def difference(words, one, other, axis=-1):
        return 100 * (one.sum(axis) - other.sum(axis)) / words.sum(axis)

    second = stats.bootstrap(
        (words, one, other), difference, paired=True, vectorized=True, n_resamples=4000, method="percentile", rng=rng
    )
    low, high = second.confidence_interval
    assert ours.value == pytest.approx(difference(words, one, other))
    assert ours.interval == pytest.approx((low, high), abs=0.12 * (high - low))


def test_what_rows_have_in_common_cancels():
    hard = {0: counts("test", 0.4, spread=0.3), 1: counts("test", 0.4, spread=0.3)}
    harder = {0: counts("test", 0.5, spread=0.3), 1: counts("test", 0.5, spread=0.3)}
    difference = estimate([(1.0, harder), (-1.0, hard)])
    assert difference.value == pytest.approx(10.0)
    assert difference.half == pytest.approx(0.0, abs=1e-9)
    assert wer_estimate(hard).half > 5
    elsewhere = {seed: Counts("dev", one.words, one.edits) for seed, one in hard.items()}
    assert estimate([(1.0, harder), (-1.0, elsewhere)]).half > 5  # other speakers: nothing is paired


def test_seeds_that_differ_widen_the_interval():
    same = wer_estimate({seed: counts("test", 0.4) for seed in range(3)})
    apart = wer_estimate({seed: counts("test", wer) for seed, wer in enumerate((0.35, 0.4, 0.45))})
    assert apart.value == pytest.approx(40.0)
    assert apart.by_seed == pytest.approx({0: 35.0, 1: 40.0, 2: 45.0})
    # Students' t with 2 degrees of freedom, of the standard error of the three.
    assert apart.half > stats.t.ppf(0.975, 2) * 5 / math.sqrt(3) > same.half


def test_only_seeds_that_all_rows_have_are_counted():
    first, second = {0: counts("t", 0.5), 1: counts("t", 0.5)}, {1: counts("t", 0.4), 2: counts("t", 0.4)}
    assert list(estimate([(1.0, first), (-1.0, second)]).seeds) == [1]
    assert estimate([(1.0, first), (-1.0, {2: counts("t", 0.4)})]) is None
    assert estimate([]) is None


def test_ratios_are_shown_in_percent():
    first, second = {0: counts("t", 0.5), 1: counts("t", 0.5)}, {0: counts("t", 0.4), 1: counts("t", 0.4)}
    ratio = estimate([(1.0, first), (-1.0, second)], "relative")
    assert ratio.value == pytest.approx(25.0)
    low, high = ratio.interval
    assert low < 25.0 < high
    without_errors = estimate([(1.0, {0: one_set([40, 40], [0, 0])})], "relative")
    assert math.isfinite(without_errors.value)


def test_one_speaker_has_no_interval():
    assert wer_estimate({0: one_set([10], [4]), 1: one_set([10], [5])}).interval is None


def test_parts_of_any_size_are_contrasted():
    many, few = counts("many", 0.5, speakers=2500), counts("few", 0.4, speakers=900)
    found = estimate([(1.0, {0: many, 1: many}), (-1.0, {0: few, 1: few})])
    assert found.value == pytest.approx(10.0)
    of_each = [wer_estimate({0: one, 1: one}).half for one in (many, few)]
    assert found.half == pytest.approx(math.hypot(*of_each), rel=0.1)  # drawn independently


def test_speakers_without_words_do_not_spoil_an_interval():
    found = wer_estimate({0: one_set([0, 10, 10], [0, 4, 5]), 1: one_set([0, 10, 10], [1, 5, 5])})
    assert all(map(math.isfinite, found.interval))
