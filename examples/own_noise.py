"""A noise mechanism of your own: more noise in the first releases, when the model learns fast anyway.

A mechanism adds noise to an integer sum, and says what its releases cost. The ledger, the budget and every claim follow
from that one method, `spent`: it is the part to get right.
"""

from typing import Literal

from pydantic import Field

import sottovoce as sv


class Stepped(sv.NoiseMechanism):
    """Gaussian noise that is `factor` times as large in the first `first` releases."""

    name: Literal["stepped"] = "stepped"
    first: int = Field(2, ge=0)
    factor: float = Field(3.0, gt=1)

    def start(self, theta):
        return sv.NoiseState({"releases": theta.new_zeros(1)})

    def add_(self, total, *, stds, partition, rng, state):
        done = state.vectors["releases"]
        scale = self.factor if int(done) < self.first else 1.0
        scaled = [scale * std for std in stds]
        sv.Gaussian().add_(total, stds=scaled, partition=partition, rng=rng, state=state)
        return sv.NoiseState({"releases": done + 1})

    def spent(self, z, sampling_prob, adjacency, releases):
        large = min(releases, self.first)
        return {
            sv.Event(self.factor * z, sampling_prob, adjacency): large,
            sv.Event(z, sampling_prob, adjacency): releases - large,
        }


if __name__ == "__main__":
    settings = sv.preset("quick", {"privacy": {"noise": Stepped()}, "federated": {"central_steps": 3}})
    run = sv.train_federated(settings, "runs/stepped")
    print(f"epsilon of {run.result.releases} releases: {run.epsilon.tightest:.3g}")
