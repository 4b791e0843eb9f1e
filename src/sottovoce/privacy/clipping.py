"""Clipping a delta and rounding it to integers, so that its norm is at most C, exactly.

Guarantees, for any finite delta (huge, tiny, denormal, zero):
- the integers v that are summed satisfy sum v_i^2 <= (weight_bound * C / resolution)^2 in exact arithmetic; with the
  rule `clip` the same holds layer by layer with C_h. Norms are enlarged by more than the rounding errors of their
  computation, in whatever order it adds, and values are rounded toward zero;
- a delta that is not finite is reported, and adds nothing.

The rule `clip` is Delta_h * min(1, C_h / |Delta_h|); `normalize` leaves a delta with |Delta| < C alone and otherwise
rescales every layer to C_h, small ones up.
"""

import torch
from torch import Tensor

from sottovoce.errors import PrivacyError
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism

_ROUNDING = 2.0**-52


def clip_factors(norms: Tensor, mechanism: Mechanism) -> Tensor:
    """Return what every layer of a delta is multiplied by; `norms` are its layers' norms in float64."""
    if mechanism.clip_norms is None or mechanism.privacy.clip_norm is None:
        return torch.ones_like(norms)
    # A norm of d squares is off by at most d roundings; a few more are in what follows.
    enlarged = norms * (1 + (sum(mechanism.partition.sizes) + 32) * _ROUNDING)
    whole = torch.linalg.vector_norm(enlarged)
    bounds = norms.new_tensor(mechanism.clip_norms)
    if len(bounds) == 1 and mechanism.privacy.clipping == "global":
        return torch.clamp(bounds / whole, max=1.0).expand_as(norms)
    if mechanism.privacy.rule == "normalize":
        rescaled = torch.where(norms > 0, bounds / enlarged, 0.0)
        return torch.where(whole < mechanism.privacy.clip_norm, torch.ones_like(norms), rescaled)
    return torch.clamp(bounds / enlarged, max=1.0)


def add_clipped_(
    total: Tensor, delta: Tensor, weight: int, mechanism: Mechanism, largest: int
) -> tuple[Tensor, Tensor] | None:
    """Add weight * clip(delta) to the integer sum; `weight` is a multiple of `Mechanism.weight_unit`.

    Return the norms of the delta's layers and the factors they were multiplied by; None, and nothing is added, where
    the delta is not finite or, without clipping, larger than the `largest` that one user may add to a coordinate.
    """
    partition = mechanism.partition
    if not 0 <= weight <= WEIGHTS:
        raise PrivacyError(f"A weight of {weight * mechanism.weight_unit:g} is above participation.weight_bound.")
    norms = partition.norms(delta)
    if not bool(torch.isfinite(norms).all()):
        return None
    factors = clip_factors(norms, mechanism)
    scales = (factors * (weight * mechanism.weight_unit / mechanism.resolution)).tolist()
    if mechanism.clip_norms is None and float(delta.abs().max()) * max(scales) > largest:
        return None
    sums, deltas = (torch.split(vector, list(partition.tensor_sizes)) for vector in (total, delta))
    for place, layer in enumerate(partition.tensor_layers):
        sums[place].add_(deltas[place].double().mul_(scales[layer]).trunc_().long())
    return norms, factors
