"""Gaussian noise on integer sums: drawn once per release, in float64, rounded to integers.

Guarantees: every coordinate gets noise of its own, of at least the std that is asked for; where the std is 0 there is
none; the draws do not depend on the number of workers.

What remains: rounding a Gaussian to the grid is post-processing, but a draw has 53 bits and ends near 9 standard
deviations (for 2.5e8 coordinates the mass beyond is below 1e-10), and float64 arithmetic is not a proof.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sottovoce.model.flat import Partition
from sottovoce.randomness import Randomness

_CHUNK = 1 << 20  # coordinates drawn at a time: memory does not grow with the model


def add_noise_(total: Tensor, partition: Partition, stds: Sequence[float], rng: Randomness) -> None:
    """Add integer noise to an integer sum, tensor by tensor with its own std, in steps."""
    for part, std in zip(torch.split(total, list(partition.tensor_sizes)), stds, strict=True):
        if std == 0:
            continue
        for chunk in torch.split(part, _CHUNK):
            noise = np.rint(rng.standard_normal(chunk.numel()) * std).astype(np.int64)
            chunk.add_(torch.from_numpy(noise).to(total.device))
