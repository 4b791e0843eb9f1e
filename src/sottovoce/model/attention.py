"""Attention and dropout: PyTorch's own, except where they are slow on a CPU.

On a CPU PyTorch draws one random double for every element that it may drop, which takes a quarter of a training step.
Here one draw of 64 bits serves four elements. Attention with dropout is written out for the same reason. Without
dropout, and on other devices, scaled_dot_product_attention is used.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor

_LEVELS = 2**16


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout_prob: float) -> Tensor:
    """Return the attention of q (rows, heads, outputs, channels); `bias` (rows, 1, 1, keys) is added to the scores."""
    if dropout_prob == 0 or q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, bias, dropout_p=dropout_prob)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    return dropout(scores.softmax(dim=-1), dropout_prob) @ v


def self_attention(qkv: Tensor, heads: int, bias: Tensor | None, dropout_prob: float) -> Tensor:
    """Return the attention of each output to all outputs, (rows, outputs, width), from queries, keys and values.

    `qkv` is (rows, outputs, 3 * width); `bias` (rows, 1, 1, outputs) is added to the scores.
    """
    rows, outputs, triple = qkv.shape
    q, k, v = qkv.view(rows, outputs, 3, heads, triple // 3 // heads).permute(2, 0, 3, 1, 4)
    return attend(q, k, v, bias, dropout_prob).transpose(1, 2).reshape(rows, outputs, triple // 3)


def dropout(x: Tensor, dropout_prob: float) -> Tensor:
    """Set elements to zero with a probability, from torch's default generator, and scale the others up.

    On a CPU the probability is rounded to a multiple of 2^-16.
    """
    if dropout_prob == 0 or x.device.type != "cpu":
        return F.dropout(x, dropout_prob)
    threshold = round(dropout_prob * _LEVELS)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = (bits[: x.numel()] >= threshold - _LEVELS // 2).view(x.shape)
    return x * kept.to(x.dtype).mul_(_LEVELS / (_LEVELS - threshold))
