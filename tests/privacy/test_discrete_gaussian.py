"""Exact draws: their distribution, and the coins that float64 cannot decide."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sottovoce.privacy import discrete_gaussian as sampler
from sottovoce.privacy.discrete_gaussian import discrete_gaussian


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
