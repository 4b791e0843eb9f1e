"""The estimators of an audit: worked arithmetic, limits, second opinions, and how often they are wrong."""

import json
import math

import numpy as np
import pytest
from scipy.stats import binom

from conftest import ROOT
from sottovoce.auditing.claimed_curve import floor_of, refuted_noise, with_noise
from sottovoce.auditing.one_run import (
    Guesses,
    binomial_epsilon,
    binomial_p_value,
    curve_floor,
    exceeds_curve,
    gaussian_floor,
    largest,
    ranked_guesses,
)
from sottovoce.privacy.accounting import Event, Spent, pld
from sottovoce.privacy.tight import gaussian_epsilon, gaussian_log_delta

GOLDEN = json.loads((ROOT / "tests" / "golden" / "auditing.json").read_text())
DELTA, SIGNIFICANCE = GOLDEN["delta"], GOLDEN["significance"]


def gaussian_bound(guesses: Guesses, canaries: int, significance: float = SIGNIFICANCE) -> float:
    """Return the least epsilon of a Gaussian that agrees with the guesses."""
    mu = largest(lambda mu: exceeds_curve(guesses, canaries, gaussian_floor(mu), significance), 64)
    return gaussian_epsilon(1 / mu, DELTA) if mu else 0.0


def gaussian_audit(rng: np.random.Generator, canaries: int, mu: float) -> tuple[Guesses, ...]:
    coins = rng.random(canaries) < 0.5
    return ranked_guesses(mu * coins + rng.standard_normal(canaries), coins)


def test_ten_correct_guesses_of_ten():
    # Under epsilon all are right with probability (e^eps / (1 + e^eps))^10, which is 0.05 at eps = 1.0495.
    assert binomial_p_value(Guesses(10, 10), 10, 0.0, 0.0) == pytest.approx(2.0**-10)
    bound = binomial_epsilon([Guesses(10, 10)], 10, 0.0)
    assert (1 / (1 + math.exp(-bound))) ** 10 == pytest.approx(0.05, rel=1e-3)


def test_delta_adds_to_the_p_value():
    guesses, right = Guesses(10, 10), 1 / (1 + math.exp(-1))
    fewer = np.arange(1, 11)
    alpha = max((binom.sf(10 - fewer - 1, 10, right) - right**10) / fewer)
    assert binomial_p_value(guesses, 20, 1.0, 1e-3) == pytest.approx(right**10 + 2 * 20 * 1e-3 * alpha)
    assert binomial_epsilon([guesses], 10, 1e-2) < binomial_epsilon([guesses], 10, 0.0)


def test_guesses_are_those_furthest_from_the_median():
    odds = np.array([5.0, 1.0, 0.0, -1.0, -7.0, 0.1, 0.2, -0.2])
    coins = np.array([True, False, True, False, False, True, True, False])
    found = {guess.made: guess.correct for guess in ranked_guesses(odds, coins)}
    assert found[1] == 1  # -7 is out
    assert found[2] == 2  # and 5 is in
    assert found[4] == 3  # 1 is guessed to be in, and is not


def test_chance_proves_nothing():
    guesses = (Guesses(500, 260), Guesses(1000, 512))
    assert binomial_epsilon(guesses, 1000, DELTA) == 0
    assert (
        refuted_noise(Spent({Event(2.0, 1.0): 1}), lambda floor: exceeds_curve(guesses[1], 1000, floor, 0.05)) is None
    )


@pytest.mark.parametrize(
    "row", GOLDEN["jax_privacy 2.0.0"], ids=lambda row: f"{row['canaries']}-{row['mu']}-{row['made']}"
)
def test_bounds_equal_those_of_jax_privacy(row):
    guesses = Guesses(row["made"], row["correct"])
    assert binomial_epsilon([guesses], row["canaries"], DELTA) == pytest.approx(row["jax_privacy_one_run"], abs=2e-4)
    assert gaussian_bound(guesses, row["canaries"]) == pytest.approx(row["jax_privacy_one_run_fdp"], abs=5e-4)


@pytest.mark.parametrize("row", GOLDEN["opake-auditing 0.16.1"], ids=lambda row: f"{row['canaries']}-{row['mu']}")
def test_bounds_of_all_guesses_agree_with_opake(row):
    """opake takes delta into account another way: it leaves out the share delta of the guesses."""
    found = binomial_epsilon([Guesses(row["made"], row["correct"])], row["canaries"], DELTA)
    assert row["opake_eps_delta"] * 0.995 - 1e-3 <= found <= row["opake_eps_delta"] + 1e-3


def test_pairs_of_epsilon_and_delta_stand_for_the_curve():
    mu = 1.0
    epsilons = np.linspace(0, 8, 400)
    deltas = np.array([math.exp(gaussian_log_delta(1 / mu, epsilon)) for epsilon in epsilons])
    some, exact = curve_floor(epsilons, deltas), gaussian_floor(mu)
    for right in (0.001, 0.01, 0.1, 0.5, 0.9, 0.99):
        assert some(right) <= exact(right) + 1e-12  # fewer pairs promise less
        assert some(right) == pytest.approx(exact(right), rel=2e-3, abs=1e-6)


def test_the_curve_of_sampled_releases_is_between_those_of_less_and_of_no_sampling():
    everyone, sampled = floor_of(Spent({Event(2.0, 1.0): 4})), floor_of(Spent({Event(2.0, 0.25): 4}))
    for right in (0.01, 0.1, 0.4):
        assert everyone(right) < sampled(right) <= right


def test_less_noise_is_refuted_only_by_better_guesses():
    spent = Spent({Event(2.0, 1.0): 1})

    def factor(correct: int) -> float:
        return refuted_noise(spent, lambda floor: exceeds_curve(Guesses(250, correct), 1000, floor, 0.05)) or math.inf

    factors = [factor(correct) for correct in (175, 200, 225, 250)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] > 1 > factors[-1]
    # The bound is an epsilon at which the curve is still refuted.
    assert exceeds_curve(Guesses(250, 250), 1000, floor_of(with_noise(spent, factors[-1])), 0.05)


@pytest.mark.parametrize(("canaries", "mu"), [(200, 0.5), (1000, 0.5), (200, 2.0)])
def test_a_gaussian_is_refuted_in_fewer_audits_than_promised(canaries, mu):
    """At most 5 % may be; 300 audits, of which more than 24 would have a probability of 1 % at 5 %."""
    rng = np.random.default_rng(round(canaries + 10 * mu))
    floor, epsilon = gaussian_floor(mu), gaussian_epsilon(1 / mu, DELTA)
    refuted = above = 0
    for _ in range(300):
        guesses = gaussian_audit(rng, canaries, mu)
        refuted += any(exceeds_curve(guess, canaries, floor, 0.05 / len(guesses)) for guess in guesses)
        above += any(binomial_p_value(guess, canaries, epsilon, DELTA) <= 0.05 / len(guesses) for guess in guesses)
    assert refuted <= 24
    assert above <= 24


def test_a_mechanism_that_uses_up_its_epsilon_is_refuted_in_fewer_audits_than_promised():
    """Randomised response is the mechanism for which the binomial test is tight."""
    rng, epsilon, canaries = np.random.default_rng(0), 1.0, 200
    refuted = 0
    for _ in range(1000):
        coins = rng.random(canaries) < 0.5
        answers = coins ^ (rng.random(canaries) < 1 / (1 + math.exp(epsilon)))
        guess = Guesses(canaries, int((answers == coins).sum()))
        refuted += binomial_p_value(guess, canaries, epsilon, 0.0) <= 0.05
    assert 15 <= refuted <= 68  # 5 %, four standard deviations up


def test_epsilon_falls_with_noise():
    spent = Spent({Event(2.5, 0.1): 20})
    less, more = (pld(with_noise(spent, factor), DELTA).epsilon for factor in (0.5, 2.0))
    assert less is not None
    assert more is not None
    assert less > more
