"""Epsilon, checked against other libraries, quadrature, closed forms and the paper."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants.analysis import rdp as opacus_rdp

from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.privacy import tight as pld_accounting
from sottovoce.privacy.accounting import ORDERS, PAPER_ORDERS, REPLACE, Event, delta_at, moments, pld, rdp, rounded_up
from sottovoce.privacy.mechanism import plain_mechanism
from sottovoce.privacy.paper import paper_rows
from sottovoce.privacy.planner import Plan, solve
from sottovoce.privacy.tight import gaussian_epsilon, gaussian_log_delta, grid_of

DELTA = 1e-9


def quadrature(z, q, order):
    """Return the RDP of the mixture against the Gaussian, with 40 digits."""
    with mpmath.workdps(40):
        z, q, order = map(mpmath.mpf, (z, q, order))

        def inside(x):
            ratio = (1 - q) + q * mpmath.exp((2 * x - 1) / (2 * z**2))
            return mpmath.exp(-(x**2) / (2 * z**2)) / (z * mpmath.sqrt(2 * mpmath.pi)) * ratio**order

        places = sorted({-30 * z, mpmath.mpf(0), mpmath.mpf("0.5"), mpmath.mpf(1), order / 2, order, order + 30 * z})
        return float(mpmath.log(mpmath.quad(inside, places)) / (order - 1))


@pytest.mark.parametrize(("z", "q"), [(0.0006144, 0.0294651), (0.03072, 0.1596), (0.3072, 0.0294651), (0.6144, 0.0003)])
def test_the_moments_are_upper_bounds_near_40_digit_quadrature(z, q):
    orders = (1 + 1e-6, 1 + 1e-4, 1.1, 1.5, 2.5)
    for order, moment in zip(orders, moments(Event(z, q), orders), strict=True):
        exact = quadrature(z, q, order)
        assert exact <= moment <= exact * (1 + 1e-3) + 1e-6


def test_opacus_agrees_at_its_own_orders():
    event, steps = Event(1.024, 0.0295), 2006
    orders = [1 + x / 10 for x in range(1, 100)]
    theirs, order = opacus_rdp.get_privacy_spent(
        orders=orders,
        rdp=opacus_rdp.compute_rdp(q=0.0295, noise_multiplier=1.024, steps=steps, orders=orders),
        delta=DELTA,
    )
    ours = rdp({event: steps}, DELTA, tuple(orders))
    assert ours.epsilon == pytest.approx(theirs, rel=1e-6)
    assert ours.order == order


def test_pld_is_dp_accountings_own_on_a_fine_grid():
    for z, q, steps in ((0.6144, 0.002947, 2034), (2.56, 0.0166, 2013)):
        fine = privacy_loss_distribution.from_gaussian_mechanism(
            z, sampling_prob=q, value_discretization_interval=1e-4
        ).self_compose(steps)
        assert pld({Event(z, q): steps}, DELTA).epsilon == pytest.approx(fine.get_epsilon_for_delta(DELTA), rel=2e-3)


@pytest.mark.parametrize("z", [0.3, 1.0, 5.0])
def test_everyone_is_the_gaussian_mechanism_in_closed_form(z):
    event, steps = Event(z, 1.0), 10
    tight = pld({event: steps}, DELTA).epsilon
    # delta(epsilon) = Phi(1/2z - epsilon z) - e^epsilon Phi(-1/2z - epsilon z), with 40 digits
    with mpmath.workdps(40):
        one = mpmath.mpf(z) / mpmath.sqrt(steps)
        first, second = (mpmath.ncdf(sign / (2 * one) - tight * one) for sign in (1, -1))
        delta = first - mpmath.exp(tight) * second
    assert float(delta) == pytest.approx(DELTA, rel=1e-4)
    assert delta <= DELTA
    assert tight <= rdp({event: steps}, DELTA).epsilon <= 1.1 * tight
    other = privacy_loss_distribution.from_gaussian_mechanism(
        z / math.sqrt(steps), value_discretization_interval=1e-3
    ).get_epsilon_for_delta(DELTA)
    assert tight == pytest.approx(other, rel=1e-3)


@pytest.mark.parametrize("delta", [1e-9, 1e-10, 1e-12, 1e-14, 1e-20])
def test_rounding_in_the_convolutions_never_makes_epsilon_too_small(delta):
    # With q a little below 1, T releases contain those of q = 1 with probability q^T, of which the epsilon is known.
    z, q, steps = 5.0, 1 - 1e-9, 4000
    least = gaussian_epsilon(z / math.sqrt(steps), delta / q**steps) + steps * math.log(q)
    found = pld({Event(z, q): steps}, delta)
    assert least * (1 - 1e-9) <= found.epsilon <= least * (1 + 1e-3)


def test_a_gaussian_with_much_noise_costs_nothing():
    assert gaussian_epsilon(1e12, 1e-9) == 0.0
    assert gaussian_log_delta(1.0, 0.0) == pytest.approx(math.log(math.erf(0.5 / math.sqrt(2))))


def test_the_orders_hold_those_of_the_paper():
    assert set(PAPER_ORDERS) < set(ORDERS)
    assert 1.3 in ORDERS
    assert list(ORDERS) == sorted(ORDERS)


def test_small_z_needs_orders_very_near_one():
    spent = {Event(0.0006144, 1024 / 34753): 2006}
    found = rdp(spent, DELTA)
    assert found.order - 1 < 1e-5
    assert pld(spent, DELTA).epsilon < found.epsilon < 1.05 * pld(spent, DELTA).epsilon
    coarse = rdp(spent, DELTA, tuple(order for order in ORDERS if order >= 1 + 1e-4))
    assert coarse.epsilon > 15 * found.epsilon


def test_cohorts_of_fixed_size_cost_more_than_either_direction():
    q = 102_400 / 3_475_300
    mechanism = plain_mechanism(2e-5, 102_400, 3_475_300, "fixed")
    assert mechanism.z == pytest.approx(2e-5 * 102_400 / 2)
    assert mechanism.adjacency == REPLACE
    spent = mechanism.spent(2006)
    tight, loose = pld(spent, DELTA).epsilon, rdp(spent, DELTA).epsilon
    one_direction = pld({Event(mechanism.z, q): 2006}, DELTA).epsilon
    general = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    general.compose(
        dp_event.SampledWithoutReplacementDpEvent(3_475_300, 102_400, dp_event.GaussianDpEvent(mechanism.z)), 2006
    )
    assert one_direction < tight < loose < general.get_epsilon(DELTA)
    assert (one_direction, tight, loose) == (
        pytest.approx(11.92, 0.01),
        pytest.approx(14.41, 0.01),
        pytest.approx(15.14, 0.01),
    )
    poisson = pld(plain_mechanism(2e-5, 102_400, 3_475_300).spent(2006), DELTA).epsilon
    assert poisson == pytest.approx(4.22, abs=0.01)


def test_the_symmetric_moments_are_those_of_its_losses():
    # A fine grid of the mixture's own losses above 0, mirrored: the moment by summation instead of by quadrature.
    z, q, order = 0.8, 0.1, 3.0
    x = np.linspace(0.5, 30.0, 2_000_001)
    normal = np.exp(-(x**2) / (2 * z**2)) / (z * math.sqrt(2 * math.pi))
    ratio = (1 - q) + q * np.exp((2 * x - 1) / (2 * z**2))
    above = np.trapezoid(normal * ratio**order, x)
    below = np.trapezoid(normal * ratio * ratio**-order, x)
    rest = 1 - np.trapezoid(normal, x) - np.trapezoid(normal * ratio, x)
    (moment,) = moments(Event(z, q, REPLACE), (order,))
    assert moment == pytest.approx(math.log(above + below + rest) / (order - 1), rel=1e-6)


events = st.builds(Event, st.floats(0.2, 5.0), st.sampled_from([0.0003, 0.003, 0.03, 0.3, 1.0]))


@settings(deadline=None, max_examples=5)
@given(events, st.integers(1, 3000), st.floats(1.05, 3.0))
def test_epsilon_rises_with_steps_and_sampling_and_falls_with_noise_and_delta(event, steps, factor):
    base = rdp({event: steps}, DELTA).epsilon
    assert rdp({event: steps + 1}, DELTA).epsilon >= base
    assert rdp({Event(event.z * factor, event.sampling_prob): steps}, DELTA).epsilon <= base
    assert rdp({Event(event.z, min(event.sampling_prob * factor, 1.0)): steps}, DELTA).epsilon >= base * (1 - 1e-9)
    assert rdp({event: steps}, 1e-6).epsilon <= base
    tight = pld({event: steps}, DELTA).epsilon
    assert 0 <= tight <= base
    assert tight <= pld({event: 2 * steps}, DELTA).epsilon * (1 + 1e-3)


@pytest.mark.parametrize(
    ("multipliers", "rates"),
    [((0.0006, 5.0), (0.0003, 1.0)), pytest.param((0.01, 0.5), (0.03, 0.9), marks=pytest.mark.slow)],
)
def test_the_whole_range_of_the_paper_is_computed_or_refused(multipliers, rates):
    for z in multipliers:
        for q in rates:
            for steps in (1, 4000):
                spent = {Event(z, q): steps}
                loose, tight = rdp(spent, DELTA).epsilon, pld(spent, DELTA)
                assert 0 < loose < 1e10
                if tight.epsilon is None:
                    assert "grid would have" in tight.reason
                else:
                    assert 0 < tight.epsilon <= loose
                    interval, points = grid_of(spent) if q < 1 else (1.0, 0.0)
                    assert interval <= 0.1 / z or q == 1
                    assert points < 1e7


def test_a_negative_number_of_releases_is_refused():
    with pytest.raises(PrivacyError, match="no -1 releases"):
        rdp({Event(z=1.0, sampling_prob=0.01): -1}, 1e-5)


def test_runs_add_up():
    one, other = Event(1.0, 0.01), Event(2.0, 0.03)
    together = {one: 100, other: 200}
    for account in (rdp, pld):
        alone = [account({event: count}, DELTA).epsilon for event, count in together.items()]
        assert max(alone) < account(together, DELTA).epsilon < sum(alone)
    assert rdp({one: 300}, DELTA).epsilon == rdp({one: 300, other: 0}, DELTA).epsilon
    assert rdp({}, DELTA).epsilon == pld({}, DELTA).epsilon == 0.0
    with pytest.raises(PrivacyError, match="do not compose"):
        rdp({one: 1, Event(1.0, 0.01, REPLACE): 1}, DELTA)


def test_deltas_and_epsilons_are_each_others_inverse():
    for spent in ({Event(0.7, 0.01): 500}, {Event(2.0, 1.0): 5}):
        tight = pld(spent, 1e-6).epsilon
        assert delta_at(spent, tight) == pytest.approx(1e-6, rel=1e-2)


@pytest.mark.parametrize(
    ("z", "q"),
    [(0.0, 0.1), (math.nan, 0.1), (math.inf, 0.1), (1.0, 0.0), (1.0, 1.1), (-1.0, 0.1), (1e-200, 0.1), (1e200, 0.1)],
)
def test_what_has_no_guarantee_is_refused(z, q):
    with pytest.raises(PrivacyError, match="Expected z="):
        Event(z, q)
    with pytest.raises(PrivacyError, match="without noise there is no epsilon"):
        plain_mechanism(0.0, 10, 100)
    with pytest.raises(ConfigError, match="cohort_size=1000 <= population=100"):
        plain_mechanism(1.0, 1000, 100)


def test_the_smallest_moments_are_not_left_out():
    spent, orders = {Event(5.0, 1e-8): 1}, (10.5, 100.5)
    below = opacus_rdp.compute_rdp(q=1e-8, noise_multiplier=5.0, steps=1, orders=list(orders))
    assert min(below) < 0  # rounding errors
    for order, moment in zip(orders, moments(Event(5.0, 1e-8), orders), strict=True):
        assert quadrature(5.0, 1e-8, order) <= moment < 1e-9
    assert pld(spent, 1e-10).epsilon < 1e-8 < rdp(spent, 1e-10).epsilon < 0.02
    plan = Plan(population=10**7, cohort_size=10, sigma_dp=None, central_steps=2000, epsilon=2.0, target_delta=1e-8)
    assert solve(plan, "rdp").sigma_dp < 0.1


def test_more_noise_than_a_grid_can_hold_has_an_epsilon():
    assert pld({Event(1e9, 1e-4): 1}, DELTA).epsilon == 0.0
    plan = Plan(population=10**7, cohort_size=1000, sigma_dp=None, central_steps=1, epsilon=1e-3)
    assert 1e-5 < solve(plan, "pld").sigma_dp < 0.02


def test_a_grid_whose_interval_is_too_wide_is_refused():
    found = pld({Event(1e-5, 1e-3): 100}, DELTA)
    assert found.epsilon is None
    assert "an interval of" in found.reason
    for row in paper_rows():
        if row.event.sampling_prob < 1:
            assert "interval" not in (pld_accounting.refusal({row.event: row.central_steps}) or "")


def test_all_rows_of_the_paper():
    rows = paper_rows()
    assert len(rows) == 88
    differing = {
        row.line: row.note for row in rows if not row.agrees(rdp({row.event: row.central_steps}, DELTA, row.orders))
    }
    assert sorted(differing) == [484, 495, 2271, 2290, 2355, 2360, 2452]
    assert all(note.startswith("misprint") for note in differing.values())


def test_tight_epsilons_of_the_paper():
    printed = {7.2: 6.29, 4.5: 4.22, 5.5: 4.66, 3.7: 2.62, 2.1: 1.16, 1.2: 0.13}
    seen = set()
    for row in paper_rows():
        if row.epsilon in printed and row.epsilon not in seen:
            spent = {row.event: row.central_steps}
            found = pld(spent, DELTA).epsilon
            raw = pld_accounting.composed(tuple(spent.items())).get_epsilon_for_delta(DELTA)
            assert raw <= rdp(spent, DELTA).epsilon  # before the smaller of the two is taken
            if found == pytest.approx(printed[row.epsilon], abs=0.01):
                seen.add(row.epsilon)
    assert seen == set(printed)


def test_epsilon_is_rounded_up():
    assert rounded_up(32742.12) == "3.28e+04"
    assert rounded_up(0.562636) == "0.563"
    assert rounded_up(6.29) == "6.29"
    assert rounded_up(9.999) == "10"
    assert rounded_up(0.0) == "0"
    assert rounded_up(1.0000001) == "1.01"


@pytest.mark.parametrize(
    "events",
    [
        {Event(1.0, 0.01): 1000},
        {Event(0.001, 0.03): 1},  # the best order is close to 1
        {Event(30.0, 0.05): 2, Event(9.0, 1e-4): 1},  # and here it is in the hundreds
        {Event(0.6, 0.003): 10**5, Event(2.0, 0.1): 3},
        {Event(3.0, 1.0): 5},
        {Event(0.05, 0.01, REPLACE): 7},  # high orders cannot be computed
    ],
)
@pytest.mark.parametrize("delta", [1e-4, 1e-9])
def test_the_search_finds_the_best_of_all_orders(events, delta):
    grid = np.array(ORDERS)
    spent = sum(count * moments(event) for event, count in events.items())
    # The conversion of Canonne, Kamath and Steinke (2020), proposition 12.
    each = spent + np.log((grid - 1) / grid) - (np.log(delta) + np.log(grid)) / (grid - 1)
    found = rdp(events, delta)
    assert found.epsilon == pytest.approx(each.min(), rel=1e-12)
    assert found.order == ORDERS[each.argmin()]


@pytest.mark.parametrize(
    ("known", "unknown", "expected"),
    [
        pytest.param(
            {"cohort_size": 204_800, "sigma_dp": 3e-6, "central_steps": 2000, "epsilon": 10.0},
            *("population", 33.0e6),
            marks=pytest.mark.slow,
        ),
        ({"population": 7_000_000, "sigma_dp": 1e-5, "central_steps": 2000, "epsilon": 10.0}, "cohort_size", 69.5e3),
        ({"population": 69_506_000, "cohort_size": 204_800, "sigma_dp": 3e-6, "central_steps": 2034}, "epsilon", 6.295),
        pytest.param(
            {"population": 69_506_000, "cohort_size": 204_800, "sigma_dp": 3e-6, "epsilon": 6.295},
            *("central_steps", 2034),
            marks=pytest.mark.slow,
        ),
        ({"cohort_size": 204_800, "sigma_dp": 1e-5, "central_steps": 2000, "epsilon": 0.05}, "population", 479.6e6),
        ({"population": 69_506_000, "cohort_size": 204_800, "central_steps": 2034, "epsilon": 6.295}, "sigma_dp", 3e-6),
    ],
)
def test_plans_are_solved_for_what_is_missing(known, unknown, expected):
    plan = Plan(**{unknown: None}, **known)
    found = solve(plan, "pld")
    assert getattr(found, unknown) == pytest.approx(expected, rel=3e-3)


def test_plans_for_cohorts_of_fixed_size():
    found = solve(
        Plan(
            population=3_475_300,
            cohort_size=102_400,
            sigma_dp=None,
            central_steps=2006,
            epsilon=15.14,
            sampling="fixed",
        ),
        "rdp",
    )
    assert found.sigma_dp == pytest.approx(2e-5, rel=1e-3)


def test_plans_that_cannot_be_solved_are_one_line():
    others = {"sigma_dp": 1e-5, "central_steps": 2000}
    with pytest.raises(ConfigError, match="2 are missing"):
        solve(Plan(population=None, cohort_size=None, **others, epsilon=10.0), "rdp")
    with pytest.raises(PrivacyError, match="No cohort_size between 1 and 1000 keeps epsilon 1"):
        solve(Plan(population=1000, cohort_size=None, **others, epsilon=1.0), "rdp")


def test_a_moment_whose_series_opacus_gives_up_is_left_out():
    event = Event(229750743.24938896, 0.18857652576755962)  # opacus raises at this order
    assert math.isinf(moments(event, (1.3686945064519576,))[0])
    assert rdp({event: 32}, 1e-9).epsilon < 0.02
