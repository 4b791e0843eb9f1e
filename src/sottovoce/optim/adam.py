"""Adam, as in optax: moments with bias correction, xi outside the root.

With `noise_correction` the second moment is that of the gradient without its noise (DP-AdamBC, Tang et al. 2023): the
known variance of the noise is subtracted from every squared gradient. What is left, an estimate that may fall below 0,
is kept above `noise_floor` standard deviations of the noise. The variance is a public number, so this is
post-processing. The mean over n steps of squared noise has a relative error of sqrt(2/n): the root cannot be known
better than to (2/n)^(1/4) standard deviations, 0.43 after 60 steps. A much lower floor divides by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sottovoce.memory import parts
from sottovoce.optim.base import Optimizer, State, no_ratios

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from sottovoce.model.partition import Partition


class Moments(Optimizer):
    """The two moments of the gradient that Adam and LAMB keep."""

    b1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    b2: float = Field(0.999, ge=0, lt=1, description="decay of the second moment")
    xi: float = Field(1e-8, ge=0, description="added to the root of the second moment")
    bias_correction: bool = Field(True, description="divide the moments by 1 - decay^steps")
    noise_correction: bool = Field(
        False, description="subtract the variance of the privacy noise from the second moment (of the server only)"
    )
    noise_floor: float = Field(
        0.5,
        gt=0,
        le=1e6,
        description="the least root of the corrected second moment, in standard deviations of the noise",
    )

    @property
    def corrects_noise(self) -> bool:
        """Whether the variance of the noise is subtracted."""
        return self.noise_correction

    def start(self, theta: Tensor) -> State:
        """Return zero moments."""
        return State({"m": theta.new_zeros(theta.shape), "v": theta.new_zeros(theta.shape)})

    def update(self, gradient: Tensor, state: State, partition: Partition) -> Tensor:
        """Move the moments by one step and return m / (sqrt(v) + xi)."""
        import torch  # noqa: PLC0415 - reading a preset stays fast

        state.steps += 1
        first = 1 - self.b1**state.steps if self.bias_correction else 1.0
        second = 1 - self.b2**state.steps if self.bias_correction else 1.0
        update = gradient.new_empty(gradient.shape)
        stds, sizes = self._known_noise(state, partition)
        vectors = gradient, state.vectors["m"], state.vectors["v"], update
        for std, *tensor in zip(stds, *(torch.split(vector, sizes) for vector in vectors), strict=True):
            for g, m, v, u in parts(*tensor):
                m.mul_(self.b1).add_(g, alpha=1 - self.b1)
                v.mul_(self.b2).addcmul_(g, g, value=1 - self.b2)
                if std:
                    v.sub_((1 - self.b2) * std**2)
                root = v / second
                if std:
                    root.clamp_(min=(self.noise_floor * std) ** 2)
                u.copy_(m).div_(first).div_(root.sqrt_().add_(self.xi))
        return update

    def _known_noise(self, state: State, partition: Partition) -> tuple[Sequence[float], list[int]]:
        """Return the std of the noise to correct for, and the sizes of the parts of the gradient that have it."""
        if self.noise_correction and any(state.noise_stds):
            return state.noise_stds, list(partition.tensor_sizes)
        return (0.0,), [sum(partition.tensor_sizes)]


class Adam(Moments):
    """Adam."""

    name: Literal["adam"] = "adam"

    def step(self, theta: Tensor, gradient: Tensor, state: State, lr: float, partition: Partition) -> Tensor:
        """Take one step."""
        theta.add_(self.update(gradient, state, partition), alpha=-lr)
        return no_ratios(theta, partition)
