"""Attention and dropout: PyTorch's own, except where they are slow on a CPU.

On a CPU PyTorch draws one random double for every element that it may drop, which takes a quarter of a training step.
Here one draw of 64 bits serves four elements. For utterances of up to 15 seconds attention is faster on a CPU as plain
matrix products, with a backward pass of its own; it is also the only way to drop weights with our dropout. For longer
ones its memory, the square of the length, would be too large; these, and other devices, use
scaled_dot_product_attention.

Relative positions (Shaw et al. 2018, for keys) add q_i . r_(j-i) / sqrt(channels) to the score of output i and output j
of its row. r has a vector for every distance from -R to R; a longer distance counts as R. The products with all
distances are one matrix (outputs, 2 outputs - 1), of which every row is needed from one place further to the left.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor
from torch.autograd.function import once_differentiable

from sottovoce.model.packing import Packing, Span

_LEVELS = 2**16
_LONG_OUTPUTS = 512


def self_attention(
    qkv: Tensor, heads: int, packing: Packing, dropout_prob: float, relative: Tensor | None = None
) -> Tensor:
    """Return the attention of each output to all outputs of its row, (places, width).

    `qkv` holds queries, keys and values of packed rows, (places, 3 * width); `relative` holds r, (2 R + 1, channels).
    """
    spans = packing.spans
    # Where padding is kept, the number of outputs is not looked at: an exporter does not know it.
    fused = packing.padded or qkv.device.type != "cpu"
    if fused or (dropout_prob == 0 and max(span.outputs for span in spans) > _LONG_OUTPUTS):
        return torch.cat([span.strip(_fused(span.pad(qkv), heads, span, dropout_prob, relative)) for span in spans])
    mixed: Tensor = _Products.apply(qkv, heads, spans, dropout_prob, relative)  # type: ignore[no-untyped-call]  # untyped in torch
    return mixed


def dropout(x: Tensor, dropout_prob: float) -> Tensor:
    """Set elements to zero with a probability, from torch's default generator, and scale the others up.

    On a CPU the probability is rounded to a multiple of 2^-16.
    """
    if dropout_prob == 0 or x.device.type != "cpu":
        return F.dropout(x, dropout_prob)
    return x * _dropout_mask(x, dropout_prob)


def _dropout_mask(x: Tensor, dropout_prob: float) -> Tensor:
    """Return what dropout multiplies the elements of x by."""
    threshold = round(dropout_prob * _LEVELS)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = (bits[: x.numel()] >= threshold - _LEVELS // 2).view(x.shape)
    return kept.to(x.dtype).mul_(_LEVELS / (_LEVELS - threshold))


def _fused(qkv: Tensor, heads: int, span: Span, dropout_prob: float, relative: Tensor | None) -> Tensor:
    """Return PyTorch's attention for the padded rows of a span."""
    rows, outputs, triple = qkv.shape
    q, k, v = qkv.view(rows, outputs, 3, heads, triple // 3 // heads).permute(2, 0, 3, 1, 4)
    bias = None if span.hidden is None else span.hidden.to(q.dtype)
    if relative is not None:
        every = (q * q.shape[-1] ** -0.5) @ relative[_distances(outputs, relative)].t()
        scores = _by_pair(every).to(q.dtype)
        bias = scores.contiguous() if bias is None else scores + bias
    mixed = F.scaled_dot_product_attention(q, k, v, bias, dropout_p=dropout_prob)
    return mixed.transpose(1, 2).reshape(rows, outputs, triple // 3)


class _Products(torch.autograd.Function):
    """Attention as plain matrix products: softmax(q k^T / sqrt(channels)) v, span by span.

    Relative positions add to the scores before the softmax, and keep nothing more for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, heads: int, spans: tuple[Span, ...], dropout_prob: float, relative: Tensor | None
    ) -> Tensor:
        """Keep queries, keys and values by head, the weights, and the dropout mask."""
        mixed = qkv.new_empty(len(qkv), qkv.shape[1] // 3)
        kept: list[Tensor] = []
        for span in spans:
            split = _by_head(span.pad(qkv), 3, heads)
            q, k, v = split
            weights = torch.bmm(q.mul_(q.shape[-1] ** -0.5), k.transpose(1, 2))
            if relative is not None:
                weights.add_(_by_pair(_every(q, relative[_distances(span.outputs, relative)])))
            if span.hidden is not None:
                weights.view(span.rows, heads, span.outputs, -1).add_(span.hidden)
            torch.softmax(weights, -1, out=weights)
            kept += [split, weights]
            if dropout_prob:
                mask = _dropout_mask(weights, dropout_prob)
                kept.append(mask)
                weights = weights * mask
            mixed[span.first : span.last] = span.strip(_by_output(torch.bmm(weights, v)[None], heads))
        ctx.save_for_backward(*kept)
        ctx.relative = relative
        ctx.heads, ctx.spans, ctx.dropped = heads, spans, dropout_prob > 0
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of qkv and of the relative positions."""
        kept, relative = iter(ctx.saved_tensors), ctx.relative
        of_relative = torch.zeros_like(relative) if ctx.needs_input_grad[4] else None
        result = grad.new_empty(len(grad), 3 * grad.shape[1])
        for span in ctx.spans:
            split, weights = next(kept), next(kept)
            q, k, v = split
            (above,) = _by_head(span.pad(grad), 1, ctx.heads)
            grads = torch.empty_like(split)
            of_weights = torch.bmm(above, v.transpose(1, 2))
            used = weights
            if ctx.dropped:
                mask = next(kept)
                of_weights.mul_(mask)
                used = weights * mask
            torch.bmm(used.transpose(1, 2), above, out=grads[2])
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            torch.bmm(of_scores, k, out=grads[0])
            if relative is not None:
                distances = _distances(span.outputs, relative)
                of_every = of_scores.new_zeros(*of_scores.shape[:2], len(distances))
                _by_pair(of_every).copy_(of_scores)
                flat = of_every.flatten(0, 1)
                grads[0].flatten(0, 1).add_(flat @ relative[distances])
                if of_relative is not None:
                    of_relative.index_add_(0, distances, flat.t() @ q.flatten(0, 1))
            grads[0].mul_(q.shape[-1] ** -0.5)  # the scale is in q already, not in k
            torch.bmm(of_scores.transpose(1, 2), q, out=grads[1])
            result[span.first : span.last] = span.strip(_by_output(grads, ctx.heads))
        return result, None, None, None, of_relative


def _distances(outputs: int, relative: Tensor) -> Tensor:
    """Return the places in `relative` of the distances from 1 - outputs to outputs - 1."""
    furthest = len(relative) // 2
    return torch.arange(1 - outputs, outputs, device=relative.device).clamp_(-furthest, furthest).add_(furthest)


def _every(q: Tensor, vectors: Tensor) -> Tensor:
    """Return the product of every query (groups, outputs, channels) with every vector, as one matrix product."""
    return (q.view(-1, q.shape[-1]) @ vectors.t()).view(*q.shape[:2], -1)


def _by_pair(every: Tensor) -> Tensor:
    """Return a view by pairs of outputs i and j (..., outputs, outputs), given all distances (..., outputs, distances).

    The distance j - i is in column j - i + outputs - 1. From row to row the wanted part begins one column earlier, so
    it is a rectangle if rows are taken to be one shorter.
    """
    outputs = every.shape[-2]
    if torch.compiler.is_exporting() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        longer = 2 * outputs - 1  # a copy with one column more is a rectangle of such rows, for any number of outputs
        flat = F.pad(every, (0, 1)).flatten(-2)[..., outputs - 1 : outputs - 1 + outputs * longer]
        return flat.view(*flat.shape[:-1], outputs, longer)[..., :outputs]
    if outputs == 1:
        return every
    shorter = 2 * outputs - 2
    flat = every.flatten(-2)[..., outputs - 1 : outputs - 1 + outputs * shorter]
    return flat.view(*flat.shape[:-1], outputs, shorter)[..., :outputs]


def _by_head(padded: Tensor, parts: int, heads: int) -> Tensor:
    """Return (rows, outputs, parts * width) as a new (parts, rows * heads, outputs, channels)."""
    rows, outputs, _ = padded.shape
    split = padded.view(rows, outputs, parts, heads, -1).permute(2, 0, 3, 1, 4)
    return split.clone(memory_format=torch.contiguous_format).view(parts, rows * heads, outputs, -1)


def _by_output(split: Tensor, heads: int) -> Tensor:
    """Return (parts, rows * heads, outputs, channels) as (rows, outputs, parts * width)."""
    parts, grouped, outputs, _ = split.shape
    return split.view(parts, grouped // heads, heads, outputs, -1).permute(1, 3, 0, 2, 4).flatten(2)
