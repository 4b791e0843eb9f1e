"""The trainable parameters as one flat float32 vector, and their gradients as another.

The model's parameters and gradients are views into the two vectors, so that resetting to theta, taking a difference,
an SGD step, a norm or an aggregate is one operation on one array. Frozen parameters stay outside both vectors.
`partition.py` cuts the vectors into layers.

Of an encoder with adapters (`adapters.py`), the vectors hold those, and `tensors` the model that they make of it.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.model.adapters import (
    all_roles,
    merged_tensors,
    plain_parameters,
    require_untouched,
    reset_adapters_,
    unmerged_tensors,
)
from sottovoce.model.encoder import Encoder
from sottovoce.model.linear import set_gradient_home
from sottovoce.model.partition import Partition, PartitionName, make_partition
from sottovoce.model.roles import TensorRole, Trainable, selected


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
        self._partitions: dict[PartitionName, Partition] = {}
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
        """Set all parameters by name, frozen ones too; raise ValueError where a tensor is absent or does not fit.

        Adapters begin again: they change nothing of these parameters.
        """
        require_shapes(self.encoder, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
        for name, parameter in plain_parameters(self.encoder).items():
            parameter.copy_(tensors[name])
        reset_adapters_(self.encoder)

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
        return [tensor for name, tensor in self.encoder.named_parameters() if name not in self.roles]

    def partition(self, name: PartitionName = "tensor") -> Partition:
        """Return the layers of the trainable parameters by tensor, by block or by kind."""
        if name not in self._partitions:
            sizes = [math.prod(shape) for shape in self.shapes]
            self._partitions[name] = make_partition(self.names, sizes, name, tuple(self.roles.values()))
        return self._partitions[name]

    def tensors(self) -> dict[str, Tensor]:
        """Return all parameters by name, frozen ones too; trainable ones are views into theta.

        Matrices with adapters are the effective ones, in memory of their own.
        """
        return merged_tensors(self.encoder)

    def unmerged(self) -> dict[str, Tensor]:
        """Return what `tensors` do not tell of adapters, by name: the matrices below them, A and B; else nothing."""
        return unmerged_tensors(self.encoder)

    @torch.no_grad()
    def fill_unmerged_(self, tensors: Mapping[str, Tensor]) -> None:
        """Set what `unmerged` returned, after `fill_`; raise ValueError where that gives another effective matrix."""
        before = self.tensors()
        for name, tensor in self.unmerged().items():
            if name not in tensors or tensors[name].shape != tensor.shape:
                raise ValueError(f"{name} is missing, or has another shape")
            tensor.copy_(tensors[name])
        for name, tensor in self.tensors().items():
            if not torch.equal(tensor, before[name]):
                raise ValueError(f"{name} is not what its adapter makes of it")


def require_shapes(encoder: Encoder, given: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError where tensors of these shapes are not the parameters of an encoder, which needs no memory."""
    expected = {name: tuple(parameter.shape) for name, parameter in plain_parameters(encoder).items()}
    for name in (*expected, *given):
        if name not in expected and name in encoder.former:
            raise ValueError(encoder.former[name])
        if expected.get(name) != given.get(name):
            raise ValueError(f"{name} is {given.get(name)}, not {expected.get(name)}")


def trainable_roles(encoder: Encoder, trainable: Trainable) -> dict[str, TensorRole]:
    """Return the roles of the tensors that train, by name; raise ConfigError where the selection is not possible.

    A parameter with `requires_grad=False` never trains, whatever is selected.
    """
    roles = all_roles(encoder)
    names = selected(trainable, roles)
    if trainable != "all":
        require_untouched(encoder, trainable, roles)
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


def _require_no_buffers(encoder: Encoder) -> None:
    """Raise ConfigError where a model file could not hold all of the encoder's state."""
    parameters = dict(encoder.named_parameters(remove_duplicate=False))
    buffers = [name for name in encoder.state_dict() if name not in parameters]
    if buffers:
        raise ConfigError(
            f"The encoder keeps {buffers[0]} in a buffer, but only parameters are trained, sent and saved. Use "
            "LayerNorm instead of BatchNorm, or register constants with persistent=False."
        )


def _cut(vector: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    return list(torch.split(vector, list(sizes)))
