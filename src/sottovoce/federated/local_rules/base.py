"""The interface of a local rule, which changes the gradient of a local step.

A local rule is a frozen set of options under `federated.local.rule`, chosen by its name. Like the optimizers it works
on tensors that it is given and does not load torch when a preset is read.

A user's work in one central step is: `start`, then for every local batch `correct_` (before the gradient is clipped),
then `finish`. The state lives as long as that work. It may hold vectors (a local momentum, say), and it says whose work
it is, in which central step, and how many local steps were taken. A rule that remembers something about a user from one
central step to the next (SCAFFOLD's control variate) loads it in `start` and stores it in `finish`, wherever the user's
device keeps such things: the server never sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from sottovoce.optim import State

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class LocalState:
    """The memory of a local rule for one user during one central step."""

    vectors: dict[str, Tensor] = field(default_factory=dict)
    # Set by the client after `start`, for `correct_` and `finish`:
    user: str = ""  # the user's name
    t: int = 0  # the central step
    local_lr: float = 0.0
    steps: int = 0  # local steps taken so far
    optimizer: State = field(default_factory=State)  # of the local optimizer


class LocalRule(BaseModel):
    """The options of one local rule; the methods of this class change nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str

    def start(self, theta: Tensor, user: str, t: int) -> LocalState:  # noqa: ARG002 - for rules with a state
        """Return the state before the first local step of a user in central step t."""
        return LocalState()

    def correct_(self, gradient: Tensor, theta_k: Tensor, theta: Tensor, state: LocalState) -> None:
        """Change the gradient of the local loss, in place; theta_k is the user's model, theta the central one."""

    def finish(self, theta_k: Tensor, theta: Tensor, state: LocalState) -> None:
        """End the work of `state.user` in central step `state.t`, after the last of `state.steps` local steps."""
