"""One step of central training: the gradient of a fixed list of micro-batches, whichever process computes which.

Every micro-batch has random streams of its own (step, place): dropout, SpecAugment, position shifts. Layer drop is
drawn once per step. So one process that computes all micro-batches and several that share them compute the same
gradient, up to the rounding of the order in which they are added.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sottovoce.data.batching import load
from sottovoce.data.store import Store
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.features.specaugment import SpecAugment, augment_
from sottovoce.model.cape import MAX_SHIFT_SECONDS
from sottovoce.model.ctc import ctc_loss
from sottovoce.model.recogniser import Recogniser
from sottovoce.randomness import stream

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Randomness:
    """The named streams of one training step."""

    seed: int
    step: int

    def kept_blocks(self, blocks: int, layer_drop: float) -> list[bool]:
        """Return which blocks are not dropped in this step."""
        kept: list[bool] = (stream(self.seed, "layer-drop", self.step).random(blocks) >= layer_drop).tolist()
        return kept

    def of(self, name: str, place: int) -> np.random.Generator:
        """Return the stream of one micro-batch."""
        return stream(self.seed, name, self.step, place)


def add_gradient(
    recogniser: Recogniser,
    store: Store,
    rows: Rows,
    place: int,
    randomness: Randomness,
    augment: SpecAugment | None,
    weight: float,
) -> float:
    """Add `weight` times the gradient of the summed loss of one micro-batch; return the summed loss."""
    batch = load(store, rows)
    if augment is not None:
        augment_(batch.features, batch.frames, augment, randomness.of("specaugment", place))
    shifts = randomness.of("positions", place).uniform(-MAX_SHIFT_SECONDS, MAX_SHIFT_SECONDS, len(rows))
    # Dropout inside attention takes no generator of its own: seed the default one.
    torch.manual_seed(int(randomness.of("dropout", place).integers(2**62)))
    device = recogniser.flat.theta.device
    kept = randomness.kept_blocks(recogniser.options.blocks, recogniser.options.layer_drop)
    scores, outputs = recogniser.encoder(
        torch.from_numpy(batch.features).to(device),
        torch.from_numpy(batch.frames).to(device),
        torch.from_numpy(shifts).to(device),
        kept,
    )
    targets, lengths = torch.from_numpy(batch.targets).to(device), torch.from_numpy(batch.target_lengths).to(device)
    loss = ctc_loss(scores, outputs, targets, lengths).sum()
    torch.autograd.backward(weight * loss)
    return float(loss.detach())


def step_gradient(
    recogniser: Recogniser,
    store: Store,
    micro: Sequence[Rows],
    randomness: Randomness,
    augment: SpecAugment | None,
    group: Group,
) -> float:
    """Leave the gradient of the mean loss over all utterances of the step in the flat vector; return that loss."""
    total = sum(len(rows) for rows in micro)
    recogniser.flat.gradient.zero_()
    recogniser.encoder.train()
    losses = torch.zeros(len(micro), dtype=torch.float64)
    for place, rows in enumerate(micro):
        if place % group.size == group.rank:
            losses[place] = add_gradient(recogniser, store, rows, place, randomness, augment, 1 / total)
    group.sum_(recogniser.flat.gradient)
    group.sum_(losses)
    if not bool(torch.isfinite(losses).all()):
        place = int(torch.nonzero(~torch.isfinite(losses))[0])
        names = store.index(["utterance"])["utterance"].take(micro[place]).to_pylist()
        raise DataError(
            f"The loss of step {randomness.step} is {float(losses[place])} in micro-batch {place} "
            f"({', '.join(names[:5])}{', ...' if len(names) > 5 else ''}). Nothing was overwritten; lower the learning "
            "rate or look at this audio."
        )
    return float(losses.sum() / total)
