"""CAPE: continuous augmented positions, added to the output of the convolution.

The position of output i is 0.03 s * i minus the mean over the utterance's own outputs. In training the whole utterance
is shifted by one draw from U(-30 s, 30 s); local shifts and scaling are not used. Channel i of d holds
sin(position * f_i + (pi / 2) * (i mod 2)) with f_i = 30 * 10000^(-2 * floor(i / 2) / d).
"""

import functools
import math

import torch
from torch import Tensor

SECONDS_PER_OUTPUT = 0.03
MAX_SHIFT_SECONDS = 30.0


def centred_positions(outputs: Tensor, longest: int, dtype: torch.dtype) -> Tensor:
    """Return the positions in seconds (rows, longest) of utterances with these numbers of outputs, each centred."""
    places = torch.arange(longest, device=outputs.device, dtype=dtype)
    centre = (outputs.to(dtype) - 1) / 2
    return SECONDS_PER_OUTPUT * (places - centre[:, None])


def embed(positions: Tensor, width: int) -> Tensor:
    """Return the embedding (rows, places, width) of positions in seconds."""
    frequency, phase = waves(width, positions.dtype, positions.device)
    return torch.addcmul(phase, positions[..., None], frequency).sin_()


@functools.cache
def waves(width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the frequency and the phase of every channel."""
    channel = torch.arange(width, device=device)
    exponent = -2.0 * torch.div(channel, 2, rounding_mode="floor") / width
    frequency = 30.0 * torch.pow(torch.tensor(10_000.0, dtype=dtype, device=device), exponent.to(dtype))
    return frequency, (math.pi / 2) * (channel % 2).to(dtype)
