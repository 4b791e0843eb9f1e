"""Clipping a delta and rounding it to integers, so that its norm is at most C, exactly.

Guarantees, for any finite delta (huge, tiny, denormal, zero):
- the integers v that are summed satisfy sum v_i^2 <= (weight_bound * C / resolution)^2 in exact arithmetic; with the
  rule `clip` the same holds layer by layer with C_h. Where bounds adapt, layers are bounded by the integers of
  `JointGrid` instead, and counts follow them. Norms are enlarged by more than the rounding errors of their
  computation, in whatever order it adds, and values are rounded toward zero;
- a delta that is not finite is reported, and adds nothing.

The rule `clip` is Delta_h * min(1, C_h / |Delta_h|); `normalize` leaves a delta with |Delta| < C alone and otherwise
rescales every layer to C_h, small ones up.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sottovoce.errors import PrivacyError
from sottovoce.model.partition import Partition
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
    if mechanism.privacy.clips_whole:
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
    units = norms.new_tensor(mechanism.units)
    scales = (factors * (weight * mechanism.weight_unit / units)).tolist()
    if mechanism.clip_norms is None and float(delta.abs().max()) * max(scales) > largest:
        return None
    _add_scaled_(total, delta, scales, mechanism.partition)
    _count_(total, norms, weight, mechanism)
    return norms, factors


def _count_(total: Tensor, norms: Tensor, weight: int, mechanism: Mechanism) -> None:
    """Where bounds adapt, add plus or minus one number for each, after the deltas: whether the delta lies within it."""
    if mechanism.grid is None or mechanism.clip_norms is None:
        return
    compared = torch.linalg.vector_norm(norms)[None] if mechanism.privacy.clips_whole else norms
    within = compared <= norms.new_tensor(mechanism.clip_norms)
    count = mechanism.grid.count * weight // WEIGHTS
    total[-len(within) :] += torch.where(within, count, -count)


def _add_scaled_(total: Tensor, delta: Tensor, scales: Sequence[float], partition: Partition) -> None:
    """Add the delta to the integer sum, each layer multiplied by its scale in float64 and rounded toward zero."""
    chunks = partition.chunks(delta.device)
    wide = torch.empty(max(chunk.size for chunk in chunks), dtype=torch.float64, device=delta.device)
    whole = torch.empty_like(wide, dtype=torch.int64)
    for chunk in chunks:
        scaled, rounded = wide[: chunk.size], whole[: chunk.size]
        scaled.copy_(delta[chunk.first : chunk.last])
        for tensor, piece in zip(chunk.tensors, torch.split(scaled, chunk.sizes), strict=True):
            piece.mul_(scales[partition.tensor_layers[tensor]])
        _add_truncated_(total[chunk.first : chunk.last], scaled, rounded)


def _add_truncated_(total: Tensor, scaled: Tensor, rounded: Tensor) -> None:
    """Add float64 numbers, rounded toward zero, to integers; a conversion to integers drops the fraction."""
    if total.device.type == "cpu":  # NumPy takes less than half of PyTorch's time for both operations
        sums, integers = total.numpy(), rounded.numpy()
        np.copyto(integers, scaled.numpy(), casting="unsafe")
        np.add(sums, integers, out=sums)
    else:
        rounded.copy_(scaled)
        total.add_(rounded)
