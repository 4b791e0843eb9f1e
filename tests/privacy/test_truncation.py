"""Cohorts with a largest size: the tail of the binomial, and the guarantee itself by brute force."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from ledgers import charged, checkpoint, header_of, mechanism
from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import Event, Spent, delta_at, pld, rdp
from sottovoce.privacy.claims import claim_at, claim_for, open_account, statement, true_positives
from sottovoce.privacy.truncation import cut_probability, least_cap
from sottovoce.randomness import SecureRandomness, stream
from sottovoce.runs.verification import verify


@pytest.mark.parametrize(("population", "q"), [(1, 0.5), (7, 0.25), (40, 0.125), (40, 0.9375), (150, 0.0625)])
def test_the_probability_of_a_cut_is_never_below_the_exact_one_and_hardly_above(population, q):
    share = Fraction(q)
    terms = [math.comb(population, n) * share**n * (1 - share) ** (population - n) for n in range(population + 1)]
    spread = math.sqrt(population * q * (1 - q))
    for cap in range(1, population + 3):
        exact, bound = sum(terms[cap:], Fraction(0)), cut_probability(population, q, cap)
        assert exact <= Fraction(bound) <= 1
        if cap > population * q + 2 * spread:
            assert bound <= 1.2 * float(exact)
    assert cut_probability(population, q, population + 1) == 0


@pytest.mark.parametrize(("population", "cohort"), [(10_000, 500), (69_506_000, 204_800), (10**12, 10**6)])
def test_large_tails_agree_with_the_incomplete_beta_function(population, cohort):
    q = cohort / population
    for deviations in (3, 6, 9, 15):
        cap = math.ceil(cohort + deviations * math.sqrt(cohort))
        ratio = cut_probability(population, q, cap) / stats.binom.sf(cap - 1, population, q)
        assert 1 <= ratio < 1 + 2 / deviations**2
    cap = least_cap(population, q, 1e-13)
    assert cut_probability(population, q, cap) <= 1e-13 < cut_probability(population, q, cap - 1)


def release_density(users, q, cap, z, outcomes):
    """Return the density of the noised sum of a cut Poisson cohort of users, each with a number from -1 to 1."""
    density = np.zeros_like(outcomes)
    for joined in itertools.product([False, True], repeat=len(users)):
        members = [user for user, there in zip(users, joined, strict=True) if there]
        probability = q ** len(members) * (1 - q) ** (len(users) - len(members))
        parts = list(itertools.combinations(members, min(cap, len(members))))
        for part in parts:
            density += probability / len(parts) * stats.norm.pdf(outcomes, sum(part), z)
    return density


@pytest.mark.parametrize(("others", "q", "cap", "z", "needed"), [(1, 0.5, 1, 1.0, True), (3, 0.3, 2, 0.7, False)])
def test_the_guarantee_holds_by_brute_force_and_may_need_what_the_cap_adds(others, q, cap, z, needed):
    """For all populations of users with the numbers -1 and 1, in one and two releases, in both directions."""
    outcomes, width = np.linspace(-others - 1 - 8 * z, others + 1 + 8 * z, 301, retstep=True)
    cut, cases = cut_probability(others, q, cap), list(itertools.product((1, 2), (0.0, 1.0, 2.5)))
    plain = {(count, epsilon): delta_at({Event(z, q): count}, epsilon) for count, epsilon in cases}
    found = dict.fromkeys(cases, 0.0)
    for users in itertools.combinations_with_replacement((-1.0, 1.0), others):
        pair = [release_density(some, q, cap, z, outcomes) for some in (users, (*users, 1.0))]
        for (count, epsilon), (one, other) in itertools.product(cases, itertools.permutations(pair)):
            first, second = (one, other) if count == 1 else (np.outer(one, one), np.outer(other, other))
            delta = float(np.maximum(first - math.exp(epsilon) * second, 0).sum()) * width**count
            found[count, epsilon] = max(found[count, epsilon], delta)
    for count, epsilon in cases:
        spent = Spent({Event(z, q): count}, 0.0, count * cut)
        assert found[count, epsilon] <= delta_at(spent, epsilon) + 1e-6
    assert any(found[case] > plain[case] + 1e-3 for case in cases) == needed


@pytest.mark.parametrize("secure", [False, True])
def test_a_cohort_is_cut_to_a_random_part(secure):
    capped, free = mechanism(cohort_size=20, population=40, cap=22), mechanism(cohort_size=20, population=40)
    sizes, hits = Counter(), np.zeros(40)
    for step in range(800):
        rng = SecureRandomness() if secure else stream(0, "cohort", step)
        cohort = capped.draw_cohort(40, rng)
        sizes[len(cohort)] += 1
        hits[cohort] += 1
        whole = free.draw_cohort(40, stream(0, "cohort", step))
        if not secure:
            assert set(cohort) <= set(whole)
            assert len(cohort) == min(len(whole), 22)
        assert (np.diff(cohort) > 0).all()
    assert max(sizes) == 22
    assert stats.binomtest(sizes[22], 800, float(stats.binom.sf(21, 40, 0.5))).pvalue > 1e-4
    assert stats.chisquare(hits).pvalue > 1e-4


def test_a_store_with_more_users_than_stated_is_refused_and_one_with_fewer_is_not():
    capped = mechanism(population=100, cohort_size=20, cap=60)
    with pytest.raises(PrivacyError, match=r"more users than participation\.population=100") as error:
        capped.draw_cohort(101, stream(0, "cohort"))
    assert "101" not in str(error.value)
    assert len(capped.draw_cohort(50, stream(0, "cohort"))) < 60


def test_what_the_cap_takes_from_delta_is_in_every_epsilon():
    spent = claim_for(sigma_dp=0.05, cohort_size=20, population=1000, central_steps=50, target_delta=1e-5, cap=47).spent
    lost = 50 * cut_probability(1000, 0.02, 47)
    assert spent.extra_delta == pytest.approx(lost)
    assert 1e-6 < lost < 1e-5
    plain = spent.events
    assert rdp(spent, 1e-5).epsilon == pytest.approx(rdp(plain, 1e-5 - lost).epsilon, rel=1e-9)
    assert pld(spent, 1e-5).epsilon == pytest.approx(pld(plain, 1e-5 - lost).epsilon, rel=1e-6)
    assert pld(spent, 1e-5).epsilon > pld(plain, 1e-5).epsilon
    assert true_positives(spent, 0.01) >= true_positives(Spent(plain), 0.01) + 0.99 * lost
    assert (spent + spent).extra_delta == 2 * spent.extra_delta
    with pytest.raises(PrivacyError, match=r"cut to participation\.cap"):
        rdp(spent, lost)


def test_at_the_papers_sizes_a_cap_of_a_fiftieth_above_the_mean_costs_nothing():
    sizes = {"sigma_dp": 3e-6, "cohort_size": 204_800, "population": 69_506_000, "central_steps": 2034}
    epsilons = [
        claim_for(**sizes, target_delta=1e-9, cap=cap).accounted.pld.epsilon for cap in (None, int(1.02 * 204_800))
    ]
    assert epsilons[0] <= epsilons[1] < epsilons[0] * (1 + 1e-6)
    with pytest.raises(PrivacyError, match="Raise the cap"):  # half of all cohorts
        _ = claim_for(**sizes, target_delta=1e-9, cap=204_801).accounted


def test_ledger_statement_and_claim_know_the_cap(tmp_path):
    run = tmp_path / "run"
    ledger = charged(run, mech=mechanism(cap=90))
    checkpoint(run, 4, ledger)
    assert verify(run).epsilon == ledger.epsilon
    account = open_account(run)
    assert account.header.truncation_delta == cut_probability(1000, 0.02, 90)
    assert (
        account.spent.extra_delta
        == 4 * account.header.truncation_delta
        == account.content.as_earlier().spent.extra_delta
    )
    assert "At most 90 take part" in statement(account)
    claimed = claim_at(account, 2000, 1_000_000, target_delta=1e-9)
    assert claimed.mechanism.participation.cap == 9000
    assert "cut to 9,000 users" in claimed.assumption
    plain = header_of(mechanism()).line()
    assert not {"cap", "truncation_delta"} & plain.keys()
