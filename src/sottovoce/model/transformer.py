"""The transformer, the paper's encoder: front end, a stack of transformer blocks, a linear layer to tokens.

A block has no biases. Dropout is applied to the convolution's output, to the attention probabilities and after the
ReLU. The layers around the blocks, layer drop and the front end are in `stack.py` and `front.py`.
"""

from typing import ClassVar

import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor, nn

from sottovoce.model.attention import dropout, self_attention
from sottovoce.model.linear import project
from sottovoce.model.packing import Packing
from sottovoce.model.stack import GROUPS_AROUND, LAYER_NORM_EPS, RELATIVE, Stack, relative_positions
from sottovoce.model.transformer_options import TransformerOptions


class TransformerBlock(nn.Module):
    """One transformer block: attention and MLP, each with a LayerNorm and a residual connection."""

    def __init__(self, options: TransformerOptions) -> None:
        """Make the parameters; names are those of the paper's figures."""
        super().__init__()
        width = options.width
        self.heads, self.dropout, self.pre_norm = options.heads, options.dropout, options.norm == "pre"
        self.ln1 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.wqkv = nn.Linear(width, 3 * width, bias=False)
        self.wr = relative_positions(options)
        self.wf = nn.Linear(width, width, bias=False)
        self.ln2 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.w1 = nn.Linear(width, options.mlp_width, bias=False)
        self.w2 = nn.Linear(options.mlp_width, width, bias=False)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Return the block's output for packed x (places, width)."""
        if self.pre_norm:
            x = self._attention(self.ln1(x), packing, x)
            return self._mlp(self.ln2(x), x)
        x = self.ln1(self._attention(x, packing, x))
        normal: Tensor = self.ln2(self._mlp(x, x))
        return normal

    def _attention(self, x: Tensor, packing: Packing, residual: Tensor) -> Tensor:
        dropout_prob = self.dropout if self.training else 0.0
        relative = None if self.wr is None else self.wr.weight
        mixed = self_attention(project(x, self.wqkv), self.heads, packing, dropout_prob, relative)
        return project(mixed, self.wf, residual)

    def _mlp(self, x: Tensor, residual: Tensor) -> Tensor:
        inner = dropout(F.relu_(project(x, self.w1)), self.dropout if self.training else 0.0)
        return project(inner, self.w2, residual)


class Transformer(Stack):
    """The whole network, from features to token scores."""

    options: TransformerOptions
    groups: ClassVar = {
        "ln": ("ln1", "ln2", "ln"),
        "attention": ("wqkv", RELATIVE, "wf"),
        "mlp": ("w1", "w2"),
        **GROUPS_AROUND,
    }
    former: ClassVar = dict.fromkeys(
        ("ln.weight", "ln.bias"), "models with model.norm=post no longer have a final LayerNorm. Train it again"
    )

    def __init__(self, options: TransformerOptions, tokens: int) -> None:
        """Make the parameters; `initialise` fills them."""
        blocks = (TransformerBlock(options) for _ in range(options.blocks))
        super().__init__(options, tokens, blocks, final_norm=options.norm == "pre")

    def block_flops(self) -> dict[str, float]:
        """Return the FLOPs of the MLP."""
        return {"mlp": 4 * self.width * self.options.mlp_width}

    def values_per_output(self, outputs: float) -> float:
        """Return the numbers kept for the backward pass.

        In every block: the inputs and outputs of both LayerNorms (4 widths), queries, keys, values and the attention's
        output (4 widths), the weights of attention (1 value per head and key), and the hidden values of the MLP.
        Dropout adds a mask of the weights and, for the hidden values, a mask and the product. That is on a CPU; the
        fused attention of GPUs keeps no weights, but the scores of relative positions.
        """
        options = self.options
        hidden, attention = (3, 2) if options.dropout else (1, 1)
        per_block = 8 * options.width + hidden * options.mlp_width + attention * options.heads * outputs
        return options.blocks * per_block + self.values_around()
