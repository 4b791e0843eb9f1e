"""The trainable parameters as one flat float32 vector, their gradients as another, and the Partition into layers.

The model's parameters and gradients are views into the two vectors, so that resetting to theta, taking a difference,
an SGD step, a norm or an aggregate is one operation on one array. Frozen parameters stay outside both vectors.

A `Partition` cuts the vector into the layers h of clipping, trust ratios and statistics. By default every tensor is a
layer of its own. `block` joins all tensors of a block, `kind` the same part of all blocks; the encoder says which
tensor belongs to which (`roles.py`).
"""

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.memory import part_size
from sottovoce.model.encoder import Encoder
from sottovoce.model.linear import set_gradient_home
from sottovoce.model.roles import TensorRole, Trainable, having, role_by_name, selected

PartitionName = Literal["tensor", "block", "kind"]


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
        if precise:
            squares = self._squares(vector)
        else:
            squares = torch.stack(torch._foreach_norm(_cut(vector, self.tensor_sizes), 2)).double().square()
        if len(self) == len(self.tensors):
            return squares.sqrt()
        layer = torch.tensor(self.tensor_layers, device=vector.device)
        return torch.zeros(len(self), dtype=torch.float64, device=vector.device).index_add_(0, layer, squares).sqrt()

    def _squares(self, vector: Tensor) -> Tensor:
        """Return the sum of squares of every tensor, squared and added up in float64."""
        chunks = self.chunks(vector.device)
        wide = torch.empty(max(chunk.size for chunk in chunks), dtype=torch.float64, device=vector.device)
        sums: list[Tensor] = []
        for chunk in chunks:
            part = wide[: chunk.size].copy_(vector[chunk.first : chunk.last])
            sums += [torch.dot(piece, piece) for piece in torch.split(part, chunk.sizes)]
        owners = torch.tensor([tensor for chunk in chunks for tensor in chunk.tensors], device=vector.device)
        return wide.new_zeros(len(self.tensors)).index_add_(0, owners, torch.stack(sums))

    def chunks(self, device: torch.device) -> tuple["FlatChunk", ...]:
        """Return the vector cut into chunks that stay in a CPU's cache while several operations pass over them."""
        size = part_size(device)
        if size not in self._chunks_by_size:
            self._chunks_by_size[size] = tuple(_chunks(self.tensor_sizes, size))
        return self._chunks_by_size[size]

    @cached_property
    def _chunks_by_size(self) -> dict[int, tuple["FlatChunk", ...]]:
        return {}

    def scale_(self, vector: Tensor, factors: Tensor) -> Tensor:
        """Multiply every layer of the vector, in place, by its factor."""
        values = factors.to(vector.dtype)[list(self.tensor_layers)]
        torch._foreach_mul_(_cut(vector, self.tensor_sizes), values.tolist())
        return vector


class FlatModel:
    """An encoder whose trainable parameters are views into `theta` and whose gradients are views into `gradient`."""

    def __init__(self, encoder: Encoder, trainable: Trainable = "all") -> None:
        """Move the trainable parameters into one vector, in their own order, and freeze the others.

        Parameters that the encoder itself has frozen (`requires_grad=False`) stay frozen.
        """
        self.encoder = encoder
        _require_no_buffers(encoder)
        self._constants = {name: buffer.clone() for name, buffer in encoder.named_buffers()}
        self.roles = trainable_roles(encoder, trainable)
        for name, parameter in encoder.named_parameters():
            parameter.requires_grad_(name in self.roles)
        parameters = [encoder.get_parameter(name) for name in self.roles]
        self.shapes = tuple(tuple(parameter.shape) for parameter in parameters)
        self.theta = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.gradient = torch.zeros_like(self.theta)
        sizes = [parameter.numel() for parameter in parameters]
        self._homes: list[tuple[Tensor, Tensor]] = []  # every parameter with its part of the gradient
        views = zip(parameters, _cut(self.theta, sizes), _cut(self.gradient, sizes), strict=True)
        for parameter, value, gradient in views:
            parameter.data = value.view(parameter.shape)
            parameter.grad = gradient.view(parameter.shape)
            set_gradient_home(parameter, parameter.grad)
            self._homes.append((parameter, parameter.grad))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the trainable tensors, in the order of theta."""
        return tuple(self.roles)

    def load_(self, theta: Tensor) -> None:
        """Set all trainable parameters."""
        self.theta.copy_(theta)

    @contextlib.contextmanager
    def new_gradient(self) -> Iterator[None]:
        """Replace the gradient by the sum of those of all backward passes inside; it is there at the end.

        Nothing is set to zero and added to: the first gradient of a parameter takes the place of the old one.
        """
        for parameter, _ in self._homes:
            parameter.grad = None
        yield
        for parameter, home in self._homes:
            if parameter.grad is None:
                home.zero_()
            elif parameter.grad is not home:
                home.copy_(parameter.grad)
            parameter.grad = home

    @torch.no_grad()
    def fill_(self, tensors: Mapping[str, Tensor]) -> None:
        """Set all parameters by name, frozen ones too; raise ValueError where a tensor is absent or does not fit."""
        parameters = self.tensors()
        for name in (*parameters, *tensors):
            expected, given = (tuple(part[name].shape) if name in part else None for part in (parameters, tensors))
            if expected != given:
                raise ValueError(f"{name} is {given}, not {expected}")
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])

    def require_constant_buffers(self) -> None:
        """Raise PrivacyError where training has changed or added a buffer, which the next user's model would share."""
        for name, buffer in self.encoder.named_buffers():
            before = self._constants.get(name)
            if before is None or before.dtype != buffer.dtype or not torch.equal(before, buffer):
                raise PrivacyError(
                    f"Training changes the buffer {name} of the encoder, so one user's audio would reach the next "
                    "user's model: use LayerNorm or GroupNorm, and keep only constants in buffers."
                )

    def frozen_tensors(self) -> list[Tensor]:
        """Return the parameters that do not train, in their own order."""
        return [tensor for name, tensor in self.tensors().items() if name not in self.roles]

    def partition(self, name: PartitionName = "tensor") -> Partition:
        """Return the layers of the trainable parameters by tensor, by block or by kind."""
        return make_partition(self.names, [math.prod(shape) for shape in self.shapes], name, tuple(self.roles.values()))

    def tensors(self) -> dict[str, Tensor]:
        """Return all parameters by name, frozen ones too; trainable ones are views into theta."""
        return dict(self.encoder.named_parameters())


def trainable_roles(encoder: Encoder, trainable: Trainable) -> dict[str, TensorRole]:
    """Return the roles of the tensors that train, by name; raise ConfigError where the selection is not possible.

    A parameter with `requires_grad=False` never trains, whatever is selected.
    """
    roles = encoder.parameter_roles()
    if set(roles) != {name for name, _ in encoder.named_parameters()}:
        raise ConfigError(f"{type(encoder).__name__}.parameter_roles must name every parameter, and nothing else.")
    names = selected(trainable, roles)
    trained = {
        name: role for name, role in roles.items() if name in names and encoder.get_parameter(name).requires_grad
    }
    if not trained:
        raise ConfigError("The encoder has frozen all parameters that federated.trainable selects. Select others.")
    return trained


def encoder_partition(encoder: Encoder, name: PartitionName, trainable: Trainable = "all") -> Partition:
    """Return the layers of an encoder's trainable parameters, which need not have memory."""
    roles = trainable_roles(encoder, trainable)
    sizes = [encoder.get_parameter(tensor).numel() for tensor in roles]
    return make_partition(tuple(roles), sizes, name, tuple(roles.values()))


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


def _require_no_buffers(encoder: Encoder) -> None:
    """Raise ConfigError where a model file could not hold all of the encoder's state."""
    parameters = dict(encoder.named_parameters(remove_duplicate=False))
    buffers = [name for name in encoder.state_dict() if name not in parameters]
    if buffers:
        raise ConfigError(
            f"The encoder keeps {buffers[0]} in a buffer, but only parameters are trained, sent and saved. Use "
            "LayerNorm instead of BatchNorm, or register constants with persistent=False."
        )


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


def _cut(vector: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    return list(torch.split(vector, list(sizes)))
