"""Linear laws, y = fixed + per_unit * x, fitted so that small and large sizes count alike."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from documents import MeasuredStep, Measurements, Point
from scipy.optimize import nnls

_DEVIATION = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
PHASES = ("users", "noise", "release", "sum", "server")  # of a central step, the noise apart


@dataclass(frozen=True)
class Law:
    """A fitted law; neither number is negative."""

    fixed: float
    per_unit: float
    residuals: tuple[float, ...]  # measured / fitted - 1, of every point

    def at(self, x: float) -> float:
        """Return the fitted value."""
        return self.fixed + self.per_unit * x

    @property
    def worst(self) -> float:
        """The largest residual, without its sign."""
        return max(map(abs, self.residuals), default=0.0)


def fit(xs: Sequence[float], ys: Sequence[float]) -> Law:
    """Fit a law to positive values by least squares on relative errors."""
    x, y = np.asarray(xs, dtype=np.float64), np.asarray(ys, dtype=np.float64)
    scale = x.max()
    (fixed, slope), _ = nnls(np.stack([1 / y, x / scale / y], axis=1), np.ones(len(y)))
    fitted = fixed + slope * x / scale
    return Law(float(fixed), float(slope / scale), tuple((y / fitted - 1).tolist()))


def time_law(points: Sequence[Point]) -> Law:
    """Fit the median times of a series."""
    return fit([point.x for point in points], [point.median for point in points])


def memory_law(points: Sequence[Point]) -> Law:
    """Fit the peak memory of a series, in MB."""
    measured = [(point.x, point.megabytes) for point in points if point.megabytes is not None]
    return fit([x for x, _ in measured], [megabytes for _, megabytes in measured])


@dataclass(frozen=True)
class UserLaw:
    """The time of one user on one worker: a law of its local work, and how far users lie around it."""

    law: Law
    spread: float  # standard deviation of the logarithm of measured / fitted, without outliers


def user_law(steps: Sequence[MeasuredStep]) -> UserLaw:
    """Fit the users of all steps that one worker took alone."""
    users = [user for step in steps if step.workers == 1 for user in step.users]
    law = fit([user.cost_seconds for user in users], [user.seconds for user in users])
    logs = np.log1p(law.residuals)
    return UserLaw(law, float(_DEVIATION * np.median(np.abs(logs - np.median(logs)))))


def phase_points(measurements: Measurements) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds of every phase of a step by parameters; secure noise was drawn by one core, on its own."""
    plain, drawn = measurements.points("model", "without noise"), measurements.points("exchange", "secure noise")
    points = {phase: [(point.x, point.phases[phase]) for point in plain] for phase in PHASES if phase != "noise"}
    points["noise"] = [(point.x, point.median) for point in drawn]
    return {phase: points[phase] for phase in PHASES}


def law_of(points: Sequence[tuple[float, float]]) -> Law:
    """Fit a law to pairs of x and y."""
    return fit([x for x, _ in points], [y for _, y in points])
