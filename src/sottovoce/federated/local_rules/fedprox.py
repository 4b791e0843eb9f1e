"""FedProx (Li et al. 2020): a pull back to the central model, mu/2 |theta_k - theta|^2 on top of the local loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sottovoce.federated.local_rules.base import LocalRule, LocalState

if TYPE_CHECKING:
    from torch import Tensor


class FedProx(LocalRule):
    """The gradient of the loss plus mu (theta_k - theta). At distance 0 it adds exactly nothing."""

    name: Literal["fedprox"] = "fedprox"
    mu: float = Field(ge=0, le=1e6, allow_inf_nan=False, description="strength of the pull; 0: none")

    def correct_(self, gradient: Tensor, theta_k: Tensor, theta: Tensor, state: LocalState) -> None:  # noqa: ARG002
        """Add the gradient of the proximal term."""
        if self.mu:
            gradient.add_(theta_k - theta, alpha=self.mu)
