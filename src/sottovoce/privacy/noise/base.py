"""The interface of a noise mechanism: options, a state, integer noise on an integer sum, and what releases cost.

A noise mechanism is a frozen set of options under `privacy.noise`, chosen by its name. Like the optimizers it works on
tensors that it is given and does not load torch when a preset is read.

- `start` makes the state that the noise carries from one release to the next. Independent noise has none.
- `add_` draws the noise of one release and adds it to integers, in place. It returns the next state and leaves the
  given one alone: a release may have to be drawn again.
- `spent` says what a number of releases costs. For independent noise that is the same event many times; noise that is
  correlated over releases may be one event for the whole run.

The leading process draws such noise alone. `IndependentNoise`, which only draws numbers of a given standard deviation,
is shared among all processes. Both happen in a thread while users train, so all randomness must come from `rng`:
torch's own generators belong to the training.

The state is secret: whoever knows it may subtract the noise. It is stored apart from the model, in a file that only its
owner can read. What can be computed from it may be kept in memory beside it, and is never stored.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from sottovoce.model.partition import Partition
    from sottovoce.privacy.accounting import Adjacency, Counts
    from sottovoce.randomness import Randomness


@dataclass(frozen=True)
class NoiseState:
    """The memory of a noise mechanism from one release to the next: named vectors. Empty for independent noise."""

    vectors: Mapping[str, Tensor] = field(default_factory=dict)
    kept: Sequence[Tensor] = ()  # what would take long to compute from the vectors again; it is in memory only


class NoiseMechanism(BaseModel):
    """The options of one noise mechanism."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str

    def start(self, theta: Tensor) -> NoiseState:  # noqa: ARG002 - for mechanisms with a state
        """Return the state before the first release; `theta` has the size and the device."""
        return NoiseState()

    def complete(self) -> NoiseMechanism:
        """Return the options with everything that is computed from them and decides on the noise, for the ledger."""
        return self

    def stands_for(self, completed: NoiseMechanism) -> bool:
        """Return whether options that are complete may be what these stand for."""
        return completed == self.complete()

    @property
    def separation(self) -> int:
        """The steps from one participation of a user to the next, at least, that `spent` assumes."""
        return 1

    def participation_prob(self, sampling_prob: float) -> float:
        """Return the probability that a user takes part in a step in which it may; `sampling_prob` is S / K."""
        return sampling_prob

    @property
    def restarts(self) -> bool:
        """Whether noise with a memory may forget it at any step, for one more event like that of a first release."""
        return False

    @property
    def spread(self) -> float:
        """The largest standard deviation of the noise of one release, over the one that counts for privacy."""
        return 1.0

    def drawn_std(self, std: float) -> float:
        """Return the standard deviation of the numbers that are drawn; `std` is the one that counts for privacy."""
        return std

    def kept_vectors(self, parameters: int) -> int:  # noqa: ARG002 - for mechanisms that keep some
        """Return how many vectors of this many integers are kept in memory beside the state."""
        return 0

    @property
    def description(self) -> str:
        """The noise, in words, for the privacy statement."""
        return self.name.capitalize()

    @abstractmethod
    def add_(
        self,
        total: Tensor,
        *,
        stds: Sequence[float],
        partition: Partition,
        rng: Randomness,
        state: NoiseState,
    ) -> NoiseState:
        """Add the noise of one release to a vector of integers; return the state after it.

        `stds` has the standard deviation for every tensor of the partition, in units of the sum.
        """

    @abstractmethod
    def spent(self, z: float, sampling_prob: float, adjacency: Adjacency, releases: int) -> Counts:
        """Return the events that this many releases amount to; `z` is the noise multiplier of one release alone."""


def ranges_by_std(stds: Sequence[float], sizes: Sequence[int]) -> list[tuple[int, int, float]]:
    """Return ranges of neighbouring tensors with the same standard deviation: where they begin and end, and the std."""
    ranges, end = [], 0
    for std, members in itertools.groupby(zip(stds, sizes, strict=True), key=lambda tensor: tensor[0]):
        begin, end = end, end + sum(size for _, size in members)
        ranges.append((begin, end, std))
    return ranges


_CHUNK = 1 << 18  # coordinates drawn at a time: memory does not grow with the model


class IndependentNoise(NoiseMechanism):
    """Noise without a state, drawn for every coordinate on its own, so that any process can draw any part of it."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a subclass with a state or a sum of its own: `draw` alone decides on independent noise."""
        super().__init_subclass__(**options)
        if not vars(cls).keys().isdisjoint({"start", "add_"}):
            raise TypeError(f"{cls.__name__} is not independent noise. Derive it from NoiseMechanism.")

    @abstractmethod
    def draw(self, std: float, size: int, rng: Randomness) -> npt.NDArray[np.int64]:
        """Return the noise of `size` coordinates whose standard deviation is `std`, more than 0."""

    @final
    def add_(
        self,
        total: Tensor,
        *,
        stds: Sequence[float],
        partition: Partition,
        rng: Randomness,
        state: NoiseState,
    ) -> NoiseState:
        """Add noise tensor by tensor, each with its own standard deviation: for mechanisms that build on this one."""
        import torch  # noqa: PLC0415 - reading a preset stays fast

        for part, std in zip(torch.split(total, list(partition.tensor_sizes)), stds, strict=True):
            for chunk in torch.split(part, _CHUNK) if std else ():
                chunk.add_(torch.from_numpy(self.draw(std, chunk.numel(), rng)).to(total.device))
        return state
