"""The size of a model and the memory that training it takes, before anything is allocated."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from sottovoce.config import Config
from sottovoce.data.text import TokenSet
from sottovoce.estimate.sized_encoder import sized_encoder
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.model.adapters import adapted_matrices, plain_parameters
from sottovoce.model.encoder import Encoder
from sottovoce.model.flat import encoder_partition
from sottovoce.model.partition import PartitionName

_FLOAT_BYTES = 4
_UTTERANCE_SECONDS = 15  # assumed for the memory of attention


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """The size of a model; layers, gradients and the optimizer are those of the parameters that train.

    `parameters` are those of the model without adapters, `trainable` includes them.
    """

    kind: str
    blocks: int
    tokens: int
    parameters: int
    trainable: int
    layers: int
    memory_bytes: dict[str, int]
    partition: dict[str, int]  # the parameters of every layer

    def document(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)


def describe(config: Config, partition: PartitionName, language: str) -> ModelSize:
    """Return parameters, layers and memory; the model is made without memory of its own."""
    tokens = len(TokenSet((language,)).tokens)
    encoder = sized_encoder(config.model, tokens, config.federated.adapters)
    layers = encoder_partition(encoder, partition, config.federated.trainable)
    parameters, trainable = sum(one.numel() for one in plain_parameters(encoder).values()), sum(layers.sizes)
    with torch.device("meta"):
        state = config.central.optimizer.start(torch.empty(trainable))
    memory = {
        "parameters": sum(parameter.numel() for parameter in encoder.parameters()) * _FLOAT_BYTES,
        "gradients": trainable * _FLOAT_BYTES,
        "optimizer": (len(state.vectors) + 2) * trainable * _FLOAT_BYTES,  # its state, and two vectors while it steps
        "activations": activation_bytes(encoder, config.central.micro_batch_seconds),
    }
    return ModelSize(
        kind=config.model.kind,
        blocks=encoder.depth,
        tokens=tokens,
        parameters=parameters,
        trainable=trainable,
        layers=len(layers),
        memory_bytes=memory | {"total": sum(memory.values())},
        partition=dict(zip(layers.layers, layers.sizes, strict=True)),
    )


def activation_bytes(encoder: Encoder, seconds: float) -> int:
    """Estimate the bytes that a forward pass over a micro-batch of this length keeps for the backward pass.

    Matrices with adapters are kept as they are in effect.
    """
    per_second = FRAMES_PER_SECOND / encoder.output_stride
    effective = sum(matrix.weight.numel() for matrix in adapted_matrices(encoder).values())
    values = seconds * per_second * encoder.values_per_output(_UTTERANCE_SECONDS * per_second)
    return round((values + effective) * _FLOAT_BYTES)
