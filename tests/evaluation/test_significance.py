"""Differences between two models on the same speakers: limits, a second opinion, and how often chance is one."""

import numpy as np
import pytest
from scipy import stats

from sottovoce.errors import DataError
from sottovoce.evaluation.intervals import Counts
from sottovoce.evaluation.significance import difference


def counts(words, edits):
    return Counts("test", np.asarray(words, np.int64), np.asarray(edits, np.int64))


def two_models(rng, speakers, gap=0.0):
    """Return two models on the same speakers, who are hard or easy for both."""
    words = rng.integers(40, 120, speakers)
    common = 0.3 + 0.1 * rng.standard_normal(speakers)
    own = 0.06 * rng.standard_normal((2, speakers))
    rates = np.clip(common + own + np.array([[gap], [0.0]]), 0, 1)
    return [counts(words, rng.binomial(words, rate)) for rate in rates]


def rejected(speakers, repetitions):
    rng = np.random.default_rng(speakers)
    return np.mean([difference(*two_models(rng, speakers)).significant for _ in range(repetitions)])


def test_without_a_difference_few_are_significant():
    assert rejected(20, 200) < 0.1  # 5 % is 10; more than 19 has a probability below 1 %


@pytest.mark.slow
@pytest.mark.parametrize("speakers", [10, 30, 100])
def test_without_a_difference_one_in_twenty_is_significant(speakers):
    assert 0.035 < rejected(speakers, 2000) < 0.065


def test_swapping_models_at_random_gives_the_same_p_value():
    rng = np.random.default_rng(7)
    for gap in (0.0, 0.03, 0.06):
        first, second = two_models(rng, 40, gap)
        ours = difference(first, second)

        def statistic(one, other, axis, words=first.words):
            return (one - other).sum(axis) / words.sum()

        permuted = stats.permutation_test(
            (first.edits, second.edits),
            statistic,
            permutation_type="samples",
            n_resamples=4000,
            vectorized=True,
            rng=rng,
        )
        assert ours.points == pytest.approx(100 * permuted.statistic)
        assert ours.p_value == pytest.approx(permuted.pvalue, abs=0.03)
        assert ours.significant == (ours.interval[0] > 0 or ours.interval[1] < 0)


def test_equal_models_do_not_differ_and_constant_differences_do():
    words, edits = [10, 20, 30], [1, 2, 9]
    same = difference(counts(words, edits), counts(words, edits))
    assert (same.points, same.p_value, same.significant) == (0.0, 1.0, False)
    shifted = difference(counts([10] * 5, [4] * 5), counts([10] * 5, [2] * 5))
    assert (round(shifted.points, 6), shifted.p_value, shifted.significant) == (20.0, 0.0, True)


def test_one_speaker_proves_nothing_and_other_speech_is_refused():
    alone = difference(counts([10], [4]), counts([10], [2]))
    assert (alone.interval, alone.p_value, alone.significant) == (None, None, False)
    with pytest.raises(DataError, match="not evaluated on the same speech"):
        difference(counts([10, 10], [4, 4]), counts([10, 11], [4, 4]))
