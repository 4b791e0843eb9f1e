"""A noise mechanism of one's own, with a memory, for the tests of the seams."""

from typing import Literal

import torch

from sottovoce.privacy.accounting import Event
from sottovoce.privacy.noise import Gaussian, NoiseMechanism, NoiseState


class Cancelling(NoiseMechanism):
    """Every release takes back half of the noise of the one before: noise with a memory, accounted as one event."""

    name: Literal["cancelling"] = "cancelling"

    def start(self, theta):
        return NoiseState({"last": torch.zeros(len(theta), dtype=torch.int64)})

    def add_(self, total, *, stds, partition, rng, state):
        fresh = torch.zeros_like(total)
        Gaussian().add_(fresh, stds=stds, partition=partition, rng=rng, state=NoiseState())
        total.add_(fresh - state.vectors["last"] // 2)
        return NoiseState({"last": fresh})

    def spent(self, z, sampling_prob, adjacency, releases):
        return {Event(z / 2, 1.0, adjacency): min(releases, 1)}
