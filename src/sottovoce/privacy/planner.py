"""Planning: solve for one of population, cohort size, noise, steps and epsilon, given the other four.

Epsilon falls with the population, the cohort size and the noise, and rises with the steps. So each of them is found by
a search along one line. The solution keeps the requested epsilon by the requested accounting, always: that is checked.

With the cohort size epsilon does not always fall. Where S = 1 of K = 1e10 users takes part, a user is so seldom drawn
that epsilon is 0 at delta 1e-9, however small the noise. So plans with a delta that is not below 1/K are refused, and
populations are sought below 1/delta, unless `large_delta` is accepted; cohorts of less than one user are refused
always. Just below 1/K, and where epsilon is next to 0, it may still rise with the cohort: a solution then keeps
epsilon, but a smaller one may exist.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.privacy.acceptance import Acceptance
from sottovoce.privacy.accounting import Floats, pld, rdp, require_delta
from sottovoce.privacy.mechanism import plain_mechanism
from sottovoce.privacy.noise import NoiseMechanism
from sottovoce.privacy.privacy_options import Sampling
from sottovoce.privacy.target_delta import ACCEPT_LARGE_DELTA, require_small_delta, too_large
from sottovoce.processes import Progress, no_progress

Accounting = Literal["pld", "rdp"]
UNKNOWNS = ("population", "cohort_size", "sigma_dp", "central_steps", "epsilon")
_GRID = 13
_PRECISION = 1e-5  # of the logarithm of the unknown
_RANGES: Mapping[str, tuple[float, float]] = {
    "population": (1.0, 1e12),
    "cohort_size": (1.0, 1e12),
    "sigma_dp": (1e-12, 1e6),
    "central_steps": (1.0, 1e9),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The numbers that epsilon depends on. One of the first five is unknown (None) until it is solved for."""

    population: int | None
    cohort_size: float | None
    sigma_dp: float | None
    central_steps: int | None
    epsilon: float | None
    target_delta: float = 1e-9
    sampling: Sampling = "poisson"
    noise: NoiseMechanism | None = None  # None: independent
    accepted: tuple[Acceptance, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a delta that is none, or not below 1/K."""
        require_delta(self.target_delta)
        if self.population is not None:
            require_small_delta(self.target_delta, self.population, self.accepted, how=ACCEPT_LARGE_DELTA)

    @property
    def unknown(self) -> str:
        """The one that is not given."""
        missing = [name for name in UNKNOWNS if getattr(self, name) is None]
        if len(missing) != 1:
            raise ConfigError(
                f"Give all but one of population, cohort_size, sigma_dp, central_steps and epsilon: {len(missing)} are "
                "missing."
            )
        return missing[0]


def epsilon_of(plan: Plan, accounting: Accounting) -> float:
    """Return the epsilon of a plan in which everything else is known."""
    population, cohort, sigma_dp, steps = plan.population, plan.cohort_size, plan.sigma_dp, plan.central_steps
    if population is None or cohort is None or sigma_dp is None or steps is None:
        raise ConfigError("Expected population, cohort_size, sigma_dp and central_steps.")
    spent = plain_mechanism(sigma_dp, cohort, population, plan.sampling, noise=plan.noise).spent(steps)
    if accounting == "rdp":
        return rdp(spent, plan.target_delta).epsilon
    found = pld(spent, plan.target_delta)
    if found.epsilon is None:
        raise PrivacyError(f"PLD is refused here: {found.reason}. Use RDP.")
    return found.epsilon


def solve(plan: Plan, accounting: Accounting) -> Plan:
    """Return the plan with its unknown: the smallest population, cohort or noise, the most steps, or epsilon."""
    unknown = plan.unknown
    if unknown == "epsilon":
        return replace(plan, epsilon=epsilon_of(plan, accounting))
    if plan.epsilon is None or not plan.epsilon > 0:
        raise ConfigError(f"Expected epsilon={plan.epsilon} > 0.")
    low, high = _range(plan, unknown)
    try:
        roughly = float(getattr(_search(plan, unknown, low, high, "rdp", 1e-2), unknown))
    except PrivacyError:  # RDP has a floor that PLD does not have
        return _search(plan, unknown, low, high, accounting, _PRECISION)
    # RDP is never below PLD, and mostly near it: a small range around its answer is tried first.
    below, above = (1.1, 1.5) if unknown == "central_steps" else (1.5, 1.1)
    near = (max(roughly / below, low), min(roughly * above, high))
    found = _search(plan, unknown, *near, accounting, _PRECISION)
    at_the_edge = any(math.isclose(float(getattr(found, unknown)), edge, rel_tol=1e-3) for edge in near)
    return _search(plan, unknown, low, high, accounting, _PRECISION) if at_the_edge else found


def _range(plan: Plan, unknown: str) -> tuple[float, float]:
    low, high = _RANGES[unknown]
    if unknown == "population" and plan.cohort_size is not None:
        low = max(low, math.ceil(plan.cohort_size * (1 if plan.noise is None else plan.noise.separation)))
    if unknown == "population" and "large_delta" not in plan.accepted:
        high = min(high, math.ceil(1 / plan.target_delta) - 1)
        if too_large(plan.target_delta, high):  # 1 / delta was rounded up
            high -= 1
        if low > high:
            raise PrivacyError(
                f"No population of at least {low:g} users has 1/K above delta {plan.target_delta:g}. Choose a smaller "
                "delta."
            )
    if unknown == "cohort_size" and plan.population is not None:
        high = float(plan.population // (1 if plan.noise is None else plan.noise.separation))
    return low, high


def _search(
    plan: Plan,
    unknown: str,
    low: float,
    high: float,
    accounting: Accounting,
    precision: float,
) -> Plan:
    """Return the least costly value between low and high that keeps epsilon."""
    from scipy.optimize import brentq  # noqa: PLC0415 - slow to load

    wanted = plan.epsilon or 0.0
    rises = unknown == "central_steps"  # then the largest value is sought, not the smallest

    def at(place: float) -> Plan:
        value = math.exp(place)
        if unknown == "sigma_dp":
            return replace(plan, sigma_dp=value)
        whole = min(max(math.floor(value) if rises else math.ceil(value), 1), round(high))
        changed: dict[str, Any] = {unknown: whole}
        return replace(plan, **changed)

    def excess(place: float) -> float:
        try:
            return math.log(max(epsilon_of(at(place), accounting), 1e-300) / wanted)
        except PrivacyError:  # so little noise that it cannot be accounted for
            return 700.0

    good, bad = (math.log(low), math.log(high)) if rises else (math.log(high), math.log(low))
    if excess(good) > 0:
        raise PrivacyError(f"No {unknown} between {low:g} and {high:g} keeps epsilon {wanted:g}. Change the others.")
    if excess(bad) <= 0:
        return at(bad)
    place = float(brentq(excess, good, bad, xtol=precision))
    while excess(place) > 0:  # it ends within the precision on either side
        place += math.copysign(precision, good - bad)
    return at(place)


def epsilon_grid(plan: Plan, progress: Progress = no_progress) -> tuple[Floats, Floats, Floats]:
    """Return populations, cohort sizes around those of a solved plan, and epsilon for each pair, by RDP.

    Where the cohort would be larger than the population, or 1/K not above delta, epsilon is nan.
    """
    if plan.population is None or plan.cohort_size is None:
        raise ConfigError("Expected a plan that is solved.")
    around = np.geomspace(1 / 30, 30, _GRID)
    populations, cohorts = np.ceil(plan.population * around), np.ceil(plan.cohort_size * around)
    epsilons = np.full((_GRID, _GRID), np.nan)
    for row, cohort in enumerate(cohorts):
        for column, population in enumerate(populations):
            if "large_delta" not in plan.accepted and too_large(plan.target_delta, population):
                continue
            if cohort <= population and plan.sigma_dp is not None and plan.central_steps is not None:
                mechanism = plain_mechanism(
                    plan.sigma_dp, float(cohort), int(population), plan.sampling, noise=plan.noise
                )
                spent = mechanism.spent(plan.central_steps)
                epsilons[row, column] = rdp(spent, plan.target_delta).epsilon
        progress("epsilons", row + 1, _GRID)
    return populations, cohorts, epsilons
