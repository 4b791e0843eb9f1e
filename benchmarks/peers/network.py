"""The network of the benchmarks as a user of PyTorch would write it, with the parameters of our transformer."""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from items import Item
from torch import Tensor, nn

BINS = 80


def ctc(scores: Tensor, outputs: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """Return the mean CTC loss of the rows that have a target."""
    log_probs = scores[: len(lengths)].log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(log_probs, targets, outputs[: len(lengths)], lengths, reduction="none").mean()


class Block(nn.Module):
    """A transformer block with the norms first and no biases in its matrices."""

    def __init__(self, width: int, heads: int, mlp_width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, bias=False, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, mlp_width, bias=False), nn.ReLU(), nn.Linear(mlp_width, width, bias=False)
        )

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """Return the block's output; `padding` is true where a row has ended."""
        normal = self.norm1(x)
        x = x + self.attention(normal, normal, normal, key_padding_mask=padding, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Network(nn.Module):
    """Convolution, positions, blocks, a linear layer to tokens."""

    def __init__(self, item: Item, tokens: int) -> None:
        """Make the layers."""
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
        self.conv = nn.Conv1d(BINS, 2 * item.width, 7, 3, 3)
        self.blocks = nn.ModuleList(Block(item.width, item.heads, item.mlp_width) for _ in range(item.blocks))
        self.norm = nn.LayerNorm(item.width)
        self.output = nn.Linear(item.width, tokens)
        self.rates = torch.exp(torch.arange(0, item.width, 2) * (-math.log(10000) / item.width))

    def loss(self, features: Tensor, frames: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        """Return the mean CTC loss of the utterances; rows beyond the targets are padding."""
        real = torch.arange(features.shape[1]) < frames[:, None]
        count = real.sum(1)[:, None, None] * BINS
        mask = real[..., None]
        mean = (features * mask).sum((1, 2), keepdim=True) / count
        centred = (features - mean) * mask
        variance = (centred**2).sum((1, 2), keepdim=True) / count
        normal = (centred * torch.rsqrt(variance + 1e-5) * self.scale + self.bias) * mask
        x = F.glu(self.conv(normal.transpose(1, 2)), dim=1).transpose(1, 2)
        angles = torch.arange(x.shape[1])[:, None] * self.rates
        x = x + torch.cat([angles.sin(), angles.cos()], dim=1)
        outputs = (frames - 1) // 3 + 1
        padding = torch.arange(x.shape[1]) >= outputs[:, None]
        for block in self.blocks:
            x = block(x, padding)
        return ctc(self.output(self.norm(x)), outputs, targets, lengths)


class Ours(nn.Module):
    """Our encoder behind the interface of `Network`."""

    def __init__(self, item: Item, tokens: int) -> None:
        """Make our encoder."""
        from sottovoce.model.transformer import Transformer  # noqa: PLC0415 - only where it is installed
        from sottovoce.model.transformer_options import TransformerOptions  # noqa: PLC0415 - likewise

        super().__init__()
        options = TransformerOptions(
            blocks=item.blocks,
            width=item.width,
            heads=item.heads,
            mlp_width=item.mlp_width,
            dropout=0.0,
            layer_drop=0.0,
        )
        self.encoder = Transformer(options, tokens)
        with torch.no_grad():
            self.encoder.initialise(torch.Generator().manual_seed(0))

    def loss(self, features: Tensor, frames: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        """Return the mean CTC loss of the utterances; rows beyond the targets are padding."""
        return ctc(*self.encoder(features, frames), targets, lengths)


def make_network(item: Item, tokens: int) -> nn.Module:
    """Return the network that the other frameworks train."""
    torch.manual_seed(0)
    return Ours(item, tokens) if item.network == "ours" else Network(item, tokens)
