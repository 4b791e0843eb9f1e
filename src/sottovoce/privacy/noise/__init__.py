"""Noise mechanisms: integer noise on integer sums, and what it costs."""

from typing import Annotated

from sottovoce.open_union import OpenUnion
from sottovoce.privacy.noise.base import IndependentNoise, NoiseMechanism, NoiseState
from sottovoce.privacy.noise.correlated import Correlated
from sottovoce.privacy.noise.gaussian import Gaussian

__all__ = ["AnyNoise", "Correlated", "Gaussian", "IndependentNoise", "NoiseMechanism", "NoiseState"]

AnyNoise = Annotated[NoiseMechanism, OpenUnion(NoiseMechanism, "name", label="noise")]
