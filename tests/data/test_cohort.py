import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sottovoce.data.cohort import poisson_cohort
from sottovoce.errors import ConfigError
from sottovoce.randomness import stream


@given(st.integers(0, 5000), st.floats(0, 1), st.integers(0, 2**32))
def test_a_cohort_is_a_set_of_users(population, sampling_prob, seed):
    cohort = poisson_cohort(population, sampling_prob, np.random.default_rng(seed))
    assert cohort.dtype == np.int64
    assert (np.diff(cohort) > 0).all()
    assert ((cohort >= 0) & (cohort < population)).all()


def test_q_of_one_is_everyone_and_zero_is_no_one():
    assert poisson_cohort(7, 1.0, stream(0, "cohort")).tolist() == list(range(7))
    assert poisson_cohort(7, 0.0, stream(0, "cohort")).size == 0
    assert poisson_cohort(0, 0.5, stream(0, "cohort")).size == 0


def test_an_empty_cohort_happens_as_often_as_it_should():
    empty = sum(poisson_cohort(20, 0.1, stream(0, "cohort", step)).size == 0 for step in range(4000))
    assert stats.binomtest(empty, 4000, 0.9**20).pvalue > 1e-4


@pytest.mark.parametrize(("population", "sampling_prob"), [(50, 0.03), (50, 0.4), (50, 0.97), (1000, 0.002)])
def test_size_is_binomial_and_every_user_is_as_likely(population, sampling_prob):
    draws = 6000
    hits = np.zeros(population)
    sizes = []
    for step in range(draws):
        cohort = poisson_cohort(population, sampling_prob, stream(1, "cohort", step))
        hits[cohort] += 1
        sizes.append(cohort.size)
    values = np.arange(population + 1)
    expected = draws * stats.binom.pmf(values, population, sampling_prob)
    seen = np.bincount(sizes, minlength=population + 1)
    common = expected > 5
    groups_seen = np.append(seen[common], seen[~common].sum())
    groups_expected = np.append(expected[common], expected[~common].sum())
    keep = groups_expected > 0
    assert stats.chisquare(groups_seen[keep], groups_expected[keep], sum_check=False).pvalue > 1e-4
    spread = ((hits - draws * sampling_prob) ** 2 / (draws * sampling_prob * (1 - sampling_prob))).sum()
    assert 1e-4 < stats.chi2.cdf(spread, population) < 1 - 1e-4


def test_users_join_independently():
    joined = np.zeros((8000, 4))
    for step in range(8000):
        joined[step, poisson_cohort(4, 0.3, stream(2, "cohort", step))] = 1
    correlations = np.corrcoef(joined.T)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(8000)


def test_seven_hundred_million_users_cost_only_the_cohort():
    population, size = 700_000_000, 204_800
    started = time.process_time()
    cohort = poisson_cohort(population, size / population, stream(0, "cohort"))
    assert time.process_time() - started < 2.0  # a loop over the population would take a minute
    assert abs(cohort.size - size) < 6 * np.sqrt(size)
    assert stats.kstest(cohort / population, "uniform").pvalue > 1e-4


def test_extreme_populations_do_not_overflow():
    assert poisson_cohort(2**61, 1e-300, stream(0, "cohort")).size == 0
    cohort = poisson_cohort(2**61, 1000 / 2**61, stream(0, "cohort"))
    assert 800 < cohort.size < 1200
    assert (np.diff(cohort) > 0).all()
    assert cohort.max() < 2**61


@pytest.mark.parametrize(("population", "sampling_prob"), [(-1, 0.1), (10, -0.1), (10, 1.1), (10, float("nan"))])
def test_impossible_arguments_are_refused(population, sampling_prob):
    with pytest.raises(ConfigError, match="Expected 0 <="):
        poisson_cohort(population, sampling_prob, stream(0, "cohort"))


class EveryGapIsOne(np.random.Generator):
    """A generator whose gaps are far too small, so that one round is never enough."""

    def geometric(self, _p, size=None):
        return np.zeros(size, dtype=np.int64)  # numpy gives 0 where its uniform is exactly 0


def test_rounds_follow_each_other_without_a_gap_and_no_one_is_in_twice():
    rng = EveryGapIsOne(np.random.Philox(0))
    assert poisson_cohort(1000, 0.01, rng).tolist() == list(range(1000))


@pytest.mark.parametrize("sampling_prob", [0.003, 0.03, 0.3, 0.5])
def test_the_probability_is_exact_to_a_thousandth(sampling_prob):
    population, draws = 100_000, int(400 / sampling_prob**0.5)
    members = sum(poisson_cohort(population, sampling_prob, stream(3, "cohort", step)).size for step in range(draws))
    trials = population * draws
    deviation = (members - trials * sampling_prob) / np.sqrt(trials * sampling_prob * (1 - sampling_prob))
    assert abs(deviation) < 4.5
    assert abs(members / trials / sampling_prob - 1) < 0.001
