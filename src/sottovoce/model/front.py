"""The front end of our encoders: normalisation, a convolution that takes every third frame, positions, a mask.

    features -> normalised per utterance with a learned scale and bias -> convolution (kernel 7, stride 3, 3 frames of
    zeros on either side) with GLU -> dropout -> + CAPE positions, unless attention has positions of its own

Guarantee: an utterance's output does not depend on its batch. Everything beyond its own length is masked: in the
normalisation, before the convolution, as attention keys. Its positions are centred on its own length.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor, nn

from sottovoce.features.logmel import BINS
from sottovoce.model.attention import dropout
from sottovoce.model.cape import centred_positions, embed
from sottovoce.model.encoder import Encoder
from sottovoce.model.encoder_options import EncoderOptions
from sottovoce.model.packing import Packing

KERNEL = 7
STRIDE = 3
PADDING = 3
VARIANCE_FLOOR = 1e-5


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

    def front(
        self, features: Tensor, frames: Tensor, shifts: Tensor | None, *, cape: bool = True
    ) -> tuple[Tensor, Packing]:
        """Return the packed input of the first block (places, width) and where the outputs are in it.

        `shifts` (rows) moves each utterance's positions, in seconds. Without `cape`, no positions are added.
        """
        outputs = self.output_count(frames)
        packing = Packing.of(outputs, -(-features.shape[1] // STRIDE))
        heard = F.glu(self.convolved(features, frames, packing), dim=-1)
        kept = dropout(heard, self.dropout_prob if self.training else 0.0)
        if not cape:
            return kept, packing
        positions = centred_positions(outputs, packing.longest, features.dtype)
        if shifts is not None:
            positions = positions + shifts.to(positions.dtype)[:, None]
        embedded = embed(packing.pack(positions[..., None]).squeeze(1), self.width)
        return kept + embedded, packing

    def convolved(self, features: Tensor, frames: Tensor, packing: Packing) -> Tensor:
        """Return the convolution of (scale * normalised features + bias), with zeros beyond each row's own frames.

        It is one matrix product. The convolution is linear in scale and bias, so they are multiplied into the kernel:
        nothing is ever differentiated with respect to the features. The bias meets an 81st bin that is 1 in real frames
        and 0 elsewhere. (oneDNN's convolution keeps compiled code for every shape of a batch, half a gigabyte of it.)
        """
        kernel = self.conv.weight.transpose(1, 2)  # (channels, KERNEL, bins)
        whole = torch.cat([self.input_scale * kernel, self.input_bias * kernel.sum(dim=2, keepdim=True)], dim=2)
        return F.linear(_windows(features, frames, packing), whole.flatten(1), self.conv.bias)


def _windows(features: Tensor, frames: Tensor, packing: Packing) -> Tensor:
    """Return the KERNEL frames that the convolution sees at each packed output, concatenated: (places, KERNEL * 81).

    Frames are normalised to zero mean and unit variance over each row's own, and zero beyond. Bin 81 tells real frames.
    """
    rows, longest, bins = features.shape
    real = (torch.arange(longest, device=features.device) < frames[:, None])[..., None].to(features.dtype)
    count = frames[:, None, None] * bins
    centred = features - (features * real).sum(dim=(1, 2), keepdim=True) / count
    centred.mul_(real)
    variance = torch.linalg.vector_norm(centred, dim=(1, 2), keepdim=True).square_() / count
    strides = packing.longest + -(-(KERNEL - STRIDE) // STRIDE)  # of a row, with zeros for its last window
    heard = features.new_zeros(rows, strides * STRIDE, bins + 1)
    inside = heard[:, PADDING : PADDING + longest]
    torch.mul(centred, torch.rsqrt(variance + VARIANCE_FLOOR), out=inside[..., :bins])
    inside[..., bins:] = real
    # A window is KERNEL consecutive frames, so all windows are one view with overlapping rows.
    windows = heard.as_strided(
        (rows * strides - strides + packing.longest, KERNEL * (bins + 1)), (STRIDE * (bins + 1), 1)
    )
    places = torch.arange(rows, device=features.device)[:, None] * strides + torch.arange(
        packing.longest, device=features.device
    )
    return windows.index_select(0, packing.pack(places[..., None]).squeeze(1))
