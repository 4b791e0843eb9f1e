"""The simulation against measured steps: times of one worker, user by user, predict the steps of two.

Costs come from a run of one worker; the steps that they predict were taken by other processes at another time. So an
error contains everything the simulation leaves out: two processes that share memory and caches, the exchange, chance.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from documents import MeasuredStep
from fits import user_law
from hand_out import Floats, Outcome, fixed_shares, longest_first
from worker_steps import ENGINE

from sottovoce.federated.aggregator import Users


@dataclass(frozen=True)
class Prediction:
    """One step of two workers, predicted and measured."""

    measured: MeasuredStep
    users_seconds: float  # predicted, until the slowest process has trained its users
    step_seconds: float
    idle: float

    @property
    def users_error(self) -> float:
        """Predicted / measured - 1 of the users' part."""
        return self.users_seconds / self.measured.phases["users"] - 1

    @property
    def step_error(self) -> float:
        """Predicted / measured - 1 of the whole step."""
        return self.step_seconds / self.measured.seconds - 1

    @property
    def idle_error(self) -> float:
        """The difference of the idle shares."""
        return self.idle - self.measured.idle


@dataclass(frozen=True)
class Spread:
    """A median with its range."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise some values."""
        return cls(statistics.median(values), min(values), max(values))


def predict(steps: Sequence[MeasuredStep], cost: Callable[[MeasuredStep], Sequence[float]]) -> list[Prediction]:
    """Predict every step of several workers from the same step on one worker; `cost` gives its users' times."""
    alone = {(step.cohort, step.t): step for step in steps if step.workers == 1}
    return [_predicted(step, alone[step.cohort, step.t], cost) for step in steps if step.workers > 1]


def from_user_times(steps: Sequence[MeasuredStep]) -> list[Prediction]:
    """Predict from the measured time of every user."""
    return predict(steps, lambda step: [user.seconds for user in step.users])


def from_law(steps: Sequence[MeasuredStep]) -> list[Prediction]:
    """Predict from the fitted law of local work alone."""
    law = user_law(steps).law
    return predict(steps, lambda step: [law.at(user.cost_seconds) for user in step.users])


def _predicted(step: MeasuredStep, alone: MeasuredStep, cost: Callable[[MeasuredStep], Sequence[float]]) -> Prediction:
    outcome = simulated(step, alone, np.array(cost(alone)))
    users = alone.waited[0] + outcome.seconds
    others = sum(seconds for phase, seconds in alone.phases.items() if phase != "users")
    return Prediction(step, users, users + others, outcome.idle)


def simulated(step: MeasuredStep, alone: MeasuredStep, costs: Floats) -> Outcome:
    """Simulate the users' part of a step under its rule; costs are in the order of the cohort, as in `alone`."""
    return fixed_shares(shares_of(step, alone), costs)


def shares_of(step: MeasuredStep, alone: MeasuredStep) -> list[Users]:
    """Return the places of each worker's users in the cohort: by the engine's rule, or as they were dealt."""
    if step.rule == ENGINE:
        return longest_first(np.array([user.cost_seconds for user in alone.users]), step.workers)
    return recorded_shares(step, alone)


def recorded_shares(step: MeasuredStep, alone: MeasuredStep) -> list[Users]:
    """Return the places of each worker's users as the step recorded them."""
    places = {user.name: place for place, user in enumerate(alone.users)}
    return [
        np.array([places[user.name] for user in step.users if user.process == worker], dtype=np.int64)
        for worker in range(step.workers)
    ]


def slowdown(steps: Sequence[MeasuredStep]) -> float:
    """Return how much longer users take where two workers train at the same time."""
    return _user_seconds(steps, 2) / _user_seconds(steps, 1)


def _user_seconds(steps: Sequence[MeasuredStep], workers: int) -> float:
    times = [user.seconds for step in steps if step.workers == workers and step.rule == ENGINE for user in step.users]
    return sum(times)
