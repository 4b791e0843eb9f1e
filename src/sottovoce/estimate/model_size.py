"""How large a model is, and how much memory training it takes, before anything is allocated."""

from typing import Any, get_args

import torch

from sottovoce.config import Config
from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.model.flat import PartitionName, make_partition
from sottovoce.model.transformer import STRIDE, Encoder

_FLOAT_BYTES = 4


def describe(config: Config, partition: str, language: str) -> dict[str, Any]:
    """Return parameters, layers and memory; the model is made without memory of its own."""
    if partition not in get_args(PartitionName):
        raise ConfigError(f"Expected --partition {', '.join(get_args(PartitionName))}, not {partition!r}.")
    tokens = len(TokenSet((language,)).tokens)
    with torch.device("meta"):
        encoder = Encoder(config.model, tokens)
    named = [(name, parameter.numel()) for name, parameter in encoder.named_parameters()]
    layers = make_partition([name for name, _ in named], [size for _, size in named], partition)  # type: ignore[arg-type]
    parameters = sum(size for _, size in named)
    with torch.device("meta"):
        state = config.central.optimizer.start(torch.empty(parameters))
    memory = {
        "parameters": parameters * _FLOAT_BYTES,
        "gradients": parameters * _FLOAT_BYTES,
        "optimizer": (len(state.vectors) + 2) * parameters * _FLOAT_BYTES,  # its state, and two vectors while it steps
        "activations": activation_bytes(config, tokens),
    }
    return {
        "parameters": parameters,
        "layers": len(layers),
        "tokens": tokens,
        "blocks": config.model.blocks,
        "width": config.model.width,
        "memory_bytes": memory | {"total": sum(memory.values())},
        "partition": dict(zip(layers.layers, layers.sizes, strict=True)),
    }


def activation_bytes(config: Config, tokens: int) -> int:
    """Estimate what a forward pass over one micro-batch keeps for the backward pass.

    Per output and block: the inputs and outputs of both LayerNorms and residuals (6 widths), qkv and the attention's
    output (5 widths), and the MLP's hidden values with their dropout mask (2.25 MLP widths). With dropout, attention
    also keeps its weights and their mask (3 values per head and key; utterances of 15 s are assumed).
    """
    options = config.model
    outputs = config.central.micro_batch_seconds * FRAMES_PER_SECOND / STRIDE
    keys = 15 * FRAMES_PER_SECOND / STRIDE
    attention = 3 * options.heads * keys if options.dropout else 0
    per_block = 11 * options.width + 2.25 * options.mlp_width + attention
    front = 80 * STRIDE * 2 + 4 * options.width
    return round(outputs * (options.blocks * per_block + front + 3 * tokens) * _FLOAT_BYTES)
