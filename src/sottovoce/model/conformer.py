"""The conformer (Gulati et al. 2020): blocks of half an MLP, attention, a convolution, and half an MLP.

    x + 1/2 MLP(x) -> x + attention(x) -> x + convolution(x) -> x + 1/2 MLP(x) -> LayerNorm

The convolution module is LayerNorm -> pointwise to twice the width -> GLU -> depthwise -> LayerNorm -> SiLU ->
pointwise. The LayerNorm in its middle replaces the original's BatchNorm: the batches of a user are small, and running
statistics would be a second, unprotected channel to the server.

It differs from the original further: by default CAPE positions are added once, in place of relative ones in attention
(`model.positions=relative`); matrices have no biases; dropout is where the transformer has it. An utterance's output
does not depend on its batch, because padding is set to zero before the depthwise convolution.
"""

from typing import ClassVar

import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor, nn

from sottovoce.model.attention import dropout, self_attention
from sottovoce.model.conformer_options import ConformerOptions
from sottovoce.model.linear import project
from sottovoce.model.packing import Packing
from sottovoce.model.stack import GROUPS_AROUND, LAYER_NORM_EPS, RELATIVE, Stack, relative_positions


class ConformerBlock(nn.Module):
    """One conformer block."""

    def __init__(self, options: ConformerOptions) -> None:
        """Make the parameters, in the order in which they are used."""
        super().__init__()
        width = options.width
        self.heads, self.dropout, self.kernel = options.heads, options.dropout, options.kernel
        self.ln1 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.w1 = nn.Linear(width, options.mlp_width, bias=False)
        self.w2 = nn.Linear(options.mlp_width, width, bias=False)
        self.ln2 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.wqkv = nn.Linear(width, 3 * width, bias=False)
        self.wr = relative_positions(options)
        self.wf = nn.Linear(width, width, bias=False)
        self.ln3 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.wp1 = nn.Linear(width, 2 * width, bias=False)
        self.wd = nn.Conv1d(width, width, options.kernel, groups=width, bias=False)
        self.ln4 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.wp2 = nn.Linear(width, width, bias=False)
        self.ln5 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.w3 = nn.Linear(width, options.mlp_width, bias=False)
        self.w4 = nn.Linear(options.mlp_width, width, bias=False)
        self.ln6 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Return the block's output for packed x (places, width)."""
        dropout_prob = self.dropout if self.training else 0.0
        x = x + 0.5 * project(dropout(F.silu(project(self.ln1(x), self.w1)), dropout_prob), self.w2)
        relative = None if self.wr is None else self.wr.weight
        mixed = self_attention(project(self.ln2(x), self.wqkv), self.heads, packing, dropout_prob, relative)
        x = project(mixed, self.wf, x)
        x = self._convolution(self.ln3(x), packing, x)
        x = x + 0.5 * project(dropout(F.silu(project(self.ln5(x), self.w3)), dropout_prob), self.w4)
        normal: Tensor = self.ln6(x)
        return normal

    def _convolution(self, x: Tensor, packing: Packing, residual: Tensor) -> Tensor:
        gated = packing.unpack_clear(F.glu(project(x, self.wp1), dim=-1))
        mixed = packing.pack(depthwise(gated, self.wd.weight))
        return project(F.silu(self.ln4(mixed)), self.wp2, residual)


def depthwise(x: Tensor, kernel: Tensor) -> Tensor:
    """Return the convolution of every channel of x (rows, outputs, channels) with its own kernel (channels, 1, size).

    Zeros are added on either side, so that the number of outputs stays. On a CPU this is three times as fast as conv1d,
    forward and backward: seen as an image of height 1, x already has the layout that oneDNN likes best, channels last.
    """
    image = x.transpose(1, 2).unsqueeze(2)
    padding = (0, kernel.shape[-1] // 2)
    return F.conv2d(image, kernel.unsqueeze(2), padding=padding, groups=x.shape[2]).squeeze(2).transpose(1, 2)


class Conformer(Stack):
    """The whole network, from features to token scores."""

    options: ConformerOptions
    groups: ClassVar = {
        "ln": ("ln1", "ln2", "ln3", "ln4", "ln5", "ln6", "ln"),
        "attention": ("wqkv", RELATIVE, "wf"),
        "convolution": ("wp1", "wd", "wp2"),
        "mlp": ("w1", "w2", "w3", "w4"),
        **GROUPS_AROUND,
    }

    def __init__(self, options: ConformerOptions, tokens: int) -> None:
        """Make the parameters; `initialise` fills them."""
        super().__init__(options, tokens, (ConformerBlock(options) for _ in range(options.blocks)))

    def block_flops(self) -> dict[str, float]:
        """Return the FLOPs of the convolution module, depthwise convolution included, and of both MLPs."""
        width, options = self.width, self.options
        return {
            "convolution": 6 * width**2 + 2 * width * options.kernel,
            "mlp": 8 * width * options.mlp_width,
        }

    def values_per_output(self, outputs: float) -> float:
        """Return the numbers kept for the backward pass.

        In every block: LayerNorms, residuals, attention and the convolution module (19 widths, as counted), the weights
        of attention (1 value per head and key), and the hidden values of both MLPs before and after SiLU (2 MLP widths
        each). Dropout adds masks of the weights and of the hidden values.
        """
        options = self.options
        weights, hidden = options.heads * outputs, options.mlp_width
        masks = weights + 2 * hidden if options.dropout else 0
        return options.blocks * (19 * options.width + weights + 4 * hidden + masks) + self.values_around()
