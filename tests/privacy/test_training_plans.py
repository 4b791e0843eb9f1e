"""Plans for a number of user trainings: each keeps epsilon with hardly more than the least noise."""

import math
from dataclasses import replace

import pytest

from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.privacy.accounting import Event, pld
from sottovoce.privacy.training_plans import TrainingPlan, best_of, training_plans


def test_every_plan_keeps_epsilon_with_hardly_more_than_the_least_noise():
    plans = training_plans(population=20, trainings=40, epsilon=2.0, target_delta=1e-3, least_steps=4)
    assert [plan.central_steps for plan in plans] == [2, 4, 5]
    for plan in plans:
        assert plan.cohort_size * plan.central_steps == pytest.approx(40)
        event = Event(plan.sigma_dp * plan.cohort_size, plan.cohort_size / 20)
        assert pld({event: plan.central_steps}, 1e-3).epsilon == pytest.approx(plan.epsilon, rel=1e-9)
        assert 0.985 * 2 <= plan.epsilon <= 2
        assert pld({replace(event, z=0.985 * event.z): plan.central_steps}, 1e-3).epsilon > 2
    noise = [plan.sigma_dp for plan in plans]
    assert noise == sorted(noise)


def plan(steps, mean_noise):
    known = {"cohort_size": 10.0, "sampling_prob": 0.1, "z": 1.0, "epsilon": 1.0}
    return TrainingPlan(central_steps=steps, sigma_dp=mean_noise * math.sqrt(steps), **known)


def test_the_marked_plan_has_the_most_steps_at_nearly_the_least_noise():
    plans = [plan(3, 1.0), plan(50, 2.0), plan(60, 2.19), plan(100, 2.21)]
    assert best_of(plans, 50).central_steps == 60
    assert best_of(plans, 1).central_steps == 3
    assert best_of(plans, 1000).central_steps == 100
    assert plans[1].noise_norm(400) == pytest.approx(20 * plans[1].sigma_dp)
    assert plans[1].accumulated_noise == pytest.approx(50 * plans[1].mean_noise)


def test_plans_that_say_nothing_are_refused():
    with pytest.raises(PrivacyError, match="not below 1/K"):
        training_plans(population=200, trainings=400, epsilon=2.0, target_delta=0.01)
    with pytest.raises(ConfigError, match="epsilon=0 > 0"):
        training_plans(population=200, trainings=400, epsilon=0, target_delta=1e-4)


def test_the_command_lists_plans_and_marks_one(sotto):
    words = ["privacy", "plan", "--population", "20", "--trainings", "20", "--epsilon", "30", "--target-delta", "1e-3"]
    found = sotto(*words, "--parameters", "100", "--central-steps", "1", "--json").document
    (row,) = [row for row in found["plans"] if row["best"]]
    assert (row["central_steps"], row["cohort_size"]) == (1, 20)
    assert row["noise_norm"] == pytest.approx(10 * row["sigma_dp"])
    assert "takes the place of" in sotto(*words, "--sigma-dp", "1").error
    assert "needs --population" in sotto("privacy", "plan", "--trainings", "5", "--epsilon", "1").error
