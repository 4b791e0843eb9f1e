"""One central step on many processes: what `step.py` says, shared out, with batches prepared ahead and figures kept.

Every process trains its share of the cohort, longest users first, and sums integers; the noise joins the sum of rank 0;
one all-reduce gives every process the same noised sum, and each moves theta by the same bits. Since sums of integers do
not depend on their order, the number of processes changes no bit. Nothing grows with the cohort or the population.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sottovoce.data.batching import epoch
from sottovoce.data.population import Population
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.federated.client import Client, LocalBatch
from sottovoce.federated.diagnostics import CLOSELY, Figures, LocalGradients
from sottovoce.federated.weights import user_weights
from sottovoce.model.recogniser import Recogniser
from sottovoce.optim import AnyOptimizer, State
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.noise import add_noise_
from sottovoce.processes import ahead
from sottovoce.randomness import Randomness, SecureRandomness, stream
from sottovoce.runs.stop import VOTES, Stop

Users = npt.NDArray[np.int64]
_BATCHES_AHEAD = 2


@dataclass
class Engine:
    """One process' part in the central steps of a run."""

    group: Group
    population: Population
    recogniser: Recogniser
    client: Client
    mechanism: Mechanism
    server: AnyOptimizer
    state: State
    stop: Stop = field(default_factory=Stop)
    stopping: bool = False  # all processes agreed to stop after the last step
    ledger: Ledger | None = None  # of rank 0
    charged_before: int = 0  # steps below this may have been released, and charged, before a kill: known to all
    theta: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Keep theta apart from the model, which clients train."""
        self.theta = self.recogniser.flat.theta.clone()

    def step(self, t: int, central_lr: float) -> Figures:
        """Move theta by one central step; return its figures."""
        figures = Figures(self.mechanism.partition)
        with figures.timed("cohort"):
            cohort, weights = self._cohort(t)
            largest = self.mechanism.require_range(len(cohort))
            mine = self._share(cohort)
        sums = Sums(self.group, self.theta, len(self._notes(figures)))
        shrinks = self.mechanism.participation.q_min is not None
        noise = None if shrinks else self._noise(t, sums.total, figures)
        with figures.timed("users"):
            self._train(t, cohort, weights, mine, sums.total, largest, figures)
        with figures.timed("sum"):
            self._take_notes(sums.reduce_(self._notes(figures)), figures)
        if shrinks:
            noise = self._shrink(t, sums.total, int(weights.sum()), figures)
        with figures.timed("ledger"):
            if self._settle(t, sums.total) > 0:
                noise = None  # what was drawn first is not what is in it
        with figures.timed("server"):
            average = self.mechanism.average(sums.total)
            if self.group.leads:
                noise = None if noise is None else self.mechanism.average(noise)
                figures.released(average, noise, self._divisor(noise, int(weights.sum())))
            figures.trust_ratios = self.server.step(
                self.theta, average, self.state, central_lr, self.mechanism.partition
            )
            self.recogniser.flat.load_(self.theta)
        return figures

    def _notes(self, figures: Figures) -> Tensor:
        """Return what this process tells the others besides its sum."""
        model = float(self.theta.view(torch.int32).sum(dtype=torch.int64) % 2**52)
        return torch.cat([torch.tensor([model, *self.stop.votes()], dtype=torch.float64), figures.packed()])

    def _take_notes(self, notes: Tensor, figures: Figures) -> None:
        """Take everybody's notes, a row for each process."""
        if bool((notes[:, 0] != notes[0, 0]).any()):
            raise DataError(
                "The processes of this run hold different models. Use machines of one kind and one seed model."
            )
        totals = notes[:, 1:].sum(0)
        self.stopping = self.stop.decide(totals[:VOTES].tolist())
        figures.unpack_(totals[VOTES:])

    def _settle(self, t: int, total: Tensor) -> int:
        """Charge the release before anything depends on it; where its noise was used on another sum, draw it anew.

        Return how often it was drawn anew.
        """
        attempt = 0
        while not self._charge(t, attempt, total):
            change = torch.zeros_like(total)
            if self.group.leads:
                for sign, number in ((-1, attempt), (1, attempt + 1)):
                    noise = torch.zeros_like(total)
                    add_noise_(
                        noise, self.mechanism.partition, self.mechanism.noise_stds, self._noise_source(t, number)
                    )
                    change.add_(noise, alpha=sign)
            total.add_(self.group.sum_(change))
            attempt += 1
        return attempt

    def _charge(self, t: int, attempt: int, total: Tensor) -> bool:
        charged = True
        if self.ledger is not None:
            charged = self.ledger.charge(t, attempt, hashlib.sha256(total.cpu().numpy().data).hexdigest())
        return self.group.from_leader(charged) if t < self.charged_before else charged

    def _noise_source(self, t: int, attempt: int) -> Randomness:
        return self._randomness("noise", t, *([attempt] if attempt else []))

    def _shrink(self, t: int, total: Tensor, cohort_weight: int, figures: Figures) -> Tensor | None:
        """Shrink the sum of all processes, as q_min asks, and only then add the noise: a second all-reduce."""
        self.mechanism.shrink_(total, cohort_weight)
        noise = torch.zeros_like(total)
        self._noise(t, noise, figures)
        total.add_(self.group.sum_(noise))
        return noise if self.mechanism.privacy.diagnostics else None

    def _divisor(self, noise: Tensor | None, cohort_weight: int) -> float | None:
        """Return what the users' sum was divided by; None where diagnostics are off, or its noise is not known."""
        mechanism = self.mechanism
        if not mechanism.privacy.diagnostics or (noise is None and any(mechanism.noise_stds)):
            return None
        if mechanism.participation.q_min is None:
            return mechanism.divisor
        return max(mechanism.divisor, cohort_weight * mechanism.weight_unit)

    def _cohort(self, t: int) -> tuple[Users, Users]:
        """Return who takes part and how much each counts: the same on every process, told to nobody else."""
        cohort = self.mechanism.draw_cohort(len(self.population), self._randomness("cohort", t))
        if self.mechanism.source == "secure":
            cohort = self.group.from_leader(cohort)
        return cohort, user_weights(self.population, cohort, self.mechanism.participation)

    def _randomness(self, name: str, *keys: int) -> Randomness:
        return SecureRandomness() if self.mechanism.source == "secure" else stream(self.client.seed, name, *keys)

    def _share(self, cohort: Users) -> Users:
        """Return the places of this process' users."""
        if self.group.size == 1:
            return np.arange(len(cohort))
        costs = [local_cost(self.population, int(user), self.client) for user in cohort]
        return share_out(costs, self.group.size)[self.group.rank]

    def _noise(self, t: int, total: Tensor, figures: Figures) -> Tensor | None:
        """Start the sum of rank 0 with the noise; return a copy of it for diagnostics, if they are wanted."""
        stds = self.mechanism.noise_stds
        if not self.group.leads or not any(stds):
            return None
        with figures.timed("noise"):
            add_noise_(total, self.mechanism.partition, stds, self._noise_source(t, 0))
        return total.clone() if self.mechanism.privacy.diagnostics else None

    def _train(
        self, t: int, cohort: Users, weights: Users, mine: Users, total: Tensor, largest: int, figures: Figures
    ) -> None:
        """Train this process' users one after another and add their clipped deltas to the sum."""
        flat, mechanism = self.recogniser.flat, self.mechanism
        users = dict(zip(cohort[mine].tolist(), weights[mine].tolist(), strict=True))
        closely = set(cohort[t % CLOSELY :: CLOSELY].tolist())  # the same ones for any number of workers
        watch = LocalGradients(mechanism.partition, self.client.local, on=mechanism.privacy.diagnostics)
        losses: list[Tensor] = []
        for user, batch in ahead(self._local_batches(t, users), _BATCHES_AHEAD):
            if not losses:
                self.client.start_(self.recogniser, self.theta)
                watch.begin(closely=user in closely)
            if batch is not None:
                step = self.client.step_(self.recogniser, self.theta, batch)
                watch.step(flat.gradient, step.gradient_norm)
                losses.append(step.loss)
                continue
            watch.stopped_(self.theta, flat)
            delta = self.client.delta_(self.recogniser, self.theta)
            clipped = add_clipped_(total, delta, users[user], mechanism, largest)
            if clipped is None:
                figures.failed()
            else:
                loss = float(torch.stack(losses).mean()) if losses else None
                figures.user(*clipped, loss, users[user] * mechanism.weight_unit, watch.ended(clipped[0]))
            losses = []

    def _local_batches(self, t: int, users: Iterable[int]) -> Iterator[tuple[int, LocalBatch | None]]:
        """Yield the local batches of all users in a row; None ends a user."""
        for user in users:
            for batch in self.client.batches(t, self.population.key_of(user), self.population.rows_of(user)):
                yield user, batch
            yield user, None


class Sums:
    """Integers to be added up over all processes: one for every parameter and, behind them, the bits of some notes.

    Notes are floats. Each process writes its own into a row of its own among zeros, so that integer sums leave them
    whole, and one all-reduce carries everything.
    """

    def __init__(self, group: Group, theta: Tensor, notes: int) -> None:
        """Start at zero, with room for so many notes of every process."""
        length = theta.numel()
        self._group = group
        self._all = torch.zeros(length + group.size * notes, dtype=torch.int64, device=theta.device)
        self.total = self._all[:length]
        self._notes = self._all[length:].view(group.size, notes)

    def reduce_(self, notes: Tensor) -> Tensor:
        """Replace `total` by its sum over all processes; return their notes in float64, a row for each process."""
        self._notes[self._group.rank] = notes.view(torch.int64).to(self._notes.device)
        self._group.sum_(self._all)
        return self._notes.cpu().view(torch.float64)


def local_cost(population: Population, user: int, client: Client) -> int:
    """Return the padded frames that a user's local work comes to, from one pass over its audio."""
    rows = population.rows_of(user)
    frames = population.store.frames_of(rows)
    by_row = dict(zip(rows.tolist(), frames.tolist(), strict=True))
    batches = epoch(rows, frames, client.batching, stream(0, "cost"))
    padded: int = sum(len(micro) * max(by_row[int(row)] for row in micro) for batch in batches for micro in batch.micro)
    passes = client.local.passes if client.local.steps is None else client.local.steps / max(len(batches), 1)
    return round(padded * passes)


def share_out(costs: Sequence[int], shares: int) -> list[Users]:
    """Return the places of each share: longest first, each to the share that has least."""
    heap = [(0, share) for share in range(shares)]
    places: list[list[int]] = [[] for _ in range(shares)]
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        load, share = heapq.heappop(heap)
        places[share].append(place)
        heapq.heappush(heap, (load + costs[place], share))
    return [np.array(mine, dtype=np.int64) for mine in places]
