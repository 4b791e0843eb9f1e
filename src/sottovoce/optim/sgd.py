"""SGD, with momentum if asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sottovoce.optim.base import Optimizer, State, no_ratios

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.model.partition import Partition


class Sgd(Optimizer):
    """SGD: velocity = momentum * velocity + g; theta moves by -lr * velocity."""

    name: Literal["sgd"] = "sgd"
    momentum: float = Field(0.0, ge=0, lt=1, description="decay of the velocity; 0: plain SGD")

    def start(self, theta: Tensor) -> State:
        """Return a velocity of zero, or nothing."""
        return State({"velocity": theta.new_zeros(theta.shape)} if self.momentum else {})

    def step(self, theta: Tensor, gradient: Tensor, state: State, lr: float, partition: Partition) -> Tensor:
        """Take one step."""
        state.steps += 1
        if self.momentum:
            gradient = state.vectors["velocity"].mul_(self.momentum).add_(gradient)
        theta.sub_(gradient, alpha=lr)
        return no_ratios(theta, partition)
