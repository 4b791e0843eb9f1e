"""The gradient of one micro-batch, for central training and for clients alike.

What needs no model (reading, SpecAugment, every random choice) is done by `prepare_micro`, which may run ahead in a
thread of its own; `add_gradient` does the rest. Every micro-batch has random streams of its own, named by its keys:
dropout, SpecAugment, position shifts.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sottovoce.data.batching import PaddedBatch, load
from sottovoce.data.store import Store
from sottovoce.features.specaugment import SpecAugment, augment_
from sottovoce.model.cape import MAX_SHIFT_SECONDS
from sottovoce.model.ctc import ctc_loss
from sottovoce.model.recogniser import Recogniser
from sottovoce.randomness import stream

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Streams:
    """Named random streams that share the first keys: of one training step, or of one user in one central step."""

    seed: int
    keys: tuple[int | str, ...]

    def of(self, name: str, *more: int) -> np.random.Generator:
        """Return one stream."""
        return stream(self.seed, name, *self.keys, *more)

    def kept_blocks(self, blocks: int, layer_drop: float) -> list[bool]:
        """Return which blocks are not dropped: one draw for all micro-batches of a batch."""
        kept: list[bool] = (self.of("layer-drop").random(blocks) >= layer_drop).tolist()
        return kept


@dataclass(frozen=True)
class Micro:
    """A micro-batch that is ready for the model."""

    batch: PaddedBatch
    shifts: npt.NDArray[np.float64]
    dropout_seed: int

    def __len__(self) -> int:
        """Return the number of utterances."""
        return len(self.batch.frames)


def prepare_micro(store: Store, rows: Rows, augment: SpecAugment | None, streams: Streams, place: int) -> Micro:
    """Read one micro-batch, mask it, and make its random choices."""
    batch = load(store, rows)
    if augment is not None:
        augment_(batch.features, batch.frames, augment, streams.of("specaugment", place))
    shifts = streams.of("positions", place).uniform(-MAX_SHIFT_SECONDS, MAX_SHIFT_SECONDS, len(rows))
    return Micro(batch, shifts, int(streams.of("dropout", place).integers(2**62)))


def add_gradient(recogniser: Recogniser, micro: Micro, kept: list[bool], weight: float) -> Tensor:
    """Add `weight` times the gradient of the summed loss of one micro-batch; return the summed loss, on the device."""
    device = recogniser.flat.theta.device
    # Dropout inside attention takes no generator of its own: seed the default one.
    torch.manual_seed(micro.dropout_seed)
    arrays = (micro.batch.features, micro.batch.frames, micro.shifts, micro.batch.targets, micro.batch.target_lengths)
    features, frames, shifts, targets, lengths = (torch.from_numpy(array).to(device) for array in arrays)
    scores, outputs = recogniser.encoder(features, frames, shifts, kept)
    loss = ctc_loss(scores, outputs, targets, lengths).sum()
    torch.autograd.backward(weight * loss)
    return loss.detach()
