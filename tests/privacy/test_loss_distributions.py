"""Deltas of a sampled Gaussian on a grid, against dp-accounting and against 80 digits."""

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from sottovoce.privacy.events import Event
from sottovoce.privacy.loss_distributions import _bounds, _deltas, sampled_gaussian
from sottovoce.privacy.tight import rounding as allowed

CASES = [
    *((0.6144, 0.002947), (30.0, 0.1), (0.05, 0.3), (1.0, 0.999), (1.5, 1e-6), (0.3, 1e-3), (1.0, 1.0)),
    *((1.0, 1 - 1e-9), (0.1, 1.0), (0.0006144, 0.0295), (0.001, 0.9)),
]


def rounding(z, q):
    """Return what accounting allows for the rounding errors of one release."""
    return allowed({Event(z, q): 1})


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize(("z", "q"), CASES)
def test_deltas_are_dp_accountings(z, q, removed):
    low, high = _bounds(z, q, removed=removed)
    epsilons = np.linspace(low - 0.1, high + 0.1, 301)
    theirs = GaussianPrivacyLoss(
        z, sampling_prob=q, adjacency_type=AdjacencyType.REMOVE if removed else AdjacencyType.ADD
    )
    ours = _deltas(z, q, epsilons, removed=removed)
    tolerance = 2 * rounding(z, q) if q < 1 - 1e-6 else 1e-9  # theirs cancels where q is next to 1
    np.testing.assert_allclose(ours, theirs.get_delta_for_epsilon(epsilons), rtol=0, atol=tolerance)
    assert (np.diff(ours) <= 0).all()


def exact_delta(z, q, epsilon, *, removed):
    """Return delta from the densities' crossing, with 60 digits more than a double has."""
    ratio, share, scale = mpmath.exp(epsilon if removed else -epsilon), mpmath.mpf(q), mpmath.mpf(z)
    if ratio <= 1 - share:
        return max(1 - ratio, 0) if removed else mpmath.mpf(0)
    c = mpmath.mpf("0.5") + scale**2 * mpmath.log((ratio - 1 + share) / share)
    if removed:
        return share * mpmath.ncdf((1 - c) / scale) + (1 - share - ratio) * mpmath.ncdf(-c / scale)
    near, far = mpmath.ncdf(c / scale), mpmath.ncdf((c - 1) / scale)
    return near - ((1 - share) * near + share * far) / ratio


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize(("z", "q"), CASES)
def test_deltas_agree_with_exact_ones(z, q, removed):
    low, high = _bounds(z, q, removed=removed)
    least = np.log1p(-q) if q < 1 else low
    edges = [np.nextafter(least, 1), np.nextafter(least, -2), 0.0] if removed else [np.nextafter(-least, 0), 0.0]
    epsilons = np.unique([*np.linspace(low, high, 9), *edges])
    with mpmath.workdps(80):
        for epsilon, ours in zip(epsilons.tolist(), _deltas(z, q, epsilons, removed=removed), strict=True):
            error = float(ours - exact_delta(z, q, mpmath.mpf(epsilon), removed=removed))
            assert abs(error) <= rounding(z, q), epsilon


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
    for epsilon in (-5.0, -2.0, 0.5, 2.0, 5.0):
        for direction in ("_pmf_remove", "_pmf_add"):
            expected = getattr(theirs, direction).get_delta_for_epsilon(epsilon)
            assert getattr(ours, direction).get_delta_for_epsilon(epsilon) == pytest.approx(expected, rel=1e-6)
    alone = sampled_gaussian(2.0, 1.0, 1e-3)
    expected = privacy_loss_distribution.from_gaussian_mechanism(2.0, value_discretization_interval=1e-3)
    assert alone.get_delta_for_epsilon(1.0) == pytest.approx(expected.get_delta_for_epsilon(1.0), rel=1e-9)
