"""All parameters as one flat float32 vector, all gradients as another, and the Partition into layers.

The model's parameters and gradients are views into the two vectors, so that resetting to theta, taking a difference,
an SGD step, a norm or an aggregate is one operation on one array. A `Partition` cuts the vector into the layers h that
clipping, trust ratios and statistics speak of: by default every parameter tensor is a layer; `block` puts all tensors
of a transformer block together, `kind` the same part of all blocks (ln1, wqkv, wf, ln2, w1, w2, rest).
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

PartitionName = Literal["tensor", "block", "kind"]
KINDS = ("ln1", "wqkv", "wf", "ln2", "w1", "w2")


@dataclass(frozen=True)
class Partition:
    """The layers of a flat vector: each of its tensors, in order, belongs to one layer."""

    layers: tuple[str, ...]
    tensors: tuple[str, ...]
    tensor_sizes: tuple[int, ...]
    tensor_layers: tuple[int, ...]  # for every tensor, the place of its layer in `layers`

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

    def norms(self, vector: Tensor) -> Tensor:
        """Return the Euclidean norm of every layer, in float64."""
        tensors = torch._foreach_norm(_cut(vector, self.tensor_sizes), 2, dtype=torch.float64)
        squares = torch.stack(list(tensors)).square()
        layer = torch.tensor(self.tensor_layers, device=vector.device)
        return torch.zeros(len(self), dtype=torch.float64, device=vector.device).index_add_(0, layer, squares).sqrt()

    def scale_(self, vector: Tensor, factors: Tensor) -> Tensor:
        """Multiply every layer of the vector, in place, by its factor."""
        values = factors.to(vector.dtype)[list(self.tensor_layers)]
        torch._foreach_mul_(_cut(vector, self.tensor_sizes), values.tolist())
        return vector


class FlatModel:
    """A module whose parameters are views into `theta` and whose gradients are views into `gradient`."""

    def __init__(self, module: nn.Module) -> None:
        """Move the module's parameters into one vector, in their own order."""
        self.module = module
        named = list(module.named_parameters())
        self.names = tuple(name for name, _ in named)
        self.shapes = tuple(tuple(parameter.shape) for _, parameter in named)
        parameters = [parameter for _, parameter in named]
        self.theta = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.gradient = torch.zeros_like(self.theta)
        sizes = [parameter.numel() for parameter in parameters]
        views = zip(parameters, _cut(self.theta, sizes), _cut(self.gradient, sizes), strict=True)
        for parameter, value, gradient in views:
            parameter.data = value.view(parameter.shape)
            parameter.grad = gradient.view(parameter.shape)

    def load_(self, theta: Tensor) -> None:
        """Set all parameters."""
        self.theta.copy_(theta)

    def partition(self, name: PartitionName = "tensor") -> Partition:
        """Return the layers by tensor, by block or by kind."""
        return make_partition(self.names, [math.prod(shape) for shape in self.shapes], name)

    def tensors(self) -> dict[str, Tensor]:
        """Return the parameters by name, as views."""
        return dict(self.module.named_parameters())


def make_partition(names: Sequence[str], sizes: Sequence[int], partition: PartitionName) -> Partition:
    """Group tensors, given by name and size, into layers."""
    rules: dict[str, Callable[[str], str]] = {"tensor": str, "block": _block_of, "kind": _kind_of}
    layer_of = rules[partition]
    assigned = [layer_of(name) for name in names]
    layers = tuple(dict.fromkeys(assigned))
    places = {layer: place for place, layer in enumerate(layers)}
    return Partition(layers, tuple(names), tuple(sizes), tuple(places[layer] for layer in assigned))


def _cut(vector: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    return list(torch.split(vector, list(sizes)))


def _block_of(name: str) -> str:
    found = re.match(r"blocks\.\d+", name)
    return found[0] if found else name.partition(".")[0]


def _kind_of(name: str) -> str:
    found = re.match(r"blocks\.\d+\.(\w+)", name)
    return found[1] if found and found[1] in KINDS else "rest"
