"""The noise of one release: how it is cut into parts, and that it is complete, used once, and used in its own step.

Independent noise (`IndependentNoise`) is cut into pieces of 2^18 coordinates. Every piece has a random stream of its
own, named by step, attempt and piece, so its bits do not depend on who draws it, and processes can share the pieces
(`federated/noise_drawing.py`). Any other noise is one part, drawn as a whole.

Guarantees:
- `DrawnNoise` holds noise for every coordinate: it cannot be made without. Where noise is 0, nothing is drawn.
- It is added to one sum, once, and only to that of the step that it was drawn for.
- A second draw for a step, its next attempt, has other streams.
"""

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sottovoce.errors import PrivacyError
from sottovoce.memory import parts
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.noise import IndependentNoise, NoiseMechanism, NoiseState
from sottovoce.privacy.noise.base import ranges_by_std

PIECE = 1 << 18  # coordinates of one random stream


@dataclass(frozen=True)
class NoiseRequest:
    """Everything that determines the noise of one release."""

    mechanism: Mechanism
    seed: int
    t: int
    state: NoiseState  # before the release
    attempt: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  # of the state's vectors

    @cached_property
    def size(self) -> int:
        """The number of coordinates to draw: all, or none where there is no noise."""
        return sum(self.mechanism.summed.tensor_sizes) if any(self.mechanism.noise_stds) else 0

    def cuts(self, processes: int) -> list[int]:
        """Return where to cut the vector, so that process r draws from cut r to cut r + 1.

        Everyone draws as many pieces, or one more than the leader. Noise that is not independent is all the leader's.
        """
        if not isinstance(self.mechanism.privacy.noise, IndependentNoise):
            return [0] + [self.size] * processes
        pieces = -(-self.size // PIECE)
        return [min(PIECE * (pieces * process // processes), self.size) for process in range(processes + 1)]

    def draw(self, start: int, stop: int, room: int) -> "Generator[None, None, NoisePart]":
        """Draw the noise from one cut to another, piece by piece, at the beginning of a vector of size `room`."""
        noise = self.mechanism.privacy.noise
        if not isinstance(noise, IndependentNoise):
            return self._draw_whole(noise) if start < stop else self._nothing(room)
        part = self._nothing(room)
        for first in range(start, stop, PIECE):
            piece = part.vector.numpy()[part.drawn : part.drawn + min(PIECE, stop - first)]
            self._draw_piece(noise, first, piece)
            part.drawn += len(piece)
            yield
        return part

    def _nothing(self, room: int) -> "NoisePart":
        return NoisePart(torch.empty(room, dtype=torch.int64), self.state)

    def _draw_whole(self, noise: NoiseMechanism) -> "NoisePart":
        vector = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        stds, partition = self.mechanism.noise_stds, self.mechanism.summed
        rng = self.mechanism.randomness(self.seed, "noise", self.t, self.attempt)
        next_state = noise.add_(vector, stds=stds, partition=partition, rng=rng, state=self.state)
        return NoisePart(vector, next_state, drawn=self.size)

    def _draw_piece(self, noise: IndependentNoise, first: int, out: npt.NDArray[np.int64]) -> None:
        rng = self.mechanism.randomness(self.seed, "noise", self.t, self.attempt, first // PIECE)
        for begin, end, std in self._runs:
            low, high = max(begin, first) - first, min(end, first + len(out)) - first
            if low < high:
                out[low:high] = noise.draw(std, high - low, rng) if std else 0

    @cached_property
    def _runs(self) -> list[tuple[int, int, float]]:
        return ranges_by_std(self.mechanism.noise_stds, self.mechanism.summed.tensor_sizes)


@dataclass
class NoisePart:
    """Noise of some coordinates, and the state of the noise after the release."""

    vector: Tensor  # it may have room for more
    next_state: NoiseState
    drawn: int = 0  # coordinates


class DrawnNoise:
    """The complete noise of one release, to be added once."""

    def __init__(self, request: NoiseRequest, whole: NoisePart) -> None:
        """Take noise for every coordinate; raise PrivacyError where some is missing."""
        if not request.size == whole.drawn == whole.vector.numel():
            raise PrivacyError(f"Noise was drawn for {whole.drawn} of {request.size} coordinates. Nothing is released.")
        self.request = request
        self.next_state = whole.next_state
        self._vector = whole.vector
        self._used = False

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that the noise was drawn for."""
        return self.request.mechanism

    def add_to_(self, total: Tensor, t: int) -> None:
        """Add the noise to the integer sum of step t; raise PrivacyError if it was used before or is another step's."""
        if t != self.request.t:
            raise PrivacyError(f"Step {t} cannot use the noise of step {self.request.t}. Draw noise for every step.")
        if self._used:
            raise PrivacyError(f"The noise of step {t} was used before. Draw noise for every release.")
        self._used = True
        self._add_(total, 1)

    def take_back_(self, total: Tensor) -> "DrawnNoise":
        """Subtract the noise from the sum it was added to; return noise of the next attempt, drawn by this process."""
        self._add_(total, -1)
        self._vector = torch.empty(0, dtype=torch.int64)
        return draw_noise(replace(self.request, attempt=self.request.attempt + 1))

    def start_afresh_(self, total: Tensor) -> "DrawnNoise":
        """Subtract the noise from the sum it was added to; return noise without a memory of the steps before."""
        state = self.mechanism.privacy.noise.start(self._vector)
        self._add_(total, -1)
        return draw_noise(replace(self.request, state=state))

    def _add_(self, total: Tensor, sign: int) -> None:
        if not self.request.size:
            return
        for part, noise in parts(total, self._vector):
            part.add_(noise.to(total.device), alpha=sign)

    def average_norms(self) -> Tensor | None:
        """Return the norms, by layer, of what the noise adds to the average; None where there is no noise."""
        return self.mechanism.average_norms(self._vector) if self.request.size else None


def draw_noise(request: NoiseRequest) -> DrawnNoise:
    """Draw the whole noise of a release in this process."""
    work = request.draw(0, request.size, request.size)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return DrawnNoise(request, end.value)
