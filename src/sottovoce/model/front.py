"""The front end of our encoders: normalisation, a convolution that takes every third frame, positions, a mask.

    features -> normalised per utterance with a learned scale and bias -> convolution (kernel 7, stride 3, 3 frames of
    zeros on either side) with GLU -> dropout -> + CAPE positions

Guarantee: an utterance's output does not depend on its batch. Everything beyond its own length is masked: in the
normalisation, before the convolution, as attention keys. Its positions are centred on its own length.
"""

import math
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor, nn

from sottovoce.features.logmel import BINS
from sottovoce.model.attention import dropout
from sottovoce.model.cape import centred_positions, embed
from sottovoce.model.encoder import Encoder
from sottovoce.model.encoder_options import EncoderOptions

KERNEL = 7
STRIDE = 3
PADDING = 3
_VARIANCE_FLOOR = 1e-5


class FrontEnd(Encoder):
    """An encoder that begins with our front end; the parameters of it come first."""

    output_stride = STRIDE

    def __init__(self, options: EncoderOptions, tokens: int, width: int, dropout_prob: float) -> None:
        """Make the parameters of the front end."""
        super().__init__(options, tokens)
        self.width, self.dropout_prob = width, dropout_prob
        self.input_scale = nn.Parameter(torch.ones(1))
        self.input_bias = nn.Parameter(torch.zeros(1))
        self.conv = nn.Conv1d(BINS, 2 * width, KERNEL, STRIDE, PADDING)

    def front(self, features: Tensor, frames: Tensor, shifts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the input of the first block (rows, outputs, width) and the number of outputs of each row.

        `shifts` (rows) moves each utterance's positions, in seconds.
        """
        outputs = self.output_count(frames)
        x = dropout(F.glu(self.convolved(features, frames), dim=-1), self.dropout_prob if self.training else 0.0)
        positions = centred_positions(outputs, x.shape[1], features.dtype)
        if shifts is not None:
            positions = positions + shifts.to(positions.dtype)[:, None]
        return x + embed(positions, self.width), outputs

    def convolved(self, features: Tensor, frames: Tensor) -> Tensor:
        """Return the convolution of (scale * normalised features + bias), with zeros beyond each row's own frames.

        The convolution is linear in scale and bias, so they are pulled out of it: nothing is ever differentiated with
        respect to the features, and two matrix products remain. (oneDNN's convolution keeps compiled code for every
        shape of a batch, half a gigabyte of it.)
        """
        real = (torch.arange(features.shape[1], device=features.device) < frames[:, None])[..., None].to(features.dtype)
        kernel = self.conv.weight.transpose(1, 2).flatten(1)
        heard = F.linear(_windows(_normalised(features, real)), kernel)
        present = F.linear(_windows(real), self.conv.weight.sum(dim=1))
        return self.input_scale * heard + self.input_bias * present + cast("Tensor", self.conv.bias)


def _windows(x: Tensor) -> Tensor:
    """Return the KERNEL frames of (rows, frames, channels) that the convolution sees at each output, concatenated."""
    return F.pad(x, (0, 0, PADDING, PADDING)).unfold(1, KERNEL, STRIDE).transpose(2, 3).flatten(2)


def _normalised(features: Tensor, real: Tensor) -> Tensor:
    """Return the features with zero mean and unit variance over each row's own frames, and zeros beyond."""
    count = real.sum(dim=1, keepdim=True) * features.shape[2]
    mean = (features * real).sum(dim=(1, 2), keepdim=True) / count
    centred = (features - mean) * real
    variance = (centred**2).sum(dim=(1, 2), keepdim=True) / count
    return centred * torch.rsqrt(variance + _VARIANCE_FLOOR)


def key_bias(outputs: Tensor, longest: int, dtype: torch.dtype) -> Tensor | None:
    """Return what is added to attention scores: 0 for real keys, -inf for padding; None where all keys are real.

    Only on a CPU does it check for that: the check would make the host wait for another device.
    """
    if outputs.device.type == "cpu" and bool((outputs == longest).all()):
        return None
    beyond = torch.arange(longest, device=outputs.device) >= outputs[:, None]
    return torch.zeros(beyond.shape, dtype=dtype, device=outputs.device).masked_fill_(beyond, -math.inf)[:, None, None]
