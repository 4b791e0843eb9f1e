"""The settings of an audited run: a preset's mechanism, with a population for its canaries.

K is eight times the number of canaries, of whom half are absent. K is public and may be larger than the number of
users, and cohorts far below S show noise that grows with the cohort.
"""

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from sottovoce.config import Layer, Resolved, Tree
from sottovoce.errors import ConfigError
from sottovoce.model.partition import make_partition
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.randomness import stream

CanaryKind = Literal["directions", "speakers"]

_POPULATION_PER_CANARY = 8
_SOURCE = "the audit"


def audited_settings(
    settings: Resolved,
    canaries: int,
    *,
    z: float | None = None,
    sampling_prob: float | None = None,
    central_steps: int | None = None,
) -> Resolved:
    """Return the settings with K for so many canaries, and z and q as they were, or as given."""
    old, privacy = settings.config.participation, settings.config.privacy
    if privacy.void is not None:
        raise ConfigError(f"There is no claim to audit: {privacy.void}.")
    if old.sampling == "fixed":
        raise ConfigError("Coins decide who is there, so cohorts cannot have a fixed size. Audit poisson or everyone.")
    if privacy.adapts:
        raise ConfigError("Canaries know only bounds that stay the same. Audit another privacy.clipping, such as dim.")
    before = _mechanism(settings)
    population = _POPULATION_PER_CANARY * canaries
    q = before.sampling_prob if sampling_prob is None else sampling_prob
    if not 0 < q <= 1:
        raise ConfigError(f"Expected 0 < sampling_prob={q:g} <= 1.")
    if z is not None and not 0 < z < math.inf:
        raise ConfigError(f"Expected z={z:g} > 0: without noise there is no claim to audit.")
    participation: Tree = {"population": population, "cohort_size": q * population}
    if old.weight != "one":
        participation["weight_total"] = population * old.weight_bound
    steps = {} if central_steps is None else {"central_steps": central_steps}
    sized = settings.over(Layer({"participation": participation, "federated": steps}, _SOURCE))
    sigma_dp = privacy.sigma_dp * (before.z if z is None else z) / _mechanism(sized).z
    return sized.over(Layer({"privacy": {"sigma_dp": sigma_dp}}, _SOURCE))


def _mechanism(settings: Resolved) -> Mechanism:
    """Return the mechanism of some settings, whose z and q do not depend on the model."""
    config = settings.config
    return Mechanism(config.privacy, config.participation, make_partition(["theta"], [1], "tensor"))


def flipped_coins(seed: int, canaries: int) -> npt.NDArray[np.bool_]:
    """Return which canaries are in the population; the stream is the audit's own."""
    return stream(seed, "audit-coins").random(canaries) < 0.5
