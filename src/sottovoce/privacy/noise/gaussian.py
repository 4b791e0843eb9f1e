"""Gaussian noise, drawn independently for every release: the paper's.

Guarantees: every coordinate gets noise of its own, with at least the requested standard deviation; where that is 0
there is no noise; the draws depend neither on the number of workers nor on who took part.

- Secure: exact draws of the discrete Gaussian. Rounding a Gaussian to the grid would be post-processing, so the
  accounting of the Gaussian would hold. The discrete Gaussian differs from it by a factor so close to 1 that
  `Mechanism.sampler_epsilon` adds it to epsilon. No rounding error of float64 changes a draw, so the attack of
  Mironov (2012) on floating-point noise does not apply.
- Seeded, for simulation: float64 draws, rounded. They prove nothing: rounded to a fine grid, a float64 favours even
  numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from sottovoce.privacy.accounting import Event
from sottovoce.privacy.discrete_gaussian import discrete_gaussian
from sottovoce.privacy.noise.base import IndependentNoise
from sottovoce.randomness import Randomness, SecureRandomness

if TYPE_CHECKING:
    from sottovoce.privacy.accounting import Adjacency, Counts

_CHUNK = 1 << 15  # seeded draws at a time: the arrays stay in the cache


class Gaussian(IndependentNoise):
    """Independent Gaussian noise."""

    name: Literal["gaussian"] = "gaussian"

    def draw(self, std: float, size: int, rng: Randomness) -> npt.NDArray[np.int64]:
        """Return integers: exact draws of the discrete Gaussian, or rounded float64 draws of a seeded stream."""
        if isinstance(rng, SecureRandomness):
            return discrete_gaussian(std, size, rng.octets)
        noise = np.empty(size, np.int64)
        for start in range(0, size, _CHUNK):
            chunk = noise[start : start + _CHUNK]
            chunk[:] = np.rint(rng.standard_normal(len(chunk)) * std)
        return noise

    def spent(self, z: float, sampling_prob: float, adjacency: Adjacency, releases: int) -> Counts:
        """Return the same sampled Gaussian for every release."""
        return {Event(z, sampling_prob, adjacency): releases}
