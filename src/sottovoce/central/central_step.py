"""One step of central training: the gradient of a fixed list of micro-batches, whichever process computes which.

Every micro-batch has random streams of its own (step, place); choices such as layer drop are drawn once per step. A
piece of a micro-batch gets its part of the micro-batch's draws: SpecAugment's masks, position shifts and other choices
of the encoder. So any number of processes computes the gradient of the same loss, up to rounding: the order of the
additions differs. Only dropout differs more where micro-batches are cut: torch draws it for whole matrices, so a piece
has a stream of its own (step, place, its first utterance).

What needs no device is done by `Preparing`. Where a GPU computes, a thread does it for the next step while this
step computes. On a CPU the thread would share the core of its process (there are as many processes as cores, with one
thread each), so it would save nothing and interrupt the work. There is little to save, too: preparing takes 2 % of a
step of `tiny`, and less of a larger model's.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sottovoce.central.batches import Rows
from sottovoce.central.dealing import deal
from sottovoce.data.store import Store
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.features.specaugment import SpecAugment
from sottovoce.model.encoder import Choices, Encoder
from sottovoce.model.gradient import Micro, add_gradient, prepare_micro
from sottovoce.model.recogniser import Recogniser
from sottovoce.processes import ahead
from sottovoce.randomness import Streams

_STEPS_AHEAD = 1


@dataclass(frozen=True)
class PreparedStep:
    """One process' part of a step."""

    number: int
    micro: Sequence[Rows]  # all micro-batches of the step, on every process
    choices: Choices  # the encoder's own for the whole step
    pieces: Iterable[tuple[int, Micro]]  # this process' work, with the place of its micro-batch; read once


@dataclass(frozen=True)
class Preparing:
    """What steps are prepared from, and for whom."""

    store: Store
    augment: SpecAugment | None
    seed: int
    encoder: Encoder
    group: Group
    per_step: int

    def step(self, number: int, micro: Sequence[Rows]) -> PreparedStep:
        """Prepare one step; its pieces are read one by one when they are needed."""
        streams = Streams(self.seed, (number,))
        mine = deal([self.store.frames_of(rows) for rows in micro], self.group.size, self.per_step)[self.group.rank]
        pieces = (
            (
                piece.place,
                prepare_micro(
                    self.store,
                    micro[piece.place],
                    self.augment,
                    streams,
                    piece.place,
                    self.encoder,
                    (piece.first, piece.last),
                ),
            )
            for piece in mine
        )
        return PreparedStep(number, micro, self.encoder.draw_batch(streams), pieces)

    def steps(
        self, batches: Iterable[tuple[int, Sequence[Rows]]], *, prefetch: bool
    ) -> Generator[PreparedStep, None, None]:
        """Yield the prepared steps, the same with `prefetch`: then a thread prepares the next one meanwhile."""
        prepared: Iterator[PreparedStep] = (self.step(number, micro) for number, micro in batches)
        if prefetch:
            prepared = ahead((replace(step, pieces=list(step.pieces)) for step in prepared), _STEPS_AHEAD)
        yield from prepared


def prefetch_pays(device: torch.device) -> bool:
    """Return whether a thread that prepares steps has a core of its own to do so."""
    return device.type != "cpu"


def step_gradient(recogniser: Recogniser, store: Store, step: PreparedStep, group: Group) -> float:
    """Leave the gradient of the mean loss over all utterances of the step in the flat vector; return that loss.

    A process without work adds nothing and gets the same gradient and loss as the others.
    """
    total = sum(len(rows) for rows in step.micro)
    recogniser.encoder.train()
    computed: list[tuple[int, Tensor]] = []  # on the device, so that the host need not wait
    with recogniser.flat.new_gradient():
        for place, ready in step.pieces:
            computed.append((place, add_gradient(recogniser, ready, step.choices, 1 / total)))
    losses = torch.zeros(len(step.micro), dtype=torch.float64)
    for place, loss in computed:
        losses[place] = float(loss)
    group.sum_(recogniser.flat.gradient)
    group.sum_(losses)
    if not bool(torch.isfinite(losses).all()):
        place = int(torch.nonzero(~torch.isfinite(losses))[0])
        names = store.index(["utterance"])["utterance"].take(step.micro[place]).to_pylist()
        raise DataError(
            f"The loss of step {step.number} is {float(losses[place])} in micro-batch {place} "
            f"({', '.join(names[:5])}{', ...' if len(names) > 5 else ''}). Nothing was overwritten; lower the learning "
            "rate or look at this audio."
        )
    return float(losses.sum() / total)
