"""One central step on many processes: what `step.py` says, shared out, with batches prepared ahead and figures kept.

Every process trains its share of the cohort, longest users first, and sums integers; the noise joins the sum of rank 0;
one all-reduce gives every process the same noised sum, and each moves theta by the same bits. Since sums of integers do
not depend on their order, the number of processes changes no bit. Nothing grows with the cohort or the population.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sottovoce.data.batching import epoch
from sottovoce.data.population import Population
from sottovoce.distributed import Group
from sottovoce.federated.client import Client, LocalBatch
from sottovoce.federated.figures import Figures
from sottovoce.federated.weights import user_weights
from sottovoce.model.recogniser import Recogniser
from sottovoce.optim import AnyOptimizer, State
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.noise import add_noise_
from sottovoce.processes import ahead
from sottovoce.randomness import Randomness, SecureRandomness, stream

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
    theta: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Keep theta apart from the model, which clients train."""
        self.theta = self.recogniser.flat.theta.clone()

    def step(self, t: int, central_lr: float) -> Figures:
        """Move theta by one central step; return its figures."""
        figures = Figures(self.mechanism.partition)
        with figures.timed("cohort"):
            cohort, weights = self._cohort(t)
            divisor = self.mechanism.divisor(int(weights.sum()))
            largest = self.mechanism.require_range(len(cohort), divisor)
            mine = self._share(cohort)
        total = torch.zeros(self.theta.numel(), dtype=torch.int64, device=self.theta.device)
        noise = self._noise(t, divisor, total, figures)
        with figures.timed("users"):
            self._train(t, cohort[mine], weights[mine], total, largest, figures)
        with figures.timed("sum"):
            self.group.sum_(total)
            figures.sum_over(self.group)
        with figures.timed("server"):
            average = self.mechanism.average(total, divisor)
            if self.group.leads:
                figures.released(average, None if noise is None else self.mechanism.average(noise, divisor))
            figures.trust_ratios = self.server.step(
                self.theta, average, self.state, central_lr, self.mechanism.partition
            )
            self.recogniser.flat.load_(self.theta)
        return figures

    def _cohort(self, t: int) -> tuple[Users, Users]:
        """Return who takes part and how much each counts: the same on every process, told to nobody else."""
        cohort = self.mechanism.draw_cohort(len(self.population), self._randomness("cohort", t))
        if self.mechanism.privacy.randomness == "secure":
            cohort = self.group.from_leader(cohort)
        return cohort, user_weights(self.population, cohort, self.mechanism.participation)

    def _randomness(self, name: str, t: int) -> Randomness:
        secure = self.mechanism.privacy.randomness == "secure"
        return SecureRandomness() if secure else stream(self.client.seed, name, t)

    def _share(self, cohort: Users) -> Users:
        """Return the places of this process' users."""
        if self.group.size == 1:
            return np.arange(len(cohort))
        costs = [local_cost(self.population, int(user), self.client) for user in cohort]
        return share_out(costs, self.group.size)[self.group.rank]

    def _noise(self, t: int, divisor: float, total: Tensor, figures: Figures) -> Tensor | None:
        """Start the sum of rank 0 with the noise; return a copy of it for diagnostics, if they are wanted."""
        stds = self.mechanism.noise_stds(divisor)
        if not self.group.leads or not any(stds):
            return None
        with figures.timed("noise"):
            add_noise_(total, self.mechanism.partition, stds, self._randomness("noise", t))
        return total.clone() if self.mechanism.privacy.diagnostics else None

    def _train(self, t: int, users: Users, weights: Users, total: Tensor, largest: int, figures: Figures) -> None:
        """Train the users one after another and add their clipped deltas to the sum."""
        numbers = dict(zip(users.tolist(), weights.tolist(), strict=True))
        losses: list[Tensor] = []
        for user, batch in ahead(self._local_batches(t, users), _BATCHES_AHEAD):
            if not losses:
                self.client.start_(self.recogniser, self.theta)
            if batch is not None:
                losses.append(self.client.step_(self.recogniser, self.theta, batch))
                continue
            delta = self.client.delta_(self.recogniser, self.theta)
            clipped = add_clipped_(total, delta, numbers[user], self.mechanism, largest)
            if clipped is None:
                figures.failed += 1
            else:
                figures.user(*clipped, float(torch.stack(losses).mean()) if losses else None)
            losses = []

    def _local_batches(self, t: int, users: Users) -> Iterator[tuple[int, LocalBatch | None]]:
        """Yield the local batches of all users in a row; None ends a user."""
        for user in users.tolist():
            for batch in self.client.batches(t, user, self.population.rows_of(user)):
                yield user, batch
            yield user, None


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
