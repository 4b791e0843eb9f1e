"""Plans for a number of user trainings: the least noise of several cohort sizes S and numbers of steps T, S T = N.

A user training is one user's local work in one step: what a run costs to compute. For given N, K and epsilon, larger
cohorts in fewer steps always have less noise, so the fewest steps that still train a model are best. How many that are
is not known here: `least_steps` says it. Some more steps may be nearly free. If users' deltas were the same in every
step, the noise on the mean of all T releases, sigma_dp / sqrt(T), would decide; it rises slowly with T. So the plan
that is marked has the most steps whose `mean_noise` is within a tenth of the least, among plans of `least_steps` or
more.

That is a rule of thumb, not a result: deltas change along a run, and server optimizers such as LAMB are not linear.
Which plan trains best must be measured.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.privacy.acceptance import Acceptance
from sottovoce.privacy.accounting import ORDERS, pld, rdp, require_delta
from sottovoce.privacy.mechanism import Mechanism, plain_mechanism
from sottovoce.privacy.target_delta import ACCEPT_LARGE_DELTA, require_small_delta
from sottovoce.processes import Progress, no_progress

_ROWS = 9
_LEAST_COHORT = 8  # smaller cohorts are not listed
_CLOSE = 0.985  # of the wanted epsilon: the noise is then within about 1 % of the least
_AIM = 0.994  # of the wanted epsilon, so that a step of the search ends on the safe side
_TENTH = 1.1
LEAST_STEPS = 50  # of the plan that is marked, where nobody says what a training needs
_FEW_ORDERS = ORDERS[::8]
_MOST_STEPS = 10**9
_ATTEMPTS = 12


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A cohort size, a number of steps and the least noise that keeps epsilon."""

    cohort_size: float
    central_steps: int
    sampling_prob: float
    sigma_dp: float
    z: float
    epsilon: float

    @property
    def mean_noise(self) -> float:
        """The std of the noise on the mean of all releases of the run, in units of C."""
        return self.sigma_dp / math.sqrt(self.central_steps)

    @property
    def accumulated_noise(self) -> float:
        """The std of the noise on the sum of all releases of the run, in units of C."""
        return self.sigma_dp * math.sqrt(self.central_steps)

    def noise_norm(self, parameters: int) -> float:
        """Return the norm of the noise of one release of D numbers, in units of C: that of a user's delta is 1."""
        return self.sigma_dp * math.sqrt(parameters)


def training_plans(
    *,
    population: int,
    trainings: int,
    epsilon: float,
    target_delta: float,
    least_steps: int = LEAST_STEPS,
    accepted: Collection[Acceptance] = (),
    progress: Progress = no_progress,
) -> list[TrainingPlan]:
    """Return plans with T = 1, 2, 5, 10, 20, ... and `least_steps` steps of S = trainings / T users, fewest first.

    The first one has the fewest steps possible, with nearly all K users in each. Every plan keeps epsilon, by PLD, with
    the least noise or up to 1 % more.
    """
    require_delta(target_delta)
    require_small_delta(target_delta, population, accepted, how=ACCEPT_LARGE_DELTA)
    if not epsilon > 0:
        raise ConfigError(f"Expected epsilon={epsilon:g} > 0.")
    if trainings < 1 or population < 1:
        raise ConfigError(f"Expected trainings={trainings} and population={population} of at least 1.")
    steps = _numbers_of_steps(population, trainings, least_steps)
    plans = []
    for place, number in enumerate(steps, 1):
        plans.append(_least_noise(population, trainings / number, number, epsilon, target_delta))
        progress("plans", place, len(steps))
    return plans


def best_of(plans: Sequence[TrainingPlan], least_steps: int) -> TrainingPlan:
    """Return the plan with the most steps whose `mean_noise` is within a tenth of the least.

    Plans with fewer than `least_steps` steps do not count; without any other, it is the one with the most steps.
    """
    enough = [plan for plan in plans if plan.central_steps >= least_steps] or [plans[-1]]
    least = min(plan.mean_noise for plan in enough)
    return max((plan for plan in enough if plan.mean_noise <= _TENTH * least), key=lambda plan: plan.central_steps)


def _numbers_of_steps(population: int, trainings: int, least_steps: int) -> list[int]:
    fewest = -(-trainings // population)
    if fewest > _MOST_STEPS:
        raise ConfigError(f"{trainings} trainings of {population} users are more than {_MOST_STEPS:g} steps.")
    most = min(max(trainings // _LEAST_COHORT, fewest), _MOST_STEPS)
    round_ones = [digit * 10**power for power in range(10) for digit in (1, 2, 5)]
    found = [fewest, *[number for number in round_ones if fewest < number <= most][: _ROWS - 1]]
    return sorted({*found, least_steps}) if fewest <= least_steps <= most else found


def _least_noise(population: int, cohort_size: float, steps: int, epsilon: float, target_delta: float) -> TrainingPlan:
    """Return the plan with the least noise: a secant on the logarithms, which ends below the wanted epsilon."""

    def at(sigma_dp: float) -> Mechanism:
        return plain_mechanism(sigma_dp, cohort_size, population)

    def loose(sigma_dp: float) -> float:
        return rdp(at(sigma_dp).spent(steps), target_delta, _FEW_ORDERS).epsilon

    sigma_dp, slope = _roughly(loose, epsilon, 1 / cohort_size)
    kept: tuple[float, float] | None = None  # noise and epsilon that will do
    below, above = 0.0, math.inf  # too little noise, and enough
    for _ in range(_ATTEMPTS):
        spent = at(sigma_dp).spent(steps)
        reached = pld(spent, target_delta).epsilon
        if reached is None:
            reached = rdp(spent, target_delta).epsilon
        if reached <= epsilon:
            kept, above = (sigma_dp, reached), sigma_dp
            if reached >= _CLOSE * epsilon:
                break
        else:
            below = sigma_dp
        sigma_dp *= (max(reached, 1e-3 * epsilon) / (_AIM * epsilon)) ** (1 / slope)
        if not below < sigma_dp < above:
            sigma_dp = math.sqrt(below * above) if below and above < math.inf else 2 * max(below, above / 4)
    if kept is None:
        raise PrivacyError(f"No noise was found that keeps epsilon {epsilon:g} in {steps} steps. Change the others.")
    found = at(kept[0])
    return TrainingPlan(
        cohort_size=cohort_size,
        central_steps=steps,
        sampling_prob=found.sampling_prob,
        sigma_dp=kept[0],
        z=found.z,
        epsilon=kept[1],
    )


def _roughly(epsilon_at: Callable[[float], float], epsilon: float, sigma_dp: float) -> tuple[float, float]:
    """Return noise that keeps epsilon by a loose bound, to 5 %, and how steeply epsilon falls with it there."""
    while epsilon_at(sigma_dp) > epsilon:
        sigma_dp *= 2
    while epsilon_at(sigma_dp / 2) <= epsilon:
        sigma_dp /= 2
    low, high = sigma_dp / 2, sigma_dp
    while high > 1.05 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon_at(middle) > epsilon else (low, middle)
    slope = math.log(max(epsilon_at(high / 2) / epsilon_at(high), 1.0)) / math.log(2)
    return high, min(max(slope, 0.5), 4.0)
