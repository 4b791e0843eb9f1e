"""The order of batches in central training: every step is a fixed list of micro-batches, for any number of processes.

An epoch holds every utterance exactly once. Utterances are sorted by length with some jitter, so that a micro-batch
holds utterances of similar length, but not the same ones in every epoch. The sorted list is cut by seconds, padding
included, and the micro-batches are shuffled; `per_step` consecutive micro-batches are one step.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sottovoce.data.batching import cut_with_padding
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.randomness import stream

Rows = npt.NDArray[np.int64]
_JITTER = 0.03


def epoch_of_steps(
    rows: Rows, frames: Rows, micro_seconds: float, per_step: int, rng: np.random.Generator
) -> list[list[Rows]]:
    """Return the steps of one pass over the rows, each a list of micro-batches."""
    jittered = frames * np.exp(_JITTER * rng.standard_normal(len(frames)))
    order = np.argsort(-jittered, kind="stable")
    # Jitter leaves lengths only roughly sorted: the longest remaining utterance bounds each micro-batch.
    longest = np.maximum.accumulate(frames[order][::-1])[::-1]
    groups = cut_with_padding(longest, micro_seconds * FRAMES_PER_SECOND)
    micro = [rows[order[first:last]] for first, last in groups]
    shuffled = [micro[place] for place in rng.permutation(len(micro))]
    return [shuffled[first : first + per_step] for first in range(0, len(shuffled), per_step)]


def steps_from(
    start: int, rows: Rows, frames: Rows, micro_seconds: float, per_step: int, seed: int
) -> Iterator[tuple[int, list[Rows]]]:
    """Yield (step, micro-batches) from step `start` on, without end; a resumed run gets the same batches."""
    step = epoch = 0
    while True:
        steps = epoch_of_steps(rows, frames, micro_seconds, per_step, stream(seed, "central-order", epoch))
        for micro in steps:
            if step >= start:
                yield step, micro
            step += 1
        epoch += 1
