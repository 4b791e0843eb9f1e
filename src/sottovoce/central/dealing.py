"""Who computes what in one step of central training: whole micro-batches or, on many processes, pieces of them.

Up to `central.micro_batches` processes take whole micro-batches in turn, so their number changes no random choice. More
processes than that share the step: its micro-batches are laid in a row and cut into one share for every process, by
frames. So any number of processes has work: 8 micro-batches on 64 processes are 64 shares.

Guarantee: every utterance of the step is in exactly one piece of exactly one process. Of more processes than
micro-batches, one has nothing to do only where there are fewer utterances than processes.
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
    if processes <= per_step:
        places = [range(rank, len(frames), processes) for rank in range(processes)]
        return [[Piece(place, 0, len(frames[place])) for place in mine] for mine in places]
    shares = _cut_evenly(np.concatenate(frames), processes)
    hands = [list(_pieces(frames, first, last)) for first, last in shares]
    return [*hands, *([] for _ in range(processes - len(hands)))]


def _pieces(frames: Sequence[Frames], first: int, last: int) -> Iterator[Piece]:
    """Yield the part from `first` to `last` of all micro-batches in a row, each of them apart."""
    passed = 0
    for place in range(len(frames)):
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
