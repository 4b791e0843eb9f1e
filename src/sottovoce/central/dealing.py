"""Who computes what in one step of central training: whole micro-batches, and pieces of those that are left over.

Every process gets the same number of whole micro-batches. Those that are left over, fewer than there are processes, are
laid in a row and cut into one share for every process, by frames. So any number of processes has work: 8 micro-batches
on 64 processes are 64 shares, on 6 they are 6 whole ones and 6 shares of the other 2. Where the number of processes
divides `central.micro_batches`, nothing is ever cut, not even in the last step of an epoch, which may have fewer.

Guarantee: every utterance of the step is in exactly one piece of exactly one process. A process has nothing to do only
where there are fewer utterances than processes, or in the last step of an epoch.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Frames = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """The utterances from `first` to before `last` of the micro-batch at `place`."""

    place: int
    first: int
    last: int


def deal(frames: Sequence[Frames], processes: int, per_step: int) -> list[list[Piece]]:
    """Return the pieces of every process; frames[place] has the length of every utterance of a micro-batch.

    `per_step` is the number of micro-batches of a full step.
    """
    count = len(frames)
    whole = count if per_step % processes == 0 else count - count % processes
    hands = [
        [Piece(place, 0, len(frames[place])) for place in range(rank, whole, processes)] for rank in range(processes)
    ]
    if whole < count:
        row = np.concatenate(frames[whole:])
        for hand, (first, last) in zip(hands, _cut_evenly(row, processes), strict=False):
            hand.extend(_pieces(frames, whole, first, last))
    return hands


def _pieces(frames: Sequence[Frames], begin: int, first: int, last: int) -> Iterator[Piece]:
    """Yield the part from `first` to `last` of the micro-batches from `begin` on, each of them apart."""
    passed = 0
    for place in range(begin, len(frames)):
        start, stop = max(first - passed, 0), min(last - passed, len(frames[place]))
        if start < stop:
            yield Piece(place, start, stop)
        passed += len(frames[place])


def _cut_evenly(lengths: Frames, shares: int) -> Iterator[tuple[int, int]]:
    """Cut a row of lengths where its sum passes equal shares; none is empty, so there may be fewer."""
    shares = min(shares, len(lengths))
    ends, room = np.cumsum(lengths), np.arange(1, shares)
    # A length belongs to the share that holds its middle, unless a share before or after would have none.
    cuts = np.searchsorted(ends - lengths / 2, ends[-1] * room / shares)
    cuts = np.maximum.accumulate(np.maximum(cuts - room, 0)) + room
    cuts = np.minimum(cuts, len(lengths) - shares + room)
    yield from itertools.pairwise([0, *cuts.tolist(), len(lengths)])
