"""A cohort simulated by a group of processes: each trains its share of the users, and the leader gets the sum.

Users are shared out by the audio and the steps of their local work, longest first. Sums of integers do not depend on
their order, so the number of processes changes no bit. The number of vectors in memory does not grow with the cohort;
only lists with a few numbers per user of the cohort do. Where a GPU computes, batches are prepared ahead in a thread.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sottovoce.data.population import Population
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.federated.aggregator import AggregatorContext, Collected, Item, Users
from sottovoce.federated.client import Client, LocalBatch
from sottovoce.federated.diagnostics import CLOSELY, Figures, LocalGradients
from sottovoce.federated.weights import user_weights
from sottovoce.model.recogniser import Recogniser
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.processes import ahead
from sottovoce.runs.stop import VOTES, Stop

_BATCHES_AHEAD = 2
STEP_FRAMES = 200  # frames of audio that take as long as what every local step costs besides its audio


@dataclass
class ProcessAggregator:
    """One process' part in training the users of a simulated population."""

    group: Group
    population: Population
    recogniser: Recogniser
    client: Client
    mechanism: Mechanism
    stop: Stop = field(default_factory=Stop)

    @classmethod
    def of(cls, context: AggregatorContext) -> "ProcessAggregator":
        """Return the part of this process in a run."""
        return cls(
            context.group, context.population, context.recogniser, context.client, context.mechanism, context.stop
        )

    @property
    def leads(self) -> bool:
        """Whether this process holds the sum."""
        return self.group.leads

    @property
    def noise_group(self) -> Group:
        """The processes that draw the noise: all of them."""
        return self.group

    def from_leader(self, item: Item) -> Item:
        """Return the leader's item on every process."""
        return self.group.from_leader(item)

    def broadcast_(self, vector: Tensor) -> Tensor:
        """Replace a vector by the leader's."""
        return self.group.broadcast_(vector)

    def follow(self, mechanism: Mechanism) -> None:
        """Clip to the bounds of this mechanism from now on."""
        self.mechanism = mechanism

    def collect(self, t: int, theta: Tensor, cohort: Users, figures: Figures) -> Collected:
        """Train this process' share of the cohort; the leader gets the sum over all processes."""
        weights = user_weights(self.population, cohort, self.mechanism.participation)
        total = torch.zeros(sum(self.mechanism.summed.sizes), dtype=torch.int64, device=theta.device)
        with figures.timed("users"):
            self._train(t, theta, cohort, weights, total, figures)
        with figures.timed("sum"):
            stopping = self._exchange_notes(theta, figures)
            self.group.sum_to_leader_(total)
        return Collected(total, int(weights.sum()), stopping)

    def _exchange_notes(self, theta: Tensor, figures: Figures) -> bool:
        """Add up the figures of all processes, check that they hold one model, and return whether to stop."""
        checksum = float((_bits(theta) + self._frozen_bits) % (2**52 - 1))  # every bit counts; a float64 holds it
        mine = torch.cat([torch.tensor([checksum, *self.stop.votes()], dtype=torch.float64), figures.packed()])
        notes = self.group.gather_rows(mine)
        if bool((notes[:, 0] != notes[0, 0]).any()):
            raise DataError(
                "The processes of this run hold different models. Use machines of one kind and one seed model."
            )
        totals = notes[:, 1:].sum(0)
        figures.unpack_(totals[VOTES:])
        return self.stop.decide(totals[:VOTES].tolist())

    @cached_property
    def _frozen_bits(self) -> int:
        return sum(map(_bits, self.recogniser.flat.frozen_tensors()))

    def _share(self, t: int, cohort: Users) -> Users:
        """Return the places, within the cohort, of this process' users."""
        if self.group.size == 1:
            return np.arange(len(cohort))
        padded = self.recogniser.encoder.computes_padding
        mine = cohort[self.group.rank :: self.group.size].tolist()
        known = self.group.gather([local_cost(self.population, user, self.client, t, padded=padded) for user in mine])
        costs = np.empty(len(cohort), dtype=np.int64)
        for rank, theirs in enumerate(known):
            costs[rank :: self.group.size] = theirs
        return share_out(costs.tolist(), self.group.size)[self.group.rank]

    def _train(self, t: int, theta: Tensor, cohort: Users, weights: Users, total: Tensor, figures: Figures) -> None:
        """Train this process' users one after another and add their clipped deltas to the sum."""
        client, recogniser, mechanism = self.client, self.recogniser, self.mechanism
        largest = mechanism.require_range(len(cohort))
        places = self._share(t, cohort)
        users = dict(zip(cohort[places].tolist(), weights[places].tolist(), strict=True))
        closely = set(cohort[t % CLOSELY :: CLOSELY].tolist())  # the same users for any number of processes
        watch = LocalGradients(mechanism.partition, client.local, on=mechanism.diagnostics)
        losses: list[Tensor] = []
        state = None
        batches = self._local_batches(t, users)
        if theta.device.type != "cpu":  # on a CPU, a thread would share the core of this process
            batches = ahead(batches, _BATCHES_AHEAD)
        for user, batch in batches:
            if state is None:
                state = client.start_(recogniser, theta, t, self.population.key_of(user))
                watch.begin(closely=user in closely)
            if batch is not None:
                step = client.step_(recogniser, theta, batch, state)
                watch.step(recogniser.flat.gradient, step.gradient_norm, step.scale)
                losses.append(step.loss)
                continue
            watch.stopped_(theta, recogniser.flat)
            delta = client.finish_(recogniser, theta, state)
            clipped = add_clipped_(total, delta, users[user], mechanism, largest)
            if clipped is None:
                figures.failed()
            else:
                loss = float(torch.stack(losses).mean()) if losses else None
                figures.user(*clipped, loss, users[user] * mechanism.weight_unit, watch.ended(clipped[0]))
            losses, state = [], None

    def _local_batches(self, t: int, users: Iterable[int]) -> Iterator[tuple[int, LocalBatch | None]]:
        """Yield the local batches of all users in a row; None ends a user."""
        for user in users:
            key, rows = self.population.key_of(user), self.population.rows_of(user)
            for batch in self.client.batches(t, key, rows, self.recogniser.encoder):
                yield user, batch
            yield user, None


def _bits(tensor: Tensor) -> int:
    """Return the sum of a tensor's bits as integers: a checksum that does not depend on the order."""
    octets = tensor.detach().reshape(-1).view(torch.uint8)
    if octets.storage_offset() % 8:
        octets = octets.clone()
    whole = len(octets) // 8 * 8
    return int(octets[:whole].view(torch.int64).sum()) + int(octets[whole:].sum())  # the first sum may wrap around


def local_cost(population: Population, user: int, client: Client, step: int, *, padded: bool) -> int:
    """Return what a user's local work in a central step costs, in frames of audio; `padded` counts padding."""
    frames_of = population.store.frames_of
    batches = client.planned(step, population.key_of(user), population.rows_of(user))
    if padded:
        frames = sum(len(micro) * int(frames_of(micro).max()) for batch in batches for micro in batch.micro)
    else:
        frames = sum(int(frames_of(batch.rows).sum()) for batch in batches)
    return frames + STEP_FRAMES * len(batches)


def share_out(costs: Sequence[int], shares: int) -> list[Users]:
    """Return the places of each share: longest first, each to the share that has least."""
    heap = [(0, share) for share in range(shares)]
    places: list[list[int]] = [[] for _ in range(shares)]
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        load, share = heapq.heappop(heap)
        places[share].append(place)
        heapq.heappush(heap, (load + costs[place], share))
    return [np.array(share, dtype=np.int64) for share in places]
