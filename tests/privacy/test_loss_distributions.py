"""Deltas of a sampled Gaussian on a grid, against dp-accounting and against 40 digits."""

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from sottovoce.privacy.loss_distributions import _bounds, _deltas, sampled_gaussian

CASES = [(0.6144, 0.002947), (30.0, 0.1), (0.05, 0.3), (1.0, 0.999), (1.5, 1e-6), (0.3, 1e-3), (1.0, 1.0)]


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize(("z", "q"), CASES)
def test_deltas_are_dp_accountings(z, q, removed):
    low, high = _bounds(z, q, removed=removed)
    epsilons = np.linspace(low - 0.1, high + 0.1, 301)
    theirs = GaussianPrivacyLoss(
        z, sampling_prob=q, adjacency_type=AdjacencyType.REMOVE if removed else AdjacencyType.ADD
    )
    ours = _deltas(z, q, epsilons, removed=removed)
    np.testing.assert_allclose(ours, theirs.get_delta_for_epsilon(epsilons), rtol=0, atol=1e-15)
    assert (np.diff(ours) <= 0).all()


@pytest.mark.parametrize(("z", "q"), CASES)
def test_removing_agrees_with_40_digits(z, q):
    low, high = _bounds(z, q, removed=True)
    epsilons = np.linspace(max(low, -2.0), min(high, 30.0), 7)[1:-1]
    with mpmath.workdps(40):
        for epsilon, ours in zip(epsilons.tolist(), _deltas(z, q, epsilons, removed=True), strict=True):
            share, scale, ratio = mpmath.mpf(q), mpmath.mpf(z), mpmath.e**epsilon
            if ratio <= 1 - share:
                exact = 1 - ratio
            else:
                c = mpmath.mpf("0.5") + scale**2 * mpmath.log((ratio - 1 + share) / share)
                exact = share * mpmath.ncdf((1 - c) / scale) + (1 - share - ratio) * mpmath.ncdf(-c / scale)
            assert abs(float(exact) - ours) < 1e-15


def test_the_distribution_is_dp_accountings():
    ours, theirs = (
        make.self_compose(2034)
        for make in (
            sampled_gaussian(0.6144, 0.002947, 1e-3),
            privacy_loss_distribution.from_gaussian_mechanism(
                0.6144, sampling_prob=0.002947, value_discretization_interval=1e-3
            ),
        )
    )
    for epsilon in (0.5, 2.0, 5.0):
        assert ours.get_delta_for_epsilon(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-6)
    alone = sampled_gaussian(2.0, 1.0, 1e-3)
    expected = privacy_loss_distribution.from_gaussian_mechanism(2.0, value_discretization_interval=1e-3)
    assert alone.get_delta_for_epsilon(1.0) == pytest.approx(expected.get_delta_for_epsilon(1.0), rel=1e-9)
