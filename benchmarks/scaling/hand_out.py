"""Hand-out rules: which worker trains which user of a cohort, and when it learns so.

A rule gets the costs that are expected and those that users really take. Under a fixed share every worker knows its
users from the start. Under a queue a worker fetches its next users when it is free, and each fetch takes some time.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sottovoce.federated.aggregator import Users
from sottovoce.federated.process_aggregator import share_out

Floats = npt.NDArray[np.float64]
Chunk = Callable[[int, int], int]  # users that wait, workers -> users to fetch at once
_UNITS = 1e6  # expected costs become integers, which `share_out` adds up


@dataclass(frozen=True)
class Outcome:
    """The users' part of one central step, simulated."""

    seconds: float  # until the last worker is free
    work: float  # seconds that all users together really take, at normal pace
    longest: float  # of one user
    workers: int

    @property
    def ideal(self) -> float:
        """The time of a step whose work is divided evenly."""
        return self.work / self.workers

    @property
    def bound(self) -> float:
        """The least time of any rule on workers of normal pace: no rule divides a user."""
        return max(self.ideal, self.longest)

    @property
    def idle(self) -> float:
        """The share of the workers' time in which they train nobody."""
        return 1 - self.ideal / self.seconds if self.seconds > 0 else 0.0


def longest_first(expected: Floats, workers: int) -> list[Users]:
    """Return the engine's fixed shares: longest first by expected cost, each to the worker that has least."""
    return share_out(np.rint(expected * _UNITS).astype(np.int64).tolist(), workers)


def dealt(users: int, workers: int, rng: np.random.Generator) -> list[Users]:
    """Return fixed shares of as many users for every worker, at random."""
    order = rng.permutation(users).astype(np.int64)
    return [order[worker::workers] for worker in range(workers)]


def fixed_shares(shares: Sequence[Users], costs: Floats, paces: Floats | None = None) -> Outcome:
    """Simulate workers that train fixed shares; a worker of pace 2 takes half the time."""
    loads = np.array([costs[share].sum() for share in shares])
    seconds = loads if paces is None else loads / paces
    return Outcome(float(seconds.max(initial=0)), float(costs.sum()), float(costs.max(initial=0)), len(shares))


def one_by_one(_waiting: int, _workers: int) -> int:
    """Fetch a single user."""
    return 1


def guided(waiting: int, workers: int) -> int:
    """Fetch many users at first and single ones at the end: half of a worker's even share of those that wait."""
    return max(waiting // (2 * workers), 1)


def common_queue(
    order: Users,
    costs: Floats,
    workers: int,
    *,
    fetch_seconds: float,
    chunk: Chunk = one_by_one,
    paces: Floats | None = None,
) -> Outcome:
    """Simulate workers that fetch users from a common queue, event by event.

    An event is a worker that is free. The worker that is free first fetches next; of several, that with the least
    number. A worker stops when the queue is empty.
    """
    pace = np.ones(workers) if paces is None else paces
    free = [(0.0, worker) for worker in range(workers)]
    ordered = costs[order].tolist()
    place, ended = 0, 0.0
    while place < len(ordered):
        now, worker = heapq.heappop(free)
        count = min(chunk(len(ordered) - place, workers), len(ordered) - place)
        now += fetch_seconds + sum(ordered[place : place + count]) / pace[worker]
        place += count
        ended = max(ended, now)
        heapq.heappush(free, (now, worker))
    return Outcome(ended, float(costs.sum()), float(costs.max(initial=0)), workers)
