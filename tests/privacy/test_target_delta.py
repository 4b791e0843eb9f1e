"""Delta against 1/K, in trainings and plans, and the sampler's epsilon of a claim."""

import math

import pytest

from ledgers import charged, mechanism
from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.privacy.claims import claim_at, claim_for, open_account
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.planner import Plan, solve
from sottovoce.privacy.privacy_options import Budget
from sottovoce.privacy.target_delta import delta_caution, require_small_delta, too_large


def test_a_delta_at_one_over_k_is_refused_and_a_little_below_it_is_said():
    with pytest.raises(PrivacyError, match=r"delta 0.001 is not below 1/K = 0.001.*privacy.accept=\[large_delta\]"):
        require_small_delta(1e-3, 1000)
    require_small_delta(1e-3, 1000, ("large_delta",))
    require_small_delta(9e-4, 1000)
    assert "hardly below" in delta_caution(9e-4, 1000)
    assert delta_caution(4e-4, 1000) is None
    assert delta_caution(1e-9, 70_000_000) is None


def test_one_over_k_itself_is_refused():
    assert all(too_large(1 / population, population) for population in range(2, 500))
    assert not too_large(math.nextafter(1 / 49, 0), 49)
    found = solve(Plan(population=None, cohort_size=1, sigma_dp=1e3, central_steps=1, epsilon=1.0, target_delta=1 / 49),
                  "rdp")  # fmt: skip
    assert found.population < 49


def test_a_cohort_of_less_than_one_user_is_refused():
    known = {"cohort_size": 1e-4, "sigma_dp": 10.0, "central_steps": 1, "target_delta": 1e-7}  # T q = 1e-10 < delta
    for claim in (claim_for, lambda **sizes: solve(Plan(epsilon=None, **sizes), "rdp")):
        with pytest.raises(ConfigError, match=r"expected cohort_size=0\.0001 >= 1"):
            claim(population=10**6, **known)


def test_a_training_with_a_large_delta_is_refused_before_it_starts():
    small = mechanism()
    small.require_small_delta()
    for change in ({"target_delta": 1e-3}, {"budget": Budget(epsilon=8.0, target_delta=1e-3)}):
        privacy = small.privacy.model_copy(update=change)
        large = Mechanism(privacy, small.participation, small.partition)
        with pytest.raises(PrivacyError, match="not below 1/K"):
            large.require_small_delta()
        accepted = privacy.model_copy(update={"accept": ("large_delta",)})
        Mechanism(accepted, small.participation, small.partition).require_small_delta()
        without = privacy.model_copy(update={"sigma_dp": 0.0})
        Mechanism(without, small.participation, small.partition).require_small_delta()  # nothing is claimed


def test_no_plan_has_a_large_delta():
    known = {"cohort_size": 2.0, "sigma_dp": 1.0, "central_steps": 1}
    with pytest.raises(PrivacyError, match="not below 1/K"):
        Plan(population=2000, **known, epsilon=None, target_delta=1e-3)
    with pytest.raises(PrivacyError, match="No population between 2 and 999 keeps epsilon 1e-06"):
        solve(Plan(population=None, **known, epsilon=1e-6, target_delta=1e-3), "rdp")
    with pytest.raises(PrivacyError, match="No population of at least 2000 users"):
        solve(Plan(population=None, **known | {"cohort_size": 2000.0}, epsilon=1.0, target_delta=1e-3), "rdp")
    found = solve(Plan(population=None, **known, epsilon=1.0, target_delta=1e-3), "rdp")
    assert found.population < 1000


def test_below_one_over_k_epsilon_falls_with_the_cohort():
    sizes = {"sigma_dp": 0.05, "population": 10**6, "central_steps": 5, "target_delta": 5e-7}
    found = [claim_for(cohort_size=size, **sizes).accounted.pld.epsilon for size in (1, 3, 100)]
    assert found == sorted(found, reverse=True)


def test_a_claim_of_a_secure_run_has_its_samplers_epsilon(tmp_path):
    run = tmp_path / "run"
    charged(run, mech=mechanism("secure"))
    account = open_account(run)
    header = account.header
    same = claim_at(account, header.cohort_size, header.population)
    assert same.spent.extra == pytest.approx(account.spent.extra)
    assert same.spent.extra > 0
    larger = claim_at(account, 10 * header.cohort_size, 100 * header.population)
    assert larger.spent.extra == pytest.approx(same.spent.extra / 100)
    charged(tmp_path / "simulated")
    assert claim_at(open_account(tmp_path / "simulated"), 20, 1000).spent.extra == 0
