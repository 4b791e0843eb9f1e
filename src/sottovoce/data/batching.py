"""Batches by seconds of audio, padding included, and micro-batches of similar length inside them.

A user's utterances are sorted by length and cut into batches with rows x longest <= budget. The order of the batches is
random. Guarantees: every utterance is in exactly one batch; an utterance longer than the budget is a batch of its own
and is never dropped; `max_seconds_per_user` bounds the audio of one epoch by a random choice of utterances.

Where an encoder computes padding (ours do so only on a GPU), a batch is computed as micro-batches. Each is padded only
to its own longest utterance and contains at most the share `max_padding` of padding. The gradient of a batch is the
mean over its utterances, whatever the micro-batches are.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from sottovoce.data.store import IntArray, Store
from sottovoce.features.logmel import BINS, FRAMES_PER_SECOND


class Batching(BaseModel):
    """How the utterances of a user are grouped into batches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(
        120.0, gt=0, allow_inf_nan=False, description="seconds of audio in one batch, padding included"
    )
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
    """Return the batches of one pass over a user's utterances; frames[i] is the length of rows[i]."""
    if len(rows) == 1:
        return [Batch((rows,))]
    chosen = _within_limit(frames, options.max_seconds_per_user, rng)
    by_length = chosen[np.argsort(-frames[chosen], kind="stable")]
    groups = cut_by_budget(frames[by_length], options.seconds * FRAMES_PER_SECOND)
    batches = []
    for first, last in groups:
        places = by_length[first:last]
        micro = _cut_by_padding(frames[places], options.max_padding)
        batches.append(Batch(tuple(rows[places[start:end]] for start, end in micro)))
    return [batches[place] for place in rng.permutation(len(batches))]


def load(store: Store, rows: IntArray) -> PaddedBatch:
    """Read one micro-batch from the store."""
    import torch  # noqa: PLC0415 - whoever needs a batch has loaded it

    frames = store.frames_of(rows)
    targets = [store.tokens_of(int(row)) for row in rows]
    lengths = np.array([target.size for target in targets], dtype=np.int64)
    padded = np.zeros((len(rows), int(frames.max(initial=0)), BINS), dtype=np.float16)
    padded_targets = np.zeros((len(rows), int(lengths.max(initial=0))), dtype=np.int64)
    for place, (row, target) in enumerate(zip(rows, targets, strict=True)):
        padded[place, : frames[place]] = store.features_of(int(row))
        padded_targets[place, : target.size] = target
    # PyTorch converts float16 ten times as fast as NumPy.
    return PaddedBatch(torch.from_numpy(padded).float().numpy(), frames, padded_targets, lengths)


def _within_limit(frames: IntArray, max_seconds: float | None, rng: np.random.Generator) -> IntArray:
    """Return the positions of all utterances, or of random ones with at most `max_seconds` of audio in total.

    There is always at least one, so a user with only long utterances still takes part.
    """
    if max_seconds is None or frames.sum() <= max_seconds * FRAMES_PER_SECOND:
        return np.arange(len(frames), dtype=np.int64)
    order = rng.permutation(len(frames)).astype(np.int64)
    fits = int(np.searchsorted(np.cumsum(frames[order]), max_seconds * FRAMES_PER_SECOND, side="right"))
    return np.sort(order[: max(fits, 1)])


def cut_by_budget(descending: IntArray, budget: float) -> list[tuple[int, int]]:
    """Cut lengths, longest first, into groups with rows x longest <= budget; a longer row is a group of its own."""
    groups = []
    first = 0
    while first < len(descending):
        last = min(first + max(int(budget // descending[first]), 1), len(descending))
        groups.append((first, last))
        first = last
    return groups


def _cut_by_padding(descending: IntArray, max_padding: float) -> list[tuple[int, int]]:
    """Cut lengths, longest first, into groups whose share of padding is at most `max_padding`."""
    groups = []
    first = 0
    while first < len(descending):
        real = np.cumsum(descending[first:])
        computed = np.arange(1, len(real) + 1) * descending[first]
        # A shorter row never lowers the share of padding, so the rows that fit are the first ones.
        last = first + max(int(np.count_nonzero(computed - real <= max_padding * computed)), 1)
        groups.append((first, last))
        first = last
    return groups
