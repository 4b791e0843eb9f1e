"""Correlated Gaussian noise: what one step adds, later steps partly take back (DP-FTRL with a banded matrix).

A model moves by the sum of all releases so far, so the error that matters is that of prefix sums. Independent noise
adds up there; noise that is negatively correlated over time cancels. The price is a schedule of cohorts: users are
split into b = `bands` groups by a hash of their name, only group t mod b may take part in step t, and each of its users
does so with probability b q (`participation.sampling=cyclic`). S users are expected in a step, as before.

**Mechanism.** G has one row per step, the integer sum of that step's cohort. A is a strategy: a public lower-triangular
matrix of integers whose columns are at most b long (`strategies.py`). With independent integer Gaussians xi_t,

    Y = A G + xi        std of xi: z times what one user can change, times the largest norm of a column of A

is what is private. What is released follows from Y by exact integer arithmetic, step by step:

    R_t = round((Y_t - sum over j < t of A_tj R_j) / A_tt)

**It is noise on the sum.** Let w_t = R_t - G_t. Since Y_t = sum over j of A_tj G_j + xi_t and rounding commutes with
adding the integer G_t,

    w_t = round((xi_t - sum over j < t of A_tj w_j) / A_tt)

exactly. So the code draws w without looking at G, in integers, and adds it. Nothing has to be assumed about the
rounding: R is a function of Y, whatever the rounding does to its variance. Products may wrap around modulo 2^64; the
sum that is divided, about A_tt w_t, does not (`Mechanism.require_range`).

**Privacy** (Choquette-Choo et al. 2023, theorem 4; add or remove one user). Fix a user; its group follows from its name
alone, so all other users' groups and coins are the same with and without it. It may take part at steps s, s + b, ...
Its step s changes Y in rows s to s + b - 1 only, by A_is times one fixed vector, the clipped delta, which was computed
from releases before s. In between, other users' deltas depend on rows that were released meanwhile, in the same way
with and without the user. So given everything before, the rows s to s + b - 1 are a Gaussian, shifted by at most
|column s of A| times what one user can change if the user's coin came up, with probability b q: one sampled Gaussian
with noise multiplier z and sampling probability b q. The row ranges are disjoint, so n releases are the adaptive
composition of at most ceil(n / b) such events. The probability b S / K is public and is never computed from the
realised size of a group.

xi is an exact discrete Gaussian, or rounded float64 draws in simulations, as for independent noise; since A G is an
integer, rounded Gaussian noise would be post-processing here, too, and `Mechanism.sampler_epsilon` covers the
difference: it counts every draw, with a std that is smaller than that of xi.

**Memory.** The state is the keys of the draws since the noise started afresh: 32 bytes for each step, drawn from the
operating system's generator, or from the run's seed in simulations. They are secret like the noise itself: only their
owner can read the file. Earlier noise is kept in memory as long as it takes less than 4 GiB, and drawn again from its
keys otherwise and after a resumption. That changes no bit. A Toeplitz recursion has no end: to draw its noise again
takes all draws since the first step, not only the last b - 1. `strategy=blocks` starts afresh every b steps, so it
never draws more than b vectors, and destroys the keys of the steps before.

**After a kill.** With seeded randomness a repeated step has the same key, the same noise and the same sum, and is not
charged again; another sum is refused. With secure randomness a step that was released before the kill is drawn again,
with another cohort. The noise then starts afresh there: its rows have nothing to do with those before, so the repeated
step costs its group one more event and nothing else changes (`charges.py`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from sottovoce.errors import PrivacyError
from sottovoce.privacy.events import REPLACE, Event
from sottovoce.privacy.noise.base import NoiseMechanism, NoiseState, ranges_by_std
from sottovoce.privacy.noise.gaussian import Gaussian
from sottovoce.privacy.noise.strategies import Strategy, Structure, entries_of, optimised, strategy_of
from sottovoce.randomness import KeyedRandomness, Randomness, SecureRandomness, stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from sottovoce.model.partition import Partition
    from sottovoce.privacy.events import Adjacency, Counts

Integers = npt.NDArray[np.int64]

_KEY_BYTES = 32
_PIECE = 1 << 18  # coordinates at a time: memory does not grow with the model
_MOST_KEPT = 1 << 32  # bytes of earlier noise that are kept in memory
_KEYS = "keys"


class Correlated(NoiseMechanism):
    """Gaussian noise whose later releases take back part of earlier noise."""

    name: Literal["correlated"] = "correlated"
    bands: int = Field(8, ge=1, le=512, description="b: users come in b groups, and noise cancels over b steps")
    steps: int = Field(
        2000, ge=1, le=100_000, description="T that the strategy is best for; another number of steps is as private"
    )
    strategy: Structure = Field(
        "toeplitz", description="toeplitz: the least error; blocks: starts afresh every b steps, for large models"
    )
    entries: tuple[int, ...] | None = Field(
        None, description="the strategy's integers, as the ledger records them; null: optimised for steps"
    )

    @model_validator(mode="after")
    def _is_a_strategy(self) -> Correlated:
        if self.entries is not None:
            strategy_of(self.strategy, self.entries, self.bands)
        return self

    @cached_property
    def matrix(self) -> Strategy:
        """The strategy."""
        if self.entries is not None:
            return strategy_of(self.strategy, self.entries, self.bands)
        return optimised(self.strategy, self.bands, self.steps)

    def complete(self) -> Correlated:
        """Return these options with the integers that they stand for."""
        return self.model_copy(update={"entries": entries_of(self.matrix)})

    def stands_for(self, completed: NoiseMechanism) -> bool:
        """Return whether options that are complete are these, optimised here or elsewhere.

        The last bit of an entry may depend on the libraries. Whatever the entries are, their sensitivity is exact.
        """
        if self.entries is not None or not isinstance(completed, Correlated):
            return completed == self.complete()
        return completed.entries is not None and completed.model_copy(update={"entries": None}) == self

    @property
    def separation(self) -> int:
        """One group in b takes part in a step."""
        return self.bands

    @property
    def restarts(self) -> bool:
        """The noise may start afresh at any step."""
        return True

    @property
    def spread(self) -> float:
        """Noise that is taken back later is larger at first."""
        return self.matrix.spread

    def drawn_std(self, std: float) -> float:
        """Return the standard deviation of xi, rounded up."""
        return float(np.nextafter(std * self.matrix.norm, np.inf)) if std else 0.0

    @property
    def description(self) -> str:
        """The noise, in words."""
        return (
            f"Gaussian, correlated over steps by a {self.strategy} strategy with {self.bands} bands; users come in "
            f"{self.bands} groups by a hash of their name, one group in each step"
        )

    def start(self, theta: Tensor) -> NoiseState:  # noqa: ARG002 - the state does not grow with the model
        """Return a state without keys."""
        return _with_keys([])

    def add_(
        self,
        total: Tensor,
        *,
        stds: Sequence[float],
        partition: Partition,
        rng: Randomness,
        state: NoiseState,
    ) -> NoiseState:
        """Add the noise of the next step to integers; return the keys up to this step."""
        import torch  # noqa: PLC0415 - reading a preset stays fast

        keys = [*_keys_of(state), rng.bytes(_KEY_BYTES)]
        draws = _Draws(self, list(stds), list(partition.tensor_sizes), secure=isinstance(rng, SecureRandomness))
        keeps = self.kept_vectors(total.numel())
        known = state.kept if len(state.kept) == min(len(keys), self.bands) - 1 else None
        missing = 1 if known is not None else max(min(len(keys), keeps), 1)
        found = [torch.empty(total.numel(), dtype=torch.int64) for _ in range(missing)]
        for first in range(0, total.numel(), _PIECE):
            place = slice(first, min(first + _PIECE, total.numel()))
            earlier = None if known is None else [one.numpy()[place] for one in known]
            recent = draws.recent(keys, first, place.stop - first, earlier)
            for vector, noise in zip(found, recent, strict=False):
                vector.numpy()[place] = noise
        total.add_(found[0].to(total.device))
        if len(keys) == self.matrix.window:
            return _with_keys([])
        return _with_keys(keys, (*found, *(known or ()))[:keeps])

    def kept_vectors(self, parameters: int) -> int:
        """Return how many steps' noise is kept in memory: what the next step needs, unless that is too much."""
        return self.bands - 1 if 8 * parameters * (self.bands - 1) <= _MOST_KEPT else 0

    def participation_prob(self, sampling_prob: float) -> float:
        """Return b q, the probability that a user takes part when it is the turn of its group."""
        turn = self.bands * sampling_prob
        if turn > 1 + 1e-12:
            raise PrivacyError(
                f"Groups are too small: of {self.bands} groups one takes part in a step, and b q = {turn:.3g} > 1. "
                "Lower privacy.noise.bands or participation.cohort_size."
            )
        return min(turn, 1.0)

    def spent(self, z: float, sampling_prob: float, adjacency: Adjacency, releases: int) -> Counts:
        """Return one event for each time that the same group has its turn: ceil(n / b)."""
        if adjacency == REPLACE:
            raise PrivacyError("Correlated noise protects against adding or removing a user. Use cyclic cohorts.")
        return {Event(z, self.participation_prob(sampling_prob), adjacency): -(-releases // self.bands)}


class _Draws:
    """Draws by key: the independent xi, and the noise that follows from them."""

    def __init__(self, noise: Correlated, stds: list[float], sizes: list[int], *, secure: bool) -> None:
        self._matrix, self._secure = noise.matrix, secure
        self._ranges = ranges_by_std([noise.drawn_std(std) for std in stds], sizes)

    def recent(self, keys: list[bytes], first: int, size: int, earlier: list[Integers] | None) -> list[Integers]:
        """Return the noise of the last key's step and of those before, the latest first.

        `earlier` is that of the steps before, if it is known. Otherwise all draws are repeated.
        """
        found = list(earlier or ())
        for place in range(len(keys) - 1 if earlier is not None else 0, len(keys)):
            diagonal, *lags = self._matrix.row(place)
            fresh = self._xi(keys[place], first, size)
            for lag, before in zip(lags, found, strict=False):  # with one band there are no lags
                if lag:
                    fresh -= lag * before
            found = [rounded_quotient(fresh, diagonal), *found][: max(self._matrix.bands - 1, 1)]
        return found

    def _xi(self, key: bytes, first: int, size: int) -> Integers:
        piece = first // _PIECE
        rng = KeyedRandomness(key, piece) if self._secure else stream(int.from_bytes(key), "noise", piece)
        drawn = np.zeros(size, np.int64)
        for begin, end, std in self._ranges:
            low, high = max(begin, first) - first, min(end, first + size) - first
            if low < high and std:
                drawn[low:high] = Gaussian().draw(std, high - low, rng)
        return drawn


def rounded_quotient(integers: Integers, divisor: int) -> Integers:
    """Return integers / divisor, rounded to the nearest integer, a half upward: exact, (n d + i) / d is n + i / d."""
    return (integers + (divisor >> 1)) // divisor


def _with_keys(keys: list[bytes], kept: tuple[Tensor, ...] = ()) -> NoiseState:
    import torch  # noqa: PLC0415 - reading a preset stays fast

    octets = (
        torch.frombuffer(bytearray(b"".join(keys)), dtype=torch.uint8) if keys else torch.zeros(0, dtype=torch.uint8)
    )
    return NoiseState({_KEYS: octets.reshape(-1, _KEY_BYTES)}, kept)


def _keys_of(state: NoiseState) -> list[bytes]:
    return [bytes(key.cpu().numpy()) for key in state.vectors[_KEYS]]
