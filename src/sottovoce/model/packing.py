"""Packing: the outputs of all rows of a batch one after another, without the padding between them.

On a CPU our encoders compute on packed matrices (places, width), so padding costs almost nothing. Only attention, which
needs to know where a row begins and ends, works on spans: consecutive rows of similar length, padded to the longest of
them. On other devices a packing keeps the padding and is one span, because the lengths of rows are not known to the
host there, and asking for them would make it wait.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# A row joins the rows before it where padding wastes at most this many attention scores: a span of its own costs more.
_WASTED_SCORES = 2048


@dataclass(frozen=True)
class Span:
    """Consecutive rows that attend together, each to itself."""

    first: int  # its places in the packing
    last: int
    rows: int
    outputs: int  # of the longest row
    real: Tensor | None = None  # for every place of the packing, its place in the padded span; None: all are real
    hidden: Tensor | None = None  # (rows, 1, 1, outputs): -inf for padding, else 0; None: all are real

    def pad(self, x: Tensor) -> Tensor:
        """Return the span's part of a packed matrix as (rows, outputs, channels), with zeros as padding."""
        part = x[self.first : self.last]
        if self.real is not None:
            part = x.new_zeros(self.rows * self.outputs, x.shape[1]).index_copy_(0, self.real, part)
        return part.view(self.rows, self.outputs, -1)

    def strip(self, padded: Tensor) -> Tensor:
        """Return the real places of (rows, outputs, channels), one after another."""
        flat = padded.reshape(self.rows * self.outputs, -1)
        return flat if self.real is None else flat.index_select(0, self.real)


@dataclass(frozen=True)
class Packing:
    """Where the outputs of a batch are in a packed matrix."""

    outputs: Tensor  # of every row
    longest: int  # outputs of a row in padded matrices
    spans: tuple[Span, ...]  # in order
    real: Tensor | None  # for every place of the packing, its place in padded matrices; None: the same
    padded: bool  # whether the packing itself keeps padding

    @classmethod
    def of(cls, outputs: Tensor, longest: int) -> "Packing":
        """Return the packing of rows with these numbers of outputs, of which padded matrices have `longest`."""
        return cls.without_padding(outputs, longest) if outputs.device.type == "cpu" else cls.kept(outputs, longest)

    @classmethod
    def without_padding(cls, outputs: Tensor, longest: int) -> "Packing":
        """Return the packing of real outputs alone."""
        counts = outputs.tolist()
        real = None if counts == [longest] * len(counts) else _real_places(outputs, longest)
        return cls(outputs, longest, tuple(_spans(outputs, counts)), real, padded=False)

    @classmethod
    def kept(cls, outputs: Tensor, longest: int) -> "Packing":
        """Return the packing that keeps all padding; it does not ask the device for anything."""
        rows = outputs.shape[0]  # len() would make it a constant of an exported model
        span = Span(0, rows * longest, rows, longest, None, _hidden(outputs, longest))
        return cls(outputs, longest, (span,), None, padded=True)

    def pack(self, padded: Tensor) -> Tensor:
        """Return (rows, longest, channels) as a packed matrix."""
        flat = padded.reshape(-1, padded.shape[-1])
        return flat if self.real is None else flat.index_select(0, self.real)

    def unpack(self, packed: Tensor) -> Tensor:
        """Return a packed matrix as (rows, longest, channels); padding is zero, or what the packing has there."""
        rows = self.outputs.shape[0]
        if self.real is not None:
            packed = packed.new_zeros(rows * self.longest, packed.shape[1]).index_copy_(0, self.real, packed)
        return packed.view(rows, self.longest, -1)

    def unpack_clear(self, packed: Tensor) -> Tensor:
        """Return a packed matrix as (rows, longest, channels) with zeros as padding."""
        padded = self.unpack(packed)
        if not self.padded:
            return padded
        beyond = torch.arange(self.longest, device=packed.device) >= self.outputs[:, None]
        return padded.masked_fill(beyond[..., None], 0.0)


def _spans(outputs: Tensor, counts: Sequence[int]) -> Iterator[Span]:
    first = 0
    for start, end in _similar(counts):
        longest, last = max(counts[start:end]), first + sum(counts[start:end])
        own, same = outputs[start:end], min(counts[start:end]) == longest
        real, hidden = (None, None) if same else (_real_places(own, longest), _hidden(own, longest))
        yield Span(first, last, end - start, longest, real, hidden)
        first = last


def _similar(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Cut rows into runs of similar length."""
    runs = []
    start, longest, shortest = 0, 0, 0
    for place, count in enumerate(counts):
        above, below = max(longest, count), min(shortest, count)
        if place == start or above**2 - below**2 <= _WASTED_SCORES:
            longest, shortest = (count, count) if place == start else (above, below)
        else:
            runs.append((start, place))
            start, longest, shortest = place, count, count
    return [*runs, (start, len(counts))] if counts else []


def _real_places(outputs: Tensor, longest: int) -> Tensor:
    return (torch.arange(longest, device=outputs.device) < outputs[:, None]).view(-1).nonzero().squeeze(1)


def _hidden(outputs: Tensor, longest: int) -> Tensor:
    beyond = torch.arange(longest, device=outputs.device) >= outputs[:, None]
    return torch.zeros(beyond.shape, device=outputs.device).masked_fill_(beyond, -torch.inf)[:, None, None]
