"""Encoders in operations that every run time has: the same mathematics, without packing and without views that overlap.

Training needs packed matrices and products of its own to be fast on a CPU. A model for other programs needs neither:
here rows keep their padding, the front end is a plain convolution, and attention is PyTorch's own. Scores agree up to
rounding.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor, nn

from sottovoce.model.cape import centred_positions, waves
from sottovoce.model.encoder import Encoder
from sottovoce.model.front import PADDING, STRIDE, VARIANCE_FLOOR
from sottovoce.model.packing import Packing
from sottovoce.model.stack import Stack


def plain(encoder: Encoder) -> nn.Module:
    """Return a network with the parameters of an encoder: (features, frames) to (scores, outputs), for inference.

    An encoder of another kind than ours is returned as it is.
    """
    return (_PlainStack(encoder) if isinstance(encoder, Stack) else encoder).eval()


class _PlainStack(nn.Module):
    """A stack of blocks with padding in every row."""

    frequency: Tensor
    phase: Tensor

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack
        # As buffers: a tensor that is made while an exporter follows the network must not stay in the cache of `waves`.
        frequency, phase = waves(stack.width, stack.output.weight.dtype, stack.output.weight.device)
        self.register_buffer("frequency", frequency.clone())
        self.register_buffer("phase", phase.clone())

    def forward(self, features: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores (rows, outputs, tokens) and the number of outputs of each row."""
        stack = self.stack
        heard = F.glu(self._convolved(features, frames), dim=1).transpose(1, 2)
        outputs = stack.output_count(frames)
        rows, longest, width = heard.shape
        if stack.options.positions != "relative":
            positions = centred_positions(outputs, longest, heard.dtype)
            heard = heard + torch.sin(positions[..., None] * self.frequency + self.phase)
        packing = Packing.kept(outputs, longest)
        x = heard.reshape(rows * longest, width)
        for block in stack.blocks:
            x = block(x, packing)
        scores = stack.output(x if stack.ln is None else stack.ln(x))
        return scores.view(rows, longest, -1), outputs

    def _convolved(self, features: Tensor, frames: Tensor) -> Tensor:
        """Return the convolution (rows, channels, outputs) of what `front.py` describes."""
        real = (torch.arange(features.shape[1], device=features.device) < frames[:, None])[..., None].to(features.dtype)
        count = (frames * features.shape[2])[:, None, None]
        centred = (features - (features * real).sum(dim=(1, 2), keepdim=True) / count) * real
        variance = centred.square().sum(dim=(1, 2), keepdim=True) / count
        normal = centred * torch.rsqrt(variance + VARIANCE_FLOOR)
        shifted = (self.stack.input_scale * normal + self.stack.input_bias) * real
        conv = self.stack.conv
        return F.conv1d(shifted.transpose(1, 2), conv.weight, conv.bias, stride=STRIDE, padding=PADDING)
