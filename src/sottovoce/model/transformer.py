"""The recogniser: a convolution that takes every third frame, a stack of transformer blocks, a linear layer to tokens.

    features -> normalised per utterance with a learned scale and bias -> conv (kernel 7, stride 3, 3 frames of zeros on
    either side) with GLU -> dropout -> + CAPE positions -> blocks -> LayerNorm -> tokens

A block has no biases; dropout sits on the convolution's output, on the attention probabilities and after the ReLU. In
training a block may be dropped for a whole batch (layer drop): it is then really skipped.

Guarantee: what an utterance gives does not depend on what it is batched with. Everything beyond its own length is
masked: in the normalisation, before the convolution, as attention keys; its positions are centred on its own length.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor, nn

from sottovoce.features.logmel import BINS
from sottovoce.model.attention import attend, dropout
from sottovoce.model.cape import centred_positions, embed
from sottovoce.model.model_options import ModelOptions

KERNEL = 7
STRIDE = 3
PADDING = 3
_VARIANCE_FLOOR = 1e-5
_LAYER_NORM_EPS = 1e-5
_BEHIND_A_NORM = ("wqkv.weight", "w1.weight")  # what reads a block's LayerNorms, where norm is pre


class Block(nn.Module):
    """One transformer block: attention and MLP, each with a LayerNorm and a residual connection."""

    def __init__(self, options: ModelOptions) -> None:
        """Make the parameters; names are those of the paper's figures."""
        super().__init__()
        width = options.width
        self.heads, self.dropout, self.pre_norm = options.heads, options.dropout, options.norm == "pre"
        self.ln1 = nn.LayerNorm(width, eps=_LAYER_NORM_EPS)
        self.wqkv = nn.Linear(width, 3 * width, bias=False)
        self.wf = nn.Linear(width, width, bias=False)
        self.ln2 = nn.LayerNorm(width, eps=_LAYER_NORM_EPS)
        self.w1 = nn.Linear(width, options.mlp_width, bias=False)
        self.w2 = nn.Linear(options.mlp_width, width, bias=False)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return the block's output for x (rows, outputs, width); bias (rows, 1, 1, outputs) hides what is no key."""
        if self.pre_norm:
            x = x + self._attention(self.ln1(x), bias)
            return x + self._mlp(self.ln2(x))
        x = self.ln1(x + self._attention(x, bias))
        normal: Tensor = self.ln2(x + self._mlp(x))
        return normal

    def _attention(self, x: Tensor, bias: Tensor | None) -> Tensor:
        rows, outputs, width = x.shape
        q, k, v = self.wqkv(x).view(rows, outputs, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        heard = attend(q, k, v, bias, self.dropout if self.training else 0.0)
        mixed: Tensor = self.wf(heard.transpose(1, 2).reshape(rows, outputs, width))
        return mixed

    def _mlp(self, x: Tensor) -> Tensor:
        inner = dropout(F.relu(self.w1(x)), self.dropout if self.training else 0.0)
        outer: Tensor = self.w2(inner)
        return outer


class Encoder(nn.Module):
    """The whole recogniser, from features to token scores."""

    def __init__(self, options: ModelOptions, tokens: int) -> None:
        """Make the parameters; `initialise` fills them."""
        super().__init__()
        self.options, self.tokens = options, tokens
        self.training_precision: torch.dtype | None = None  # of the matrix products in training; None: float32
        self.input_scale = nn.Parameter(torch.ones(1))
        self.input_bias = nn.Parameter(torch.zeros(1))
        self.conv = nn.Conv1d(BINS, 2 * options.width, KERNEL, STRIDE, PADDING)
        self.blocks = nn.ModuleList(Block(options) for _ in range(options.blocks))
        self.ln = nn.LayerNorm(options.width, eps=_LAYER_NORM_EPS)
        self.output = nn.Linear(options.width, tokens)

    def forward(
        self, features: Tensor, frames: Tensor, shifts: Tensor | None = None, kept: Sequence[bool] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return scores (rows, outputs, tokens) and the number of outputs of each row.

        `shifts` moves each utterance's positions (training only); `kept` says which blocks are not dropped.
        """
        lower = self.training_precision if self.training else None
        with torch.autocast(features.device.type, lower, enabled=lower is not None):
            return self._scores(features, frames, shifts, kept)

    def _scores(
        self, features: Tensor, frames: Tensor, shifts: Tensor | None, kept: Sequence[bool] | None
    ) -> tuple[Tensor, Tensor]:
        outputs = output_count(frames)
        x = dropout(F.glu(self._convolved(features, frames), dim=-1), self.options.dropout if self.training else 0.0)
        positions = centred_positions(outputs, x.shape[1], features.dtype)
        if shifts is not None:
            positions = positions + shifts.to(positions.dtype)[:, None]
        x = x + embed(positions, self.options.width)
        bias = _key_bias(outputs, x.shape[1], x.dtype)
        for number, block in enumerate(self.blocks):
            if kept is None or kept[number]:
                x = block(x, bias)
        return self.output(self.ln(x)), outputs

    def _convolved(self, features: Tensor, frames: Tensor) -> Tensor:
        """Return the convolution of (scale * normalised features + bias), zero beyond each row's own frames.

        It is linear in scale and bias, which are pulled out of it: so nothing is ever differentiated with respect to
        the features, and what is left are two matrix products.
        """
        real = (torch.arange(features.shape[1], device=features.device) < frames[:, None])[..., None].to(features.dtype)
        kernel = self.conv.weight.transpose(1, 2).flatten(1)
        heard = F.linear(_windows(_normalised(features, real)), kernel)
        present = F.linear(_windows(real), self.conv.weight.sum(dim=1))
        return self.input_scale * heard + self.input_bias * present + cast("Tensor", self.conv.bias)


def _windows(x: Tensor) -> Tensor:
    """Return what the convolution sees at each output: KERNEL frames of (rows, frames, channels), one after another."""
    return F.pad(x, (0, 0, PADDING, PADDING)).unfold(1, KERNEL, STRIDE).transpose(2, 3).flatten(2)


def _normalised(features: Tensor, real: Tensor) -> Tensor:
    """Return the features with zero mean and unit variance over each row's own frames, and zeros beyond."""
    count = real.sum(dim=1, keepdim=True) * features.shape[2]
    mean = (features * real).sum(dim=(1, 2), keepdim=True) / count
    centred = (features - mean) * real
    variance = (centred**2).sum(dim=(1, 2), keepdim=True) / count
    return centred * torch.rsqrt(variance + _VARIANCE_FLOOR)


def output_count(frames: Tensor) -> Tensor:
    """Return how many outputs so many frames give: one for every three, rounded up."""
    return torch.div(frames + STRIDE - 1, STRIDE, rounding_mode="floor")


def _key_bias(outputs: Tensor, longest: int, dtype: torch.dtype) -> Tensor | None:
    """Return what is added to attention scores: 0 for real keys, -inf for padding; None where all are real.

    That is asked only on a CPU: the answer would make the host wait for another device.
    """
    if outputs.device.type == "cpu" and bool((outputs == longest).all()):
        return None
    beyond = torch.arange(longest, device=outputs.device) >= outputs[:, None]
    return torch.zeros(beyond.shape, dtype=dtype, device=outputs.device).masked_fill_(beyond, -math.inf)[:, None, None]


def initialise(encoder: Encoder, generator: torch.Generator) -> None:
    """Fill the parameters as the reference does.

    Block kernels U(+-sqrt(1 / fan_in)), conv and output kernels U(+-sqrt(3 / fan_in)), their biases
    U(+-1 / sqrt(fan_in)), LayerNorms 1 and 0, input scale 1 and bias 0. With options.norm_scale the scales of blocks
    and the matrices behind them share the same product differently.
    """
    scale = encoder.options.norm_scale
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if name == "input_scale" or (".ln" in f".{name}" and name.endswith("weight")):
                parameter.fill_(scale if name.startswith("blocks.") else 1.0)
            elif name == "input_bias" or ".ln" in f".{name}":
                parameter.zero_()
            else:
                bound = _bound(encoder, name)
                parameter.uniform_(-bound, bound, generator=generator)
                if name.endswith(_BEHIND_A_NORM):
                    parameter.div_(scale)


def _bound(encoder: Encoder, name: str) -> float:
    if name.startswith("blocks."):
        return math.sqrt(1 / encoder.get_parameter(name)[0].numel())
    fan_in = encoder.get_parameter(f"{name.split('.', maxsplit=1)[0]}.weight")[0].numel()
    return math.sqrt(3 / fan_in) if name.endswith("weight") else math.sqrt(1 / fan_in)
