"""Adam, as in optax: moments with bias correction, xi outside the root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sottovoce.memory import parts
from sottovoce.optim.base import Optimizer, State, no_ratios

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.model.partition import Partition


class Moments(Optimizer):
    """The two moments of the gradient that Adam and LAMB keep."""

    b1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    b2: float = Field(0.999, ge=0, lt=1, description="decay of the second moment")
    xi: float = Field(1e-8, ge=0, description="added to the root of the second moment")
    bias_correction: bool = Field(True, description="divide the moments by 1 - decay^steps")

    def start(self, theta: Tensor) -> State:
        """Return zero moments."""
        return State({"m": theta.new_zeros(theta.shape), "v": theta.new_zeros(theta.shape)})

    def update(self, gradient: Tensor, state: State) -> Tensor:
        """Move the moments by one step and return m / (sqrt(v) + xi)."""
        state.steps += 1
        first = 1 - self.b1**state.steps if self.bias_correction else 1.0
        second = 1 - self.b2**state.steps if self.bias_correction else 1.0
        update = gradient.new_empty(gradient.shape)
        for g, m, v, u in parts(gradient, state.vectors["m"], state.vectors["v"], update):
            m.mul_(self.b1).add_(g, alpha=1 - self.b1)
            v.mul_(self.b2).addcmul_(g, g, value=1 - self.b2)
            u.copy_(m).div_(first).div_((v / second).sqrt_().add_(self.xi))
        return update


class Adam(Moments):
    """Adam."""

    name: Literal["adam"] = "adam"

    def step(self, theta: Tensor, gradient: Tensor, state: State, lr: float, partition: Partition) -> Tensor:
        """Take one step."""
        theta.add_(self.update(gradient, state), alpha=-lr)
        return no_ratios(theta, partition)
