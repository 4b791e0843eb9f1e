"""Batches by seconds of audio, and micro-batches of similar length inside them.

Every epoch shuffles a user's utterances and cuts batches in that order, each with a total of at most `seconds` of audio
(the paper's dynamic batch, P:1514), so the utterances of a batch are others in every epoch. Guarantees: every utterance
is in exactly one batch; an utterance longer than the budget is a batch of its own and is never dropped;
`max_seconds_per_user` bounds the audio of one epoch by a random choice of utterances. Where nothing is trained,
`by_length` makes batches of similar utterances, in which padding counts too: it bounds the memory.

Inside a batch the longest utterance comes first. Where an encoder computes padding (ours do so only on a GPU), a batch
is computed as micro-batches. Each is padded only to its own longest utterance and contains at most the share
`max_padding` of padding. The gradient of a batch is the mean over its utterances, whatever the micro-batches are.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from sottovoce.data.store import IntArray, Store
from sottovoce.features.logmel import BINS, FRAMES_PER_SECOND

Places = npt.NDArray[np.intp]


class Batching(BaseModel):
    """How the utterances of a user are grouped into batches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(120.0, gt=0, allow_inf_nan=False, description="seconds of audio in one batch, in total")
    max_seconds_per_user: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="largest number of seconds of one user in one epoch; null: all audio",
    )
    max_padding: float = Field(
        0.08,
        ge=0,
        le=1,
        description="largest share of padding in a micro-batch; 1: no micro-batches. Ours need none on a CPU",
    )


@dataclass(frozen=True)
class Batch:
    """Utterances whose gradients are averaged in one step: micro-batches of row numbers, the longest first."""

    micro: tuple[IntArray, ...]

    @property
    def rows(self) -> IntArray:
        """The row numbers of all utterances of the batch."""
        return np.concatenate(self.micro)


@dataclass(frozen=True)
class PaddedBatch:
    """The arrays of one micro-batch, padded with zeros."""

    features: npt.NDArray[np.float32]  # (rows, longest, bins)
    frames: IntArray
    targets: npt.NDArray[np.int64]  # (rows, longest target)
    target_lengths: IntArray


def epoch(rows: IntArray, frames: IntArray, options: Batching, rng: np.random.Generator) -> list[Batch]:
    """Return the batches of one pass over a user's utterances, in order; frames[i] is the length of rows[i].

    Utterances that fit into one batch draw nothing: they are the same batch in every epoch.
    """
    if len(rows) == 1:
        return [Batch((rows,))]
    limit = options.max_seconds_per_user
    all_heard = limit is None or frames.sum() <= limit * FRAMES_PER_SECOND
    budget = options.seconds * FRAMES_PER_SECOND
    if all_heard and frames.sum() <= budget:
        return _batches(rows, frames, np.arange(len(rows)), [(0, len(rows))], options)
    order = rng.permutation(len(rows))
    if limit is not None and not all_heard:
        order = order[: _fitting(frames[order], limit)]
    return _batches(rows, frames, order, cut_by_total(frames[order], budget), options)


def by_length(rows: IntArray, frames: IntArray, options: Batching) -> list[Batch]:
    """Return batches of similar utterances, the longest first; all utterances, and nothing is random."""
    order = np.argsort(-frames, kind="stable")
    groups = cut_with_padding(frames[order], options.seconds * FRAMES_PER_SECOND)
    return _batches(rows, frames, order, groups, options)


def _batches(
    rows: IntArray, frames: IntArray, order: Places, groups: list[tuple[int, int]], options: Batching
) -> list[Batch]:
    """Return groups of this order as batches; in each, the longest utterance comes first, then the first row."""
    sizes = np.array([last - first for first, last in groups], dtype=np.int64)
    batch = np.repeat(np.arange(len(groups)), sizes)
    order = order[np.lexsort((order, -frames[order], batch))]
    ordered, lengths = rows[order], frames[order].tolist()
    return [
        Batch(
            tuple(
                ordered[first + start : first + end]
                for start, end in _cut_by_padding(lengths[first:last], options.max_padding)
            )
        )
        for first, last in groups
    ]


def load(store: Store, rows: IntArray) -> PaddedBatch:
    """Read one micro-batch from the store."""
    import torch  # noqa: PLC0415 - whoever needs a batch has loaded it

    frames = store.frames_of(rows)
    targets = [store.tokens_of(int(row)) for row in rows]
    lengths = np.array([target.size for target in targets], dtype=np.int64)
    padded = np.zeros((len(rows), int(frames.max(initial=0)), BINS), dtype=np.float16)
    padded_targets = np.zeros((len(rows), int(lengths.max(initial=0))), dtype=np.int64)
    for place, (row, target) in enumerate(zip(rows, targets, strict=True)):
        store.fill_features(padded[place], int(row))
        padded_targets[place, : target.size] = target
    # PyTorch converts float16 ten times as fast as NumPy.
    return PaddedBatch(torch.from_numpy(padded).float().numpy(), frames, padded_targets, lengths)


def _fitting(frames: IntArray, max_seconds: float) -> int:
    """Return how many of the first utterances have at most `max_seconds` of audio in total.

    There is always at least one, so a user with only long utterances still takes part.
    """
    return max(int(np.searchsorted(np.cumsum(frames), max_seconds * FRAMES_PER_SECOND, side="right")), 1)


def cut_by_total(lengths: IntArray, budget: float) -> list[tuple[int, int]]:
    """Cut lengths, in their order, into groups of a total <= budget; a longer row is a group of its own."""
    groups = []
    first = total = 0
    for place, length in enumerate(lengths.tolist()):
        total += length
        if place > first and total > budget:
            groups.append((first, place))
            first, total = place, length
    if len(lengths):
        groups.append((first, len(lengths)))
    return groups


def cut_with_padding(lengths: IntArray, budget: float) -> list[tuple[int, int]]:
    """Cut lengths, in their order, into groups with rows x longest <= budget; a longer row is a group of its own."""
    groups = []
    first = longest = 0
    for place, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if place > first and (place + 1 - first) * longest > budget:
            groups.append((first, place))
            first, longest = place, length
    if len(lengths):
        groups.append((first, len(lengths)))
    return groups


def _cut_by_padding(descending: list[int], max_padding: float) -> list[tuple[int, int]]:
    """Cut lengths, longest first, into groups whose share of padding is at most `max_padding`."""
    groups = []
    first = real = 0
    for place, length in enumerate(descending):
        real += length
        computed = (place + 1 - first) * descending[first]
        if place > first and computed - real > max_padding * computed:
            groups.append((first, place))
            first, real = place, length
    groups.append((first, len(descending)))
    return groups
