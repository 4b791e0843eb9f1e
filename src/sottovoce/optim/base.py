"""The interface of an optimizer: a frozen set of options with a step on flat vectors.

`step` takes theta, the gradient (central training) or the pseudo-gradient Delta (federated learning), the state, the
learning rate and the partition into layers, and changes theta and the state in place; nothing else is touched. The
state is a dictionary of flat vectors made by `start`, plus the number of steps taken. Before every step the server of
federated learning also writes into it how much noise the pseudo-gradient holds, which is public. This room works on
tensors that it is given and never loads torch itself, so that reading a preset stays fast.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.model.partition import Partition


@dataclass
class State:
    """The state of an optimizer: vectors as long as theta, and the number of steps taken."""

    vectors: dict[str, Tensor] = field(default_factory=dict)
    steps: int = 0
    # The std of the noise in the gradient of the coming step, for every tensor; empty where nobody knows of any. It is
    # not saved: whoever adds the noise says it before every step.
    noise_stds: tuple[float, ...] = ()


class Optimizer(BaseModel):
    """The options of one optimizer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str

    @property
    def corrects_noise(self) -> bool:
        """Whether a step makes use of `State.noise_stds`."""
        return False

    @abstractmethod
    def start(self, theta: Tensor) -> State:
        """Return the state before the first step."""

    @abstractmethod
    def step(self, theta: Tensor, gradient: Tensor, state: State, lr: float, partition: Partition) -> Tensor:
        """Change theta and the state by one step; return the trust ratio of every layer (ones where there is none)."""


def require_no_correction(optimizer: Optimizer) -> None:
    """Raise ValueError where an optimizer of gradients without noise would correct for it."""
    if optimizer.corrects_noise:
        raise ValueError("Expected noise_correction for the server only: these gradients hold no noise")


def trust_ratios(theta: Tensor, update: Tensor, partition: Partition, coefficient: float, xi: float) -> Tensor:
    """Return coefficient * |theta_h| / (|update_h| + xi) for every layer h, and 1 where either norm is 0.

    A layer that may begin at zero and still has a size to go by, such as an adapter, counts with at least that norm.
    """
    weights, updates = partition.norms(theta), partition.norms(update)
    if any(partition.least_norms):
        weights.clamp_(min=weights.new_tensor(partition.least_norms))
    return (coefficient * weights / (updates + xi)).masked_fill_((weights == 0) | (updates == 0), 1.0)


def no_ratios(theta: Tensor, partition: Partition) -> Tensor:
    """Return ones: the optimizer has no trust ratio."""
    return theta.new_ones(len(partition)).double()
