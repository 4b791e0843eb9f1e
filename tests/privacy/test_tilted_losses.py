"""The tilted FFT: upper bounds that are never below rigorous lower bounds, and close to them."""

import math

import mpmath
import numpy as np
import pytest
from scipy.fft import irfft, rfft

from lower_bounds import lower_delta
from sottovoce.privacy.events import ADD_OR_REMOVE, REPLACE, Event
from sottovoce.privacy.loss_masses import UNIT, masses
from sottovoce.privacy.renyi import rdp
from sottovoce.privacy.tight import delta_at, gaussian_epsilon, pld
from sottovoce.privacy.tilt_search import _delta, _epsilon, _Sum, tilted_delta, tilted_epsilon
from sottovoce.privacy.tilted_losses import Composed, Window, _beyond, _Tilted, compose

# z, q, releases, direction, epsilon, then the grid of the lower bound: interval, spread, largest loss.
CASES = [
    (1.0, 0.03, 20, "remove", 4.0, 0.02, 1.0, 8.0),
    (1.0, 0.03, 20, "add", 0.4, 0.002, 0.7, 0.7),
    (1.0, 0.03, 20, "symmetric", 4.0, 0.02, 1.5, 8.0),
    (2.0, 0.01, 60, "remove", 0.4, 0.002, 0.35, 0.9),
    (1.0, 1e-3, 8, "remove", 0.1, 4e-4, 0.02, 0.4),
]


@pytest.mark.parametrize(("z", "q", "count", "direction", "epsilon", "interval", "spread", "high"), CASES)
def test_delta_is_just_above_a_lower_bound_in_exact_integers(z, q, count, direction, epsilon, interval, spread, high):
    event = Event(z, q, REPLACE if direction == "symmetric" else ADD_OR_REMOVE)
    least = lower_delta(z, q, count, direction, epsilon, interval=interval, spread=spread, high=high)
    found = _delta({event: count}, direction, epsilon)
    assert 0 < least <= found < 1.15 * least
    assert least < 1e-6  # far below the bulk


# Epsilons that no accountant may go below: the lower bounds of `lower_bounds.py` on fine grids, which take minutes.
LEAST = [
    (1.0, 1e-3, 1000, 1e-12, "remove", 0.88305),
    (1.0, 1e-3, 1000, 1e-12, "symmetric", 0.89076),
    (1.0, 1e-5, 1000, 1e-9, "remove", 0.0024144),
    (10.0, 1e-4, 1000, 1e-9, "remove", 0.0013325),
    (5.0, 1e-3, 10_000, 1e-12, "remove", 0.12564),
    (2.56, 0.0166, 2013, 1e-20, "remove", 2.8441),
    (1.0, 1e-6, 10_000, 1e-9, "remove", 0.00054146),
    (2.0, 1e-3, 100_000, 1e-10, "remove", 0.99113),
    (5.0, 1e-3, 10_000, 1e-12, "symmetric", 0.13414),
    (2.56, 0.0166, 2013, 1e-20, "add", 2.6068),
    pytest.param(1.0, 1e-4, 1_000_000, 1e-12, "remove", 0.85528, marks=pytest.mark.slow),
    pytest.param(1.0, 1e-5, 1000, 1e-12, "remove", 0.0070361, marks=pytest.mark.slow),  # by several terms
]


@pytest.mark.parametrize(("z", "q", "count", "delta", "direction", "least"), LEAST)
def test_epsilon_is_just_above_lower_bounds(z, q, count, delta, direction, least):
    event = Event(z, q, REPLACE if direction == "symmetric" else ADD_OR_REMOVE)
    found = _epsilon({event: count}, direction, delta)
    assert least <= found <= 1.015 * least
    assert found <= rdp({event: count}, delta).epsilon


@pytest.mark.parametrize("adjacency", [ADD_OR_REMOVE, REPLACE])
@pytest.mark.parametrize(
    ("z", "count", "delta"), [(1.0, 1, 1e-9), (5.0, 400, 1e-20), (0.3, 3, 1e-30), (200.0, 10**5, 1e-15)]
)
def test_without_sampling_it_is_the_closed_form(z, count, delta, adjacency):
    exact = gaussian_epsilon(z / math.sqrt(count), delta)
    assert exact * (1 - 1e-8) <= tilted_epsilon({Event(z, 1.0, adjacency): count}, delta) <= exact * (1 + 2e-4)


def test_several_kinds_of_releases_compose():
    one, other = {Event(1.0, 0.01): 30}, {Event(2.0, 0.1): 10}
    alone = [tilted_epsilon(events, 1e-15) for events in (one, other)]
    assert max(alone) < tilted_epsilon(one | other, 1e-15) < sum(alone)
    halves = tilted_epsilon({Event(1.0, 0.01): 20, Event(1.0 + 1e-12, 0.01): 10}, 1e-15)
    assert halves == pytest.approx(alone[0], rel=1e-3)


def test_delta_and_epsilon_are_each_others_inverse():
    spent = {Event(1.0, 0.01): 100}
    epsilon = pld(spent, 1e-17).epsilon
    assert tilted_delta(spent, epsilon) == pytest.approx(1e-17, rel=5e-3)
    assert delta_at(spent, epsilon, small=True) == pytest.approx(1e-17, rel=5e-3)
    assert delta_at(spent, epsilon) > 1e-14  # the rounding errors of the plain FFT


def test_a_small_epsilon_is_not_lost_on_a_coarse_grid():
    spent = {Event(10.0, 1e-4): 1000}
    assert 0.0013325 <= pld(spent, 1e-9).epsilon < 0.001336  # 0.00149 on the grid of the plain FFT


@pytest.mark.parametrize(("z", "q"), [(1.0, 0.01), (0.3, 1e-4), (30.0, 0.2), (5.0, 1 - 1e-9)])
@pytest.mark.parametrize("direction", ["remove", "add", "symmetric"])
def test_masses_are_those_of_the_distributions(z, q, direction):
    found = masses(z, q, direction, 0.01 / z if z > 1 else 0.05, 1e-30)
    p = np.exp(found.log_masses)
    losses = found.anchor + found.interval * found.places
    assert p.sum() == pytest.approx(1.0, rel=1e-11)
    assert (p * np.exp(-losses)).sum() == pytest.approx(1.0, rel=1e-9)  # the other distribution's mass
    assert 0 <= found.infinite < 1e-29


def exact_mass(q, interval, place):
    """Return a mass of the mixture with z = 1, by 60-digit quadrature over the two cells beside its place."""
    q, half = mpmath.mpf(q), mpmath.mpf("0.5")
    ratio = [(1 - q) * mpmath.exp(k * mpmath.mpf(interval)) for k in (place - 1, place, place + 1)]
    low, here, high = (half + mpmath.log((one - 1 + q) / q) for one in ratio)

    def r(x):
        return 1 - q + q * mpmath.exp(x - half)

    up = mpmath.quad(lambda x: mpmath.npdf(x) * (r(x) - ratio[0]) / (ratio[1] - ratio[0]), [low, here])
    down = mpmath.quad(lambda x: mpmath.npdf(x) * (ratio[2] - r(x)) / (ratio[2] - ratio[1]), [here, high])
    return (up + down) * ratio[1]


def test_a_mass_in_the_tail_has_all_its_digits():
    found = masses(1.0, 1e-3, "remove", 0.05, 1e-40)
    with mpmath.workdps(60):
        for place in (3, 60, 130):
            mass = math.exp(found.log_masses[place - found.first])
            assert abs(mass / exact_mass(1e-3, 0.05, place) - 1) <= found.error
    assert mass < 1e-20


@pytest.mark.parametrize("points", [2**8, 2**12, 2**16])
def test_the_bound_on_the_error_of_the_fft_holds(points):
    rng = np.random.default_rng(0)
    bound = 8 * math.log2(points) * UNIT
    for values in (rng.random(points), np.exp(-np.arange(points) / 3.0), np.eye(1, points, 5)[0]):
        exact = rfft(values.astype(np.longdouble))
        error = np.linalg.norm(rfft(values) - exact)
        assert error <= bound * np.linalg.norm(exact) / math.sqrt(2)
        back = irfft(exact, points) - irfft(exact.astype(np.complex128), points)
        assert np.linalg.norm(back) <= bound * np.linalg.norm(values)


@pytest.mark.parametrize("direction", ["remove", "add", "symmetric"])
@pytest.mark.parametrize("z", [0.02, 0.026, 0.03, 0.04, 0.1])
def test_no_mass_is_lost_where_float64_ends(z, direction):
    found = masses(z, 0.5, direction, 1e-3 / z, 1e-17)
    if z < 0.036:  # the mixture lies where the Gaussian's density is no number
        assert found is None
    else:
        assert np.exp(found.log_masses).sum() + found.infinite == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("direction", "least"), [("remove", 0.0259173), ("add", 0.0100707)])
@pytest.mark.parametrize("tilt", [1.0, 1e5, 1e7])
def test_any_tilt_gives_an_upper_bound(direction, least, tilt):
    window = Window(tilt, 1.0, -5.0, 40.0)
    assert (
        compose([(masses(1.0, 0.1, direction, 1e-2, 1e-15), 1)], 0.0, window).delta(0.0512) >= least
    )  # with 60 digits


def test_a_steep_tilt_loses_nothing_where_a_user_is_added():
    exact = 0.1718208823  # with 60 digits
    assert exact <= _epsilon({Event(0.10105, 0.15787): 1}, "add", 4e-22) <= exact * (1 + 1e-6)


def test_the_smallest_intervals_have_an_epsilon():
    found = masses(50.0, 1e-8, "remove", 1e-10, 1e-15)
    assert len(found.between(-math.inf, math.inf).log_masses) == len(found.log_masses)
    assert len(found.between(math.inf, math.inf).log_masses) == 0
    assert 0 < tilted_epsilon({Event(50.0, 1e-8): 1}, 1e-12) < 1e-9


def composed_of(losses, tilted, outside):
    return Composed(
        tilt=1.0, log_scale=0.0, losses=np.array(losses), tilted=np.array(tilted), error=0.0, outside=outside
    )


@pytest.mark.parametrize(("losses", "outside"), [([-2.0, -1.0], 0.5), ([1.0, 2.0], math.nan), ([1.0, 2.0], 0.5)])
def test_no_epsilon_is_returned_that_was_not_checked(losses, outside):
    assert _Sum([composed_of(losses, [0.5, 0.5], outside)], 0.0).epsilon(1e-9) == math.inf


def test_a_large_weight_counts_whole_beyond_the_window():
    part = _Tilted(masses(1.0, 0.1, "remove", 1e-2, 1e-15), 1, 20.0)
    without, weighed = (math.log(_beyond([part], weight, (20.0,) * 2, 40.0)) for weight in (0.0, 900.0))
    assert weighed == pytest.approx(without + 900.0)


def test_folding_has_its_own_rounding_error():
    found = masses(1.0, 0.1, "remove", 1e-4, 1e-15)
    count, window = 10**6, Window(1e-4, 1.0, 0.0, 1e-3)
    moment = _Tilted(found, count, window.tilt)
    exact = count * (moment.log_total + 1.01 * moment.error)
    folded = len(found.log_masses) / 256
    assert compose([(found, count)], 0.0, window).log_scale >= exact + count * UNIT * folded


@pytest.mark.parametrize("direction", ["remove", "add", "symmetric"])
def test_a_wide_grid_does_not_end_where_float64_has_no_mass(direction):
    assert masses(1.0, 0.5, direction, 40.0, 1e-17) is None
