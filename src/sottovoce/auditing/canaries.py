"""Canaries: users who send whatever reveals them best, and what the releases say about each of them.

A canary owns some coordinates of theta, and no other canary does. Its delta is a random sign at each of them, far above
every clip bound. So the directions of all canaries are orthogonal, no canary hides another, and a canary that takes
part adds as much as clipping and weights let it. It can be told from the releases by their projection on its direction:

    x_t = <sum_t, c> / (|c| weight_bound C)     c: the clipped delta, as clipping should leave it

x_t is N(0, s^2) if the canary is not in the cohort of step t, and N(a, s^2) if it is, with a = |c| / C at most 1 and s
the noise of the sum. The logarithm of the odds that a canary is in the population, which a sum over the steps gives, is
the best score there is (Neyman and Pearson).

Everything here is the attacker's. It takes bounds and noise from the mechanism's public numbers; what really happens to
a delta is up to the code under audit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sottovoce.auditing.canary_speech import canary_number
from sottovoce.auditing.one_run import Floats
from sottovoce.errors import ConfigError
from sottovoce.federated.client import Client, LocalBatch, Rows
from sottovoce.federated.local_rules import LocalState
from sottovoce.model.encoder import Encoder
from sottovoce.model.partition import Partition
from sottovoce.model.recogniser import Recogniser
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.randomness import stream

_EXCESS = 1000.0  # a canary's delta at each of its coordinates, in units of C


@dataclass(frozen=True)
class Directions:
    """The directions of all canaries."""

    owners: npt.NDArray[np.int64]  # of every coordinate: the number of its canary
    signs: npt.NDArray[np.float32]
    _order: npt.NDArray[np.int64]  # all coordinates, by owner
    _ends: npt.NDArray[np.int64]  # where each owner's coordinates end in `_order`

    @classmethod
    def draw(cls, partition: Partition, canaries: int, seed: int) -> "Directions":
        """Deal out the coordinates at random, tensor by tensor, so that a canary has some in as many as possible."""
        size = sum(partition.tensor_sizes)
        if canaries > size:
            raise ConfigError(f"{canaries} canaries need as many parameters, and the model has {size}. Use fewer.")
        rng = stream(seed, "audit-directions")
        owners, first = np.empty(size, np.int64), 0
        for part in partition.tensor_sizes:
            owners[first : first + part] = rng.permutation((first + np.arange(part)) % canaries)
            first += part
        signs = np.where(rng.random(size) < 0.5, -1, 1).astype(np.float32)
        ends = np.cumsum(np.bincount(owners, minlength=canaries))
        return cls(owners, signs, np.argsort(owners, kind="stable"), ends)

    def __len__(self) -> int:
        """Return the number of canaries."""
        return len(self._ends)

    def delta_(self, out: Tensor, number: int, clip_norm: float) -> Tensor:
        """Write the delta of one canary into a vector."""
        mine = self._order[0 if number == 0 else self._ends[number - 1] : self._ends[number]]
        out.zero_()
        out[torch.from_numpy(mine)] = torch.from_numpy(self.signs[mine] * np.float32(_EXCESS * clip_norm)).to(out)
        return out

    def clipped(self, mechanism: Mechanism) -> Floats:
        """Return all clipped deltas in units of C, as one vector: every coordinate has one owner."""
        bounds, partition = mechanism.clip_norms, mechanism.partition
        if bounds is None or mechanism.privacy.clip_norm is None:
            raise ConfigError("An audit needs a guarantee: set privacy.clipping and privacy.clip_norm.")
        if mechanism.privacy.clipping == "global":
            return np.asarray(self.signs / np.sqrt(np.bincount(self.owners, minlength=len(self)))[self.owners])
        layers = np.repeat(np.array(partition.tensor_layers), partition.tensor_sizes)
        places = self.owners * len(partition) + layers
        shared = np.sqrt(np.bincount(places, minlength=len(self) * len(partition)))[places]
        return np.asarray(self.signs * (np.array(bounds) / mechanism.privacy.clip_norm)[layers] / shared)


@dataclass(frozen=True)
class CanaryClient(Client):
    """A client whose users are canaries: they do not train, and send their deltas."""

    directions: Directions
    clip_norm: float

    @classmethod
    def of(cls, client: Client, directions: Directions, mechanism: Mechanism) -> "CanaryClient":
        """Return a client like another, for canaries."""
        norm = float(mechanism.privacy.clip_norm or 0.0)
        return cls(client.store, client.batching, client.local, client.augment, client.seed, directions, norm)

    def batches(self, step: int, user: str, rows: Rows, encoder: Encoder) -> Iterator[LocalBatch]:  # noqa: ARG002 - it trains nothing
        """Return nothing to train on."""
        return iter(())

    def finish_(self, recogniser: Recogniser, theta: Tensor, state: LocalState) -> Tensor:  # noqa: ARG002 - a canary trains nothing
        """Return the canary's delta, in the memory of the gradient."""
        return self.directions.delta_(recogniser.flat.gradient, canary_number(state.user), self.clip_norm)


class DirectionEvidence:
    """Adds up, release by release, the odds that each canary is in the population."""

    def __init__(self, directions: Directions, mechanism: Mechanism) -> None:
        """Prepare for the releases of a mechanism."""
        self._directions, self._mechanism = directions, mechanism
        self._clipped = directions.clipped(mechanism)
        self.reach = np.sqrt(self._totals(self._clipped**2))  # |c| / C of every canary
        self.odds = np.zeros(len(directions))

    def begin(self, t: int, theta: Tensor) -> None:
        """Do nothing: these canaries send the same from every model."""

    def see(self, average: Tensor) -> None:
        """Take one released average into account."""
        mechanism, reach = self._mechanism, self.reach
        unit = mechanism.participation.weight_bound * float(mechanism.privacy.clip_norm or 0.0)
        total = average.double().cpu().numpy() * (mechanism.divisor / unit)
        self.odds += log_odds(self._totals(total * self._clipped) / reach, reach, mechanism)

    def _totals(self, values: Floats) -> Floats:
        """Return the sum over each canary's coordinates."""
        return np.bincount(self._directions.owners, values, len(self._directions)).astype(np.float64, copy=False)


def log_odds(seen: Floats, signal: Floats | float, mechanism: Mechanism) -> Floats:
    """Return what one projection adds to the log odds: of (1 - q) N(0, s^2) + q N(signal, s^2) against N(0, s^2)."""
    std = mechanism.privacy.sigma_dp * mechanism.divisor / mechanism.participation.weight_bound
    q = mechanism.sampling_prob
    present = (2 * signal * seen - np.square(signal)) / (2 * std**2)
    return np.asarray(present if q == 1.0 else np.logaddexp(np.log1p(-q), np.log(q) + present))
