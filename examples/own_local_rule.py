"""A local rule of your own: momentum in the local steps of a user.

A local rule changes the gradient of every local step. Its state lives as long as one user's work in one central step.
It knows whose work that is (`state.user`), in which central step (`state.t`), and how many local steps were taken.
"""

from typing import Literal

import sottovoce as sv


class Momentum(sv.LocalRule):
    """Every local step adds the decayed sum of the gradients before it."""

    name: Literal["momentum"] = "momentum"
    decay: float = 0.5

    def start(self, theta, user, t):
        return sv.LocalState({"velocity": theta.new_zeros(theta.shape)})

    def correct_(self, gradient, theta_k, theta, state):
        velocity = state.vectors["velocity"]
        velocity.mul_(self.decay).add_(gradient)
        gradient.copy_(velocity)


if __name__ == "__main__":
    changes = {"federated": {"central_steps": 3, "local": {"rule": Momentum(decay=0.3)}}}
    run = sv.train_federated(sv.preset("quick", changes), "runs/momentum")
    losses = run.metrics()["not_private.loss"].drop_null().to_pylist()
    print(f"The users' loss in {len(losses)} steps with momentum: {', '.join(f'{loss:.1f}' for loss in losses)}")
