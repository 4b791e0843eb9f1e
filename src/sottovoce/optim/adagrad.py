"""AdaGrad as in optax: the sum of squares starts at 0.1, and xi stands inside the root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sottovoce.optim.base import Optimizer, State, no_ratios

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.model.partition import Partition


class AdaGrad(Optimizer):
    """AdaGrad: g / sqrt(sum of g^2 + xi)."""

    name: Literal["adagrad"] = "adagrad"
    initial: float = Field(0.1, ge=0, description="what the sum of squares starts at")
    xi: float = Field(1e-7, ge=0, description="added to the sum of squares inside the root")

    def start(self, theta: Tensor) -> State:
        """Return the initial sum of squares."""
        return State({"squares": theta.new_full(theta.shape, self.initial)})

    def step(self, theta: Tensor, gradient: Tensor, state: State, lr: float, partition: Partition) -> Tensor:
        """Take one step; a coordinate that never had a gradient stays where it is."""
        state.steps += 1
        squares = state.vectors["squares"].addcmul_(gradient, gradient)
        scale = (squares + self.xi).rsqrt_().masked_fill_(squares == 0, 0.0)
        theta.sub_(scale.mul_(gradient), alpha=lr)
        return no_ratios(theta, partition)
