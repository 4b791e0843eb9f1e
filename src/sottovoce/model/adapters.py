"""Low-rank adapters: a frozen matrix W counts as W + scale B A, where the thin matrices A and B train in its place.

B begins at zero, so the model begins as the one without adapters. The rows of A are orthonormal, drawn from a named
stream of the run's seed: every process and every user has the same ones, and a change of B moves the effective matrix
by exactly `scale` times as much. In a flat vector A and B are tensors like all others, in the group `adapters`, with
the block and the kind of their matrix. `FlatModel.tensors` returns effective matrices, so a model file never shows that
a run had adapters.

Promises: scores are those of the merged model, to the bit on a CPU. No gradient of W is ever computed.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from sottovoce.errors import ConfigError
from sottovoce.model.adapter_options import Adapters
from sottovoce.model.encoder import Encoder, make_on_meta
from sottovoce.model.encoder_options import EncoderOptions
from sottovoce.model.linear import AdaptedLinear
from sottovoce.model.roles import ADAPTERS, TensorRole, listed
from sottovoce.randomness import stream

_WEIGHT, _A, _B = "weight", "a", "b"
# A new kernel U(+-1/sqrt(inputs)) has, on average, a square of 1/3 per output.
_NEW_SQUARE = 1 / 3


def adapt_(encoder: Encoder, adapters: Adapters, seed: int) -> None:
    """Give an encoder adapters in place; raise ConfigError where it has no such matrices. A rank of 0 changes nothing.

    On the device `meta` nothing is drawn.
    """
    if not adapters.rank:
        return
    for name in _chosen(encoder, adapters):
        matrix = encoder.get_submodule(name)
        assert isinstance(matrix, nn.Linear)  # noqa: S101 - `adaptable` promises it
        if adapters.rank > min(matrix.weight.shape):
            raise ConfigError(
                f"Expected federated.adapters.rank={adapters.rank} <= {min(matrix.weight.shape)}, the smaller side of "
                f"{name}: a larger rank has more parameters than the matrix."
            )
        adapted = AdaptedLinear(matrix, adapters.rank, adapters.scale)
        if not adapted.a.is_meta:
            adapted.a.data.copy_(_orthonormal(seed, name, adapters.rank, matrix.in_features))
        adapted.a.requires_grad_(adapters.train == "both")
        parent, _, own = name.rpartition(".")
        setattr(encoder.get_submodule(parent), own, adapted)


def make_adapted_on_meta(options: EncoderOptions, tokens: int, adapters: Adapters) -> Encoder:
    """Return an encoder with adapters without memory for its parameters, to ask for its sizes."""
    encoder = make_on_meta(options, tokens)
    adapt_(encoder, adapters, seed=0)  # nothing is drawn
    return encoder


def _chosen(encoder: Encoder, adapters: Adapters) -> list[str]:
    """Return the names of the matrices that get adapters, in the encoder's order."""
    matrices, roles = encoder.adaptable(), all_roles(encoder)
    if not matrices:
        raise ConfigError(
            f"{type(encoder).__name__} has no matrices for adapters: its method `adaptable` names none. Set "
            "federated.adapters.rank=0."
        )
    known = {name: roles[f"{name}.{_WEIGHT}"] for name in matrices}
    for name in adapters.on:
        if not any(name in role.names for role in known.values()):
            raise ConfigError(
                f"federated.adapters.on names {name!r}, and no matrix for an adapter is called that. Choose among: "
                f"{listed(known.values())}."
            )
    return [name for name, role in known.items() if not role.names.isdisjoint(adapters.on)]


def _orthonormal(seed: int, name: str, rank: int, inputs: int) -> Tensor:
    """Return orthonormal rows in a random direction, (rank, inputs).

    Gram-Schmidt in sums of NumPy's own: those of a BLAS may depend on its number of threads.
    """
    rows = stream(seed, "adapters", name).standard_normal((rank, inputs))
    for place in range(rank):
        before = rows[:place]
        for _ in range(2):  # the second time removes what rounding has left
            rows[place] -= ((before * rows[place]).sum(axis=1, keepdims=True) * before).sum(axis=0)
        rows[place] /= np.sqrt(np.square(rows[place]).sum())
    return torch.from_numpy(rows.astype(np.float32))


def adapted_matrices(encoder: nn.Module) -> dict[str, AdaptedLinear]:
    """Return the matrices with adapters by name, in the order of the parameters."""
    return {name: module for name, module in encoder.named_modules() if isinstance(module, AdaptedLinear)}


def all_roles(encoder: Encoder) -> dict[str, TensorRole]:
    """Return the role of every parameter, A and B included; raise ConfigError where an encoder names others.

    A role says how small the norm of B may be in a trust ratio. It begins at zero, where LAMB and LARS would first take
    a step of any length, and then move it in proportion to that length. So B counts at least as if `scale` B A had the
    norm of a new matrix of this shape.
    """
    roles = encoder.parameter_roles()
    names = [name for name, _ in encoder.named_parameters()]
    adapted = adapted_matrices(encoder)
    own = {f"{name}.{part}" for name in adapted for part in (_A, _B)}
    if {*roles, *own} != set(names):
        raise ConfigError(f"{type(encoder).__name__}.parameter_roles must name every parameter, and nothing else.")
    if not adapted:
        return roles
    for name, matrix in adapted.items():
        role = roles[f"{name}.{_WEIGHT}"]
        least = float(np.sqrt(_NEW_SQUARE * matrix.out_features)) / matrix.scale
        for part, norm in ((_A, 0.0), (_B, least)):
            roles[f"{name}.{part}"] = TensorRole(role.block, role.kind, role.groups | {ADAPTERS}, norm)
    return {name: roles[name] for name in names}


def require_untouched(encoder: Encoder, trainable: Iterable[str], roles: Mapping[str, TensorRole]) -> None:
    """Raise ConfigError where all that a name selects is matrices which their adapters keep frozen."""
    frozen = {f"{name}.{_WEIGHT}" for name in adapted_matrices(encoder)}
    for name in trainable:
        selected = {tensor for tensor, role in roles.items() if name in role.names and ADAPTERS not in role.groups}
        if selected and selected <= frozen:
            raise ConfigError(
                f"federated.trainable names {name!r}, whose matrices have adapters (federated.adapters.on) and stay "
                "frozen beside them. Leave it out of one of the two."
            )


def plain_parameters(encoder: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of the model without adapters, by name: frozen matrices as they are, not merged."""
    own = {id(part) for matrix in adapted_matrices(encoder).values() for part in (matrix.a, matrix.b)}
    return {name: parameter for name, parameter in encoder.named_parameters() if id(parameter) not in own}


def merged_tensors(encoder: nn.Module) -> dict[str, Tensor]:
    """Return all parameters of the model without adapters, with their effect in the matrices."""
    tensors: dict[str, Tensor] = dict(plain_parameters(encoder))
    with torch.no_grad():
        return tensors | {f"{name}.{_WEIGHT}": matrix.merged() for name, matrix in adapted_matrices(encoder).items()}


@torch.no_grad()
def reset_adapters_(encoder: nn.Module) -> None:
    """Set every B to zero, so that the adapters change nothing."""
    for matrix in adapted_matrices(encoder).values():
        matrix.b.zero_()


def unmerged_tensors(encoder: nn.Module) -> dict[str, Tensor]:
    """Return every matrix with an adapter, and its A and B: what a merged model does not tell."""
    return {
        f"{ADAPTERS}.{name}.{part}": getattr(matrix, part).detach()
        for name, matrix in adapted_matrices(encoder).items()
        for part in (_WEIGHT, _A, _B)
    }
