"""One step of central training: the gradient of a fixed list of micro-batches, whichever process computes which.

Every micro-batch has random streams of its own (step, place); choices such as layer drop are drawn once per step. So
one process that computes all micro-batches and several that share them compute the same gradient, up to rounding: the
order of the additions differs.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from sottovoce.data.store import Store
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.features.specaugment import SpecAugment
from sottovoce.model.gradient import add_gradient, prepare_micro
from sottovoce.model.recogniser import Recogniser
from sottovoce.randomness import Streams

Rows = npt.NDArray[np.int64]


def step_gradient(
    recogniser: Recogniser,
    store: Store,
    micro: Sequence[Rows],
    streams: Streams,
    augment: SpecAugment | None,
    group: Group,
) -> float:
    """Leave the gradient of the mean loss over all utterances of the step in the flat vector; return that loss."""
    total = sum(len(rows) for rows in micro)
    recogniser.encoder.train()
    choices = recogniser.encoder.draw_batch(streams)
    losses = torch.zeros(len(micro), dtype=torch.float64)
    with recogniser.flat.new_gradient():
        for place, rows in enumerate(micro):
            if place % group.size == group.rank:
                ready = prepare_micro(store, rows, augment, streams, place, recogniser.encoder)
                losses[place] = float(add_gradient(recogniser, ready, choices, 1 / total))
    group.sum_(recogniser.flat.gradient)
    group.sum_(losses)
    if not bool(torch.isfinite(losses).all()):
        place = int(torch.nonzero(~torch.isfinite(losses))[0])
        names = store.index(["utterance"])["utterance"].take(micro[place]).to_pylist()
        raise DataError(
            f"The loss of step {streams.keys[0]} is {float(losses[place])} in micro-batch {place} "
            f"({', '.join(names[:5])}{', ...' if len(names) > 5 else ''}). Nothing was overwritten; lower the learning "
            "rate or look at this audio."
        )
    return float(losses.sum() / total)
