"""Clipping a delta and rounding it to integers, so that its norm is at most C, exactly.

Guarantees, for any finite delta (huge, tiny, denormal, zero):
- the integers v that are summed satisfy sum v_i^2 <= (weight_bound * C / step)^2, and layer by layer the same with C_h,
  in exact arithmetic: norms are enlarged by more than the rounding errors of their computation, in whatever order it
  adds, and values are rounded toward zero;
- a delta that is not finite has no integers: it is reported, and counts as zero.

The rule `clip` is Delta_h * min(1, C_h / |Delta_h|); `normalize` leaves a delta with |Delta| < C alone and otherwise
rescales every layer to C_h, small ones up.
"""

import torch
from torch import Tensor

from sottovoce.errors import DataError
from sottovoce.privacy.mechanism import Mechanism

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
    total: Tensor, delta: Tensor, factors: Tensor, weight: int, mechanism: Mechanism, largest: int
) -> None:
    """Add weight * clip(delta) to the integer sum; `weight` is a multiple of `Mechanism.weight_unit`.

    `largest` is how many steps one user may add to a coordinate (see `Mechanism.require_range`).
    """
    scales = (factors * (weight * mechanism.weight_unit / mechanism.step)).tolist()
    partition = mechanism.partition
    sums, deltas = (torch.split(vector, list(partition.tensor_sizes)) for vector in (total, delta))
    for place, layer in enumerate(partition.tensor_layers):
        steps = deltas[place].double().mul_(scales[layer]).trunc_()
        if mechanism.clip_norms is None and bool(steps.abs().max() > largest):
            raise DataError(
                "A user's delta is too large for exact sums. Lower federated.local.lr, or clip (privacy.clipping)."
            )
        sums[place].add_(steps.long())
