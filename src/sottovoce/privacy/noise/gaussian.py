"""Gaussian noise, drawn independently for every release: the paper's.

Guarantees: every coordinate gets noise of its own, with at least the requested standard deviation; where that is 0
there is no noise; the draws depend neither on the number of workers nor on who took part.

- Secure: exact draws of the discrete Gaussian. Rounding a Gaussian to the grid would be post-processing, so the
  accounting of the Gaussian would hold. The discrete Gaussian differs from it by a factor so close to 1 that
  `Mechanism.sampler_epsilon` adds it to epsilon. No float64 is involved, so the attack of Mironov (2012) on
  floating-point noise does not apply.
- Seeded, for simulation: float64 draws, rounded. They prove nothing: rounded to a fine grid, a float64 favours even
  numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from sottovoce.privacy.accounting import Event
from sottovoce.privacy.discrete_gaussian import discrete_gaussian
from sottovoce.privacy.noise.base import NoiseMechanism, NoiseState
from sottovoce.randomness import Randomness, SecureRandomness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from sottovoce.model.flat import Partition
    from sottovoce.privacy.accounting import Adjacency, Counts

_CHUNK = 1 << 20  # coordinates drawn at a time: memory does not grow with the model


class Gaussian(NoiseMechanism):
    """Independent Gaussian noise."""

    name: Literal["gaussian"] = "gaussian"

    def add_(
        self,
        total: Tensor,
        *,
        stds: Sequence[float],
        partition: Partition,
        rng: Randomness,
        state: NoiseState,
        sign: int = 1,
    ) -> NoiseState:
        """Add integer noise, tensor by tensor with its own standard deviation."""
        import torch  # noqa: PLC0415 - reading a preset stays fast

        for part, std in zip(torch.split(total, list(partition.tensor_sizes)), stds, strict=True):
            if std == 0:
                continue
            for chunk in torch.split(part, _CHUNK):
                noise = torch.from_numpy(_integers(rng, std, chunk.numel()))
                chunk.add_(noise.to(total.device), alpha=sign)
        return state

    def spent(self, z: float, sampling_prob: float, adjacency: Adjacency, releases: int) -> Counts:
        """Return the same sampled Gaussian for every release."""
        return {Event(z, sampling_prob, adjacency): releases}


def _integers(rng: Randomness, std: float, size: int) -> npt.NDArray[np.int64]:
    if isinstance(rng, SecureRandomness):
        return discrete_gaussian(std, size)
    return np.rint(rng.standard_normal(size) * std).astype(np.int64)
