"""Norms of layers in a finished run, by kind of layer and block. They decide effects about the balance of layers.

In a central run they are norms of the gradient, averaged over the steps that noted it. In a federated run they are
norms of the users' deltas before clipping, averaged over users and steps. Tensors of one kind in one block, such as the
weight and the bias of a LayerNorm, count by their root mean square, and so do blocks. An effect names a kind ("ln1"),
or a kind in the first or the last blocks ("ln1 first", "ln1 last"): in the paper, 1 to 10 and 20 to 36 of 36 (P:2173).
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from sottovoce.model.roles import REST, role_by_name
from sottovoce.runs.folder import Run

Norms = Mapping[str, Sequence[float]]  # by kind: of each block, in order

_FIRST, _LAST = 10 / 36, 17 / 36  # of the blocks
_DIGITS = 6


def layer_norms(run: Run) -> dict[str, tuple[float, ...]]:
    """Return the mean norm of every kind of layer in each block; empty where the run has noted none."""
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for line in run.log.lines():
        users, noted = _noted(line)
        for layer, norm in noted.items():
            sums[layer] = sums.get(layer, 0.0) + users * norm
            weights[layer] = weights.get(layer, 0.0) + users
    means = {layer: total / weights[layer] for layer, total in sums.items() if weights[layer]}
    return _by_kind(means)


def norm_of(norms: Norms, name: str) -> float | None:
    """Return the norm that an effect names: of a kind, or of it in some blocks; None where there is none."""
    kind, _, where = name.partition(" ")
    blocks = norms.get(kind, ())
    if where == "first":
        blocks = blocks[: max(round(_FIRST * len(blocks)), 1)]
    elif where == "last":
        blocks = blocks[-max(round(_LAST * len(blocks)), 1) :]
    elif where:
        return None
    return _rms(blocks) or None


def _noted(line: Mapping[str, object]) -> tuple[float, Mapping[str, float]]:
    """Return the norms in a line of the metrics, and how many users they are of; 1 for a gradient."""
    gradient, diagnostics = line.get("layer_gradient_norms"), line.get("not_private")
    if isinstance(gradient, Mapping):
        return 1.0, gradient
    layers = diagnostics.get("layers") if isinstance(diagnostics, Mapping) else None
    if not isinstance(diagnostics, Mapping) or not isinstance(layers, Mapping):
        return 0.0, {}
    users = float(diagnostics.get("cohort") or 0) - float(diagnostics.get("failed_users") or 0)
    return users, layers.get("delta_norm") or {}


def _by_kind(means: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
    tensors: dict[str, dict[int, list[float]]] = {}
    for layer, norm in means.items():
        role = role_by_name(layer, {})
        number = role.block.rpartition(".")[2]
        if role.kind != REST and number.isdigit():
            tensors.setdefault(role.kind, {}).setdefault(int(number), []).append(norm)
    return {
        kind: tuple(float(f"{_rms(own):.{_DIGITS}g}") for _, own in sorted(blocks.items()))
        for kind, blocks in tensors.items()
    }


def _rms(values: Iterable[float]) -> float:
    known = list(values)
    return math.sqrt(math.fsum(value**2 for value in known) / len(known)) if known else 0.0
