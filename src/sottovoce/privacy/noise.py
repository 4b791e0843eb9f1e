"""Gaussian noise on integer sums: drawn once per release, as integers.

Guarantees: every coordinate gets noise of its own, of at least the std that is asked for; where the std is 0 there is
none; the draws do not depend on the number of workers or on who took part.

- Secure: exact draws of the discrete Gaussian. Rounding a Gaussian to the grid would be post-processing, so that the
  accounting of the Gaussian holds for it; the discrete Gaussian differs from that by a factor that is so near to 1 that
  `Mechanism.sampler_epsilon` can add it to epsilon. No float64 is involved, so nothing of Mironov (2012) applies.
- Seeded, for simulation: float64 draws, rounded. They are not a proof: rounded to a fine grid, a float64 favours even
  numbers.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sottovoce.model.flat import Partition
from sottovoce.privacy.discrete_gaussian import discrete_gaussian
from sottovoce.randomness import Randomness, SecureRandomness

_CHUNK = 1 << 20  # coordinates drawn at a time: memory does not grow with the model


def add_noise_(total: Tensor, partition: Partition, stds: Sequence[float], rng: Randomness) -> None:
    """Add integer noise to an integer sum, tensor by tensor with its own std, in steps."""
    for part, std in zip(torch.split(total, list(partition.tensor_sizes)), stds, strict=True):
        if std == 0:
            continue
        for chunk in torch.split(part, _CHUNK):
            noise = _integers(rng, std, chunk.numel())
            chunk.add_(torch.from_numpy(noise).to(total.device))


def _integers(rng: Randomness, std: float, size: int) -> npt.NDArray[np.int64]:
    if isinstance(rng, SecureRandomness):
        return discrete_gaussian(std, size)
    return np.rint(rng.standard_normal(size) * std).astype(np.int64)
