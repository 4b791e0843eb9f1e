"""LARS: the gradient times a trust ratio per layer, then the learning rate, then momentum, in optax' order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sottovoce.optim.base import Optimizer, State, trust_ratios

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.model.partition import Partition


class Lars(Optimizer):
    """LARS: the trust ratio is `coefficient * |theta_h| / (|g_h| + xi)`, and 1 where a norm is 0."""

    name: Literal["lars"] = "lars"
    coefficient: float = Field(0.001, gt=0, description="factor of the trust ratio")
    momentum: float = Field(0.9, ge=0, lt=1, description="decay of the velocity")
    xi: float = Field(1e-8, ge=0, description="added to the gradient's norm; optax has 0")

    def start(self, theta: Tensor) -> State:
        """Return a velocity of zero."""
        return State({"velocity": theta.new_zeros(theta.shape)})

    def step(self, theta: Tensor, gradient: Tensor, state: State, lr: float, partition: Partition) -> Tensor:
        """Take one step."""
        state.steps += 1
        ratios = trust_ratios(theta, gradient, partition, self.coefficient, self.xi)
        velocity = state.vectors["velocity"]
        velocity.mul_(self.momentum).add_(partition.scale_(gradient.clone(), ratios), alpha=lr)
        theta.sub_(velocity)
        return ratios
