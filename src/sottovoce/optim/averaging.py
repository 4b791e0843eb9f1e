"""Averaging of the models along a training: free post-processing of the releases, which takes noise out of the result.

The average of the models after steps `begin` + 1, `begin` + 2, ... is kept as one vector. Model number n moves it by
1/n of the difference, which is their plain mean, or, with a window, by at least 1/window: an exponential moving average
over about that many models, which starts as a plain mean. Training itself goes on from theta, not from the average.

A checkpoint's model is the average. Its theta, from which training resumes, is among the vectors of the optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.optim.base import State

_THETA = "unaveraged_theta"  # in the state of the optimizer


class Averaging(BaseModel):
    """Which models are averaged. The average is what is evaluated, saved and published."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    begin: int = Field(0, ge=0, description="the first central step whose model is averaged; before it nothing is")
    window: int | None = Field(
        None, ge=1, description="about how many of the last models are averaged; null: all since `begin`"
    )

    def own_theta(self, state: State, theta: Tensor) -> Tensor:
        """Return the theta that training moves, a vector of the optimizer's state; before the first step, a copy."""
        return state.vectors.setdefault(_THETA, theta.clone())

    def move_(self, average: Tensor, theta: Tensor, t: int) -> None:
        """Make the average that of all models so far; theta is the model after step t = 0, 1, ..."""
        models = max(t + 1 - self.begin, 1)
        average.lerp_(theta, 1 / models if self.window is None else max(1 / models, 1 / self.window))
