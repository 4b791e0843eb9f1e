"""The partition of a flat vector into layers: the layers h of clipping, trust ratios and statistics.

By default every tensor is a layer of its own. `block` joins all tensors of a block, `kind` the same part of all blocks;
the encoder says which tensor belongs to which (`roles.py`). Accounting needs no more than this module, so reading it
does not load torch.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from sottovoce.memory import part_size
from sottovoce.model.roles import TensorRole, having, role_by_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from torch import Tensor

PartitionName = Literal["tensor", "block", "kind"]
WHOLE = "the whole model"  # the name of all layers together, where one bound holds for them


@dataclass(frozen=True)
class FlatChunk:
    """A range of a flat vector, and the tensors that have a part in it."""

    first: int
    last: int
    tensors: tuple[int, ...]
    sizes: list[int]  # of their parts

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.last - self.first


@dataclass(frozen=True)
class Partition:
    """The layers of a flat vector: each of its tensors, in order, belongs to one layer."""

    layers: tuple[str, ...]
    tensors: tuple[str, ...]
    tensor_sizes: tuple[int, ...]
    tensor_layers: tuple[int, ...]  # for every tensor, the place of its layer in `layers`
    roles: tuple[TensorRole, ...]  # of every tensor

    def __len__(self) -> int:
        """Return the number of layers H."""
        return len(self.layers)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of parameters d_h of every layer."""
        sizes = [0] * len(self.layers)
        for layer, size in zip(self.tensor_layers, self.tensor_sizes, strict=True):
            sizes[layer] += size
        return tuple(sizes)

    @cached_property
    def least_norms(self) -> tuple[float, ...]:
        """What trust ratios take the norm of every layer for, at least."""
        squares = [0.0] * len(self.layers)
        for layer, role in zip(self.tensor_layers, self.roles, strict=True):
            squares[layer] += role.least_norm**2
        return tuple(map(math.sqrt, squares))

    def tensors_in(self, group: str) -> tuple[bool, ...]:
        """Return which tensors belong to a group, a kind or a block; raise ConfigError where there is no such name."""
        return having(group, self.roles)

    def layers_in(self, group: str) -> tuple[bool, ...]:
        """Return which layers consist of tensors of a group alone."""
        inside = [True] * len(self.layers)
        for layer, belongs in zip(self.tensor_layers, self.tensors_in(group), strict=True):
            inside[layer] &= belongs
        return tuple(inside)

    def roles_in(self, layer: str) -> dict[str, TensorRole]:
        """Return the tensors of a layer with their roles; raise KeyError where there is no such layer."""
        if layer not in self.layers:
            raise KeyError(layer)
        place = self.layers.index(layer)
        members = zip(self.tensors, self.tensor_layers, self.roles, strict=True)
        return {tensor: role for tensor, own, role in members if own == place}

    def norms(self, vector: Tensor, *, precise: bool = True) -> Tensor:
        """Return the Euclidean norm of every layer, in float64.

        Without `precise`, the squares of a tensor are added up in the vector's own type. That is faster, and good
        enough for statistics.
        """
        import torch  # noqa: PLC0415 - whoever has a vector has loaded it

        if precise:
            squares = self._squares(vector)
        else:
            norms = torch._foreach_norm(torch.split(vector, list(self.tensor_sizes)), 2)
            squares = torch.stack(norms).double().square()
        if len(self) == len(self.tensors):
            return squares.sqrt()
        layer = torch.tensor(self.tensor_layers, device=vector.device)
        return torch.zeros(len(self), dtype=torch.float64, device=vector.device).index_add_(0, layer, squares).sqrt()

    def _squares(self, vector: Tensor) -> Tensor:
        """Return the sum of squares of every tensor, squared and added up in float64."""
        import torch  # noqa: PLC0415 - whoever has a vector has loaded it

        chunks = self.chunks(vector.device)
        wide = torch.empty(max(chunk.size for chunk in chunks), dtype=torch.float64, device=vector.device)
        sums: list[Tensor] = []
        for chunk in chunks:
            part = wide[: chunk.size].copy_(vector[chunk.first : chunk.last])
            sums += [torch.dot(piece, piece) for piece in torch.split(part, chunk.sizes)]
        owners = torch.tensor([tensor for chunk in chunks for tensor in chunk.tensors], device=vector.device)
        return wide.new_zeros(len(self.tensors)).index_add_(0, owners, torch.stack(sums))

    def chunks(self, device: torch.device) -> tuple[FlatChunk, ...]:
        """Return the vector cut into chunks that stay in a CPU's cache while several operations pass over them."""
        size = part_size(device)
        if size not in self._chunks_by_size:
            self._chunks_by_size[size] = tuple(_chunks(self.tensor_sizes, size))
        return self._chunks_by_size[size]

    @cached_property
    def _chunks_by_size(self) -> dict[int, tuple[FlatChunk, ...]]:
        return {}

    def scale_(self, vector: Tensor, factors: Tensor) -> Tensor:
        """Multiply every layer of the vector, in place, by its factor."""
        import torch  # noqa: PLC0415 - whoever has a vector has loaded it

        values = factors.to(vector.dtype)[list(self.tensor_layers)]
        torch._foreach_mul_(torch.split(vector, list(self.tensor_sizes)), values.tolist())
        return vector


def make_partition(
    tensors: Sequence[str], sizes: Sequence[int], name: PartitionName, roles: Sequence[TensorRole] | None = None
) -> Partition:
    """Group tensors into layers; without roles, these follow from the names alone."""
    if roles is None:
        roles = [role_by_name(tensor, {}) for tensor in tensors]
    assigned = {
        "tensor": list(tensors),
        "block": [role.block for role in roles],
        "kind": [role.kind for role in roles],
    }[name]
    layers = tuple(dict.fromkeys(assigned))
    places = {layer: place for place, layer in enumerate(layers)}
    return Partition(layers, tuple(tensors), tuple(sizes), tuple(places[layer] for layer in assigned), tuple(roles))


def _chunks(sizes: Sequence[int], size: int) -> Iterator[FlatChunk]:
    """Cut a vector of tensors into chunks of this size."""
    ends = list(itertools.accumulate(sizes))
    tensor = 0
    for first in range(0, ends[-1], size):
        place, last = first, min(first + size, ends[-1])
        tensors, parts = [], []
        while place < last:
            end = min(ends[tensor], last)
            tensors.append(tensor)
            parts.append(end - place)
            tensor, place = tensor + (end == ends[tensor]), end
        yield FlatChunk(first, last, tuple(tensors), parts)
