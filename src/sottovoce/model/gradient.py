"""The gradient of one micro-batch, for central training and for clients alike.

Everything that needs no device (reading, SpecAugment, every random choice) is done by `prepare_micro`, which may run
ahead in a thread of its own; `add_gradient` does the rest. Every micro-batch has random streams of its own, named by
its keys: for dropout, for SpecAugment and for the encoder's own choices.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sottovoce.data.batching import PaddedBatch, load
from sottovoce.data.store import Store
from sottovoce.errors import ConfigError
from sottovoce.features.specaugment import SpecAugment, augment_
from sottovoce.model.ctc import ctc_loss
from sottovoce.model.encoder import Choices, Encoder
from sottovoce.model.recogniser import Recogniser
from sottovoce.randomness import Streams

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Micro:
    """A micro-batch that is ready for the model."""

    batch: PaddedBatch
    choices: Choices  # the encoder's own for this micro-batch
    dropout_seed: int

    def __len__(self) -> int:
        """Return the number of utterances."""
        return len(self.batch.frames)


def prepare_micro(
    store: Store,
    rows: Rows,
    augment: SpecAugment | None,
    streams: Streams,
    place: int,
    encoder: Encoder,
    piece: tuple[int, int] | None = None,
) -> Micro:
    """Read one micro-batch, mask it, and make its random choices.

    With `piece` only the utterances from its first number to before its second are read. Their masks and choices are
    those they have in the whole micro-batch. Dropout is not: torch draws it for the matrices that it gets.
    """
    first, last = piece or (0, len(rows))
    whole = (first, last) == (0, len(rows))
    batch = load(store, rows[first:last])
    if augment is not None:
        before = store.frames_of(rows[:first]) if first else None
        augment_(batch.features, batch.frames, augment, streams.of("specaugment", place), before)
    choices = encoder.draw_micro(streams, place, len(rows))
    if whole:
        return Micro(batch, choices, streams.seed_of("dropout", place))
    return Micro(batch, _sliced(choices, len(rows), first, last), streams.seed_of("dropout", place, first))


def _sliced(choices: Choices, rows: int, first: int, last: int) -> Choices:
    """Return the choices of some utterances of a micro-batch."""
    for name, values in choices.items():
        if values.shape[:1] != (rows,):
            raise ConfigError(
                f"The encoder's choice {name} has no value per utterance, so a micro-batch cannot be cut: make it in "
                "draw_batch, or train on a number of processes that divides central.micro_batches."
            )
    return {name: values[first:last] for name, values in choices.items()}


def add_gradient(recogniser: Recogniser, micro: Micro, choices: Choices, weight: float) -> Tensor:
    """Add `weight` times the gradient of the summed loss of one micro-batch; return the summed loss, on the device.

    `choices` are the encoder's own for the whole batch.
    """
    encoder, device = recogniser.encoder, recogniser.flat.theta.device
    _seed_dropout(micro.dropout_seed, device)
    arrays = (micro.batch.features, micro.batch.frames, micro.batch.targets, micro.batch.target_lengths)
    features, frames, targets, lengths = (torch.from_numpy(array).to(device) for array in arrays)
    with encoder.autocast():
        scores, outputs = encoder(features, frames, {**choices, **micro.choices})
    loss = ctc_loss(scores, outputs, targets, lengths).sum()
    if loss.requires_grad:  # not where layer drop skips every block that trains
        torch.autograd.backward(weight * loss)
    return loss.detach()


def _seed_dropout(seed: int, device: torch.device) -> None:
    """Seed the default generators: dropout inside attention takes no generator of its own.

    `torch.manual_seed` does the same for every device there is and takes 0.7 ms, a tenth of a small batch's gradient.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)
