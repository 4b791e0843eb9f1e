"""LAMB as the paper runs it: Adam's update with bias correction, times a trust ratio per layer.

The trust ratio |theta_h| / |u_h| is not clipped, is 1 where either norm is 0, and includes every layer; there is no
weight decay. The formula the paper prints has no bias correction, and it mentions xi = 0.01: both are options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sottovoce.optim.adam import Moments
from sottovoce.optim.base import State, no_ratios, trust_ratios

if TYPE_CHECKING:
    from torch import Tensor

    from sottovoce.model.partition import Partition


class Lamb(Moments):
    """LAMB: Adam with a trust ratio for every layer."""

    name: Literal["lamb"] = "lamb"
    xi: float = Field(1e-6, ge=0, description="added to the root of the second moment")
    trust: bool = Field(True, description="use the trust ratio; without it LAMB is Adam")

    def step(self, theta: Tensor, gradient: Tensor, state: State, lr: float, partition: Partition) -> Tensor:
        """Take one step."""
        update = self.update(gradient, state, partition)
        ratios = trust_ratios(theta, update, partition, 1.0, 0.0) if self.trust else no_ratios(theta, partition)
        theta.add_(partition.scale_(update, ratios), alpha=-lr)
        return ratios
