"""Noise that protects nobody still has an epsilon by RDP, and PLD is computed or refused with a reason."""

import json
import math
import time

import mpmath
import pytest

from sottovoce.privacy.accounting import ADD_OR_REMOVE, REPLACE, Event, account_for, delta_at, moments, rdp
from sottovoce.privacy.claims import true_positives
from sottovoce.privacy.events import Spent
from sottovoce.privacy.planner import Plan, solve

DELTA = 1e-9
MULTIPLIERS = (1e-100, 1e-30, 1e-9, 1e-6, 9.6e-5, 1e-3, 1e-2)  # from the least that is accepted


@pytest.mark.parametrize(("q", "adjacency"), [*((q, ADD_OR_REMOVE) for q in (1e-6, 0.01, 0.5, 1.0)), (0.01, REPLACE)])
def test_every_epsilon_is_finite_and_falls_with_the_noise(q, adjacency):
    for steps in (1, 2000):
        before = math.inf
        for z in MULTIPLIERS:
            spent = {Event(z, q, adjacency): steps}
            started = time.process_time()
            found = account_for(spent, DELTA)
            assert time.process_time() - started < 5  # never minutes, whatever the noise
            assert 0 < found.rdp.epsilon <= before
            unsampled = steps / (2 * z**2) + math.sqrt(2 * steps * math.log(1 / DELTA)) / z
            assert found.rdp.epsilon <= 1.001 * unsampled
            assert (found.pld.epsilon is None) == (found.pld.reason is not None)
            assert found.pld.epsilon is None or 0 < found.pld.epsilon <= found.rdp.epsilon
            before = found.rdp.epsilon


@pytest.mark.parametrize("z", [1e-6, 9.6e-5, 1e-3, 1e-2])
def test_epsilon_without_sampling_is_the_closed_form(z):
    for order, moment in zip((1.5, 2.0, 30.0), moments(Event(z, 1.0), (1.5, 2.0, 30.0)), strict=True):
        assert moment == pytest.approx(order / (2 * z**2), rel=1e-12)
    with mpmath.workdps(60):

        def log_delta(epsilon):
            first, second = (mpmath.ncdf(sign / (2 * mpmath.mpf(z)) - epsilon * z) for sign in (1, -1))
            return mpmath.log(first - mpmath.exp(epsilon) * second) - mpmath.log(DELTA)

        exact = float(mpmath.findroot(log_delta, (1 / (2 * z**2) + 5 / z, 1 / (2 * z**2) + 7 / z), solver="anderson"))
    found = account_for({Event(z, 1.0): 1}, DELTA)
    assert exact <= found.pld.epsilon <= exact * (1 + 1e-8)
    assert exact <= found.rdp.epsilon <= exact + 2 / z


@pytest.mark.parametrize("z", [1e-6, 9.6e-5, 1e-3])
@pytest.mark.parametrize("q", [1e-6, 0.01, 0.5])
def test_moments_are_those_of_gaussians_that_do_not_overlap(z, q):
    orders = (1 + 1e-6, 1.001, 1.5, 2.0)
    with mpmath.workdps(40):
        for order, moment in zip(orders, moments(Event(z, q), orders), strict=True):
            a, b = mpmath.mpf(order), mpmath.mpf(z)
            mixture = (1 - mpmath.mpf(q)) ** a + mpmath.mpf(q) ** a * mpmath.exp(a * (a - 1) / (2 * b**2))
            exact = float(mpmath.log(mixture) / (a - 1))
            rounding = 2.0**-41 * order**2 / (2 * z**2) / (order - 1)
            assert exact * (1 - 1e-12) <= moment <= exact * (1 + 1e-8) + rounding


def test_the_symmetric_pair_costs_no_more_than_no_sampling():
    for z in (1e-30, 3e-5, 1e-3):
        sampled, plain = (rdp({Event(z, q, REPLACE): 7}, DELTA).epsilon for q in (0.3, 1.0))
        assert 0.3 * plain < sampled <= plain


def test_deltas_and_attackers_have_an_answer():
    for z in MULTIPLIERS:
        for q in (0.01, 1.0):
            delta = delta_at({Event(z, q): 1}, 1.0)
            assert delta is None or q * 0.99 < delta <= 1
            rate = true_positives(Spent({Event(z, q): 1}), 0.01)
            assert rate is None or 0 < rate <= 1


def test_the_command_answers_in_json(sotto):
    for sampling in ("poisson", "fixed", "everyone"):
        cohort = "1000" if sampling == "everyone" else "32"
        sizes = ("--sigma-dp", "3e-6", "--cohort-size", cohort, "--population", "1000", "--central-steps", "2000")
        document = sotto("privacy", "epsilon", *sizes, "--sampling", sampling, "--json").document
        json.dumps(document, allow_nan=False)
        assert document["rdp"]["epsilon"] > 1e7
        assert ("reason" in document["pld"]) == (document["pld"]["epsilon"] is None) == (sampling != "everyone")
        plan = sotto("privacy", "plan", *sizes, "--sampling", sampling, "--accounting", "rdp", "--json").document
        assert plan["epsilon"] == pytest.approx(document["rdp"]["epsilon"])


def test_noise_is_found_for_an_epsilon_that_protects_nobody():
    plan = Plan(population=1000, cohort_size=1000, sigma_dp=None, central_steps=1, epsilon=5e13)
    assert solve(plan, "pld").sigma_dp == pytest.approx(1e-10, rel=1e-3)
