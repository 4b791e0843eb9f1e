"""The work of one user in one central step: local training from theta on its own audio, which gives Delta_k.

    theta_k = theta
    for every local batch: g = gradient of the loss, corrected by the local rule, clipped to norm 1
                           theta_k -= local_lr * g
    Delta_k = theta - theta_k

That is plain SGD, the paper's. Another local optimizer moves theta_k by g in its own way, with trust ratios over the
same layers as the server's. Its state begins afresh for every user and central step.

Every random choice comes from streams named by (step, the user's own name, local step). So a user computes the same
result on any machine and whoever else is in the population; the bound on one user's influence rests on that. The
batches need no model and may be prepared ahead of time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sottovoce.data.batching import Batch, Batching, epoch
from sottovoce.data.store import Store
from sottovoce.features.specaugment import SpecAugment
from sottovoce.federated.federated_options import Local
from sottovoce.federated.local_rules import LocalState
from sottovoce.model.encoder import Choices, Encoder
from sottovoce.model.flat import FlatModel
from sottovoce.model.gradient import Micro, add_gradient, prepare_micro
from sottovoce.model.partition import PartitionName
from sottovoce.model.recogniser import Recogniser
from sottovoce.randomness import Streams, stream

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LocalBatch:
    """A batch that is ready for the model."""

    micro: tuple[Micro, ...]
    choices: Choices  # the encoder's own for the whole batch

    def __len__(self) -> int:
        """Return the number of utterances."""
        return sum(map(len, self.micro))


class LocalStep(NamedTuple):
    """Figures of one local step. They stay on the device, so that the host need not wait."""

    loss: Tensor  # the mean loss before the step
    gradient_norm: Tensor  # before local clipping
    scale: Tensor  # what local clipping multiplies the gradient by


def planned_batches(
    rows: Rows, frames: Rows, batching: Batching, local: Local, rng: np.random.Generator
) -> list[Batch]:
    """Return the batches of one user's local work, in order; beyond the user's data a new shuffled epoch begins."""
    if len(rows) == 0:
        return []
    if local.steps is None:
        return [batch for _ in range(local.passes) for batch in epoch(rows, frames, batching, rng)]
    batches: list[Batch] = []
    while len(batches) < local.steps:
        batches += epoch(rows, frames, batching, rng)
    return batches[: local.steps]


@dataclass(frozen=True)
class Client:
    """The settings of local work, and the store with the users' audio."""

    store: Store
    batching: Batching
    local: Local
    augment: SpecAugment | None
    seed: int
    partition: PartitionName = field(default="tensor", kw_only=True)  # the layers of the local optimizer

    def planned(self, step: int, user: str, rows: Rows) -> list[Batch]:
        """Return the batches of the user's local work in a central step."""
        if len(rows) == 1:  # one utterance has one order: to make a stream takes longer than all the rest
            return [Batch((rows,))] * (self.local.passes if self.local.steps is None else self.local.steps)
        order = stream(self.seed, "local-order", step, user)
        return planned_batches(rows, self.store.frames_of(rows), self.batching, self.local, order)

    def batches(self, step: int, user: str, rows: Rows, encoder: Encoder) -> Iterator[LocalBatch]:
        """Yield the user's local batches, ready for the encoder."""
        for number, batch in enumerate(self.planned(step, user, rows)):
            streams = Streams(self.seed, (step, user, number))
            micro = [
                prepare_micro(self.store, part, self.augment, streams, place, encoder)
                for place, part in enumerate(batch.micro if encoder.computes_padding else [batch.rows])
            ]
            yield LocalBatch(tuple(micro), encoder.draw_batch(streams))

    def start_(self, recogniser: Recogniser, theta: Tensor, step: int, user: str) -> LocalState:
        """Put the model where local work begins; return the state of the local rule and optimizer."""
        if not recogniser.encoder.training:
            recogniser.encoder.train()
        recogniser.flat.load_(theta)
        state = self.local.rule.start(theta, user, step)
        state.user, state.t, state.local_lr, state.steps = user, step, self.local.lr, 0
        state.optimizer = self.local.optimizer.start(theta)
        return state

    def step_(self, recogniser: Recogniser, theta: Tensor, batch: LocalBatch, state: LocalState) -> LocalStep:
        """Take one local step; the gradient, before local clipping, stays in place.

        With plain SGD this does not wait for the device.
        """
        flat = recogniser.flat
        loss = torch.zeros((), device=theta.device)
        with flat.new_gradient():
            for micro in batch.micro:
                loss += add_gradient(recogniser, micro, batch.choices, 1 / len(batch))
        self.local.rule.correct_(flat.gradient, flat.theta, theta, state)
        norm = torch.linalg.vector_norm(flat.gradient)
        if self.local.gradient_clip is None:
            scale = torch.ones_like(norm)
        else:
            scale = torch.clamp(self.local.gradient_clip / norm, max=1.0)
        self._move_(flat, scale, state)
        state.steps += 1
        return LocalStep(loss / len(batch), norm, scale)

    def _move_(self, flat: FlatModel, scale: Tensor, state: LocalState) -> None:
        """Move the user's model by the clipped gradient, scale * gradient."""
        if self.local.plain_sgd:
            flat.theta.addcmul_(flat.gradient, scale, value=-self.local.lr)
            return
        layers = flat.partition(self.partition)
        self.local.optimizer.step(flat.theta, flat.gradient * scale, state.optimizer, self.local.lr, layers)

    def finish_(self, recogniser: Recogniser, theta: Tensor, state: LocalState) -> Tensor:
        """End local work; return Delta_k = theta - theta_k, in the memory of the gradient.

        Raise PrivacyError where the work has left traces in the model that the next user would start from.
        """
        recogniser.flat.require_constant_buffers()
        self.local.rule.finish(recogniser.flat.theta, theta, state)
        return torch.sub(theta, recogniser.flat.theta, out=recogniser.flat.gradient)
