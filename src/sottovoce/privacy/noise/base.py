"""The interface of a noise mechanism: options, a state, integer noise on an integer sum, and what releases cost.

A noise mechanism is a frozen set of options under `privacy.noise`, chosen by its name. Like the optimizers it works on
tensors that it is given and does not load torch when a preset is read.

- `start` makes the state that the noise carries from one release to the next. Independent noise has none.
- `add_` draws the noise of one release and adds it to the sum, in place. It returns the next state and leaves the given
  one alone: a release may have to be drawn again.
- `spent` says what a number of releases costs. For independent noise that is the same event many times; noise that is
  correlated over releases may be one event for the whole run.

The state is secret: whoever knows it may subtract the noise. It is stored apart from the model, in a file that only its
owner can read.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from sottovoce.model.flat import Partition
    from sottovoce.privacy.accounting import Adjacency, Counts
    from sottovoce.randomness import Randomness


@dataclass(frozen=True)
class NoiseState:
    """The memory of a noise mechanism from one release to the next: named vectors. Empty for independent noise."""

    vectors: Mapping[str, Tensor] = field(default_factory=dict)


class NoiseMechanism(BaseModel):
    """The options of one noise mechanism."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str

    def start(self, theta: Tensor) -> NoiseState:  # noqa: ARG002 - for mechanisms with a state
        """Return the state before the first release; `theta` has the size and the device."""
        return NoiseState()

    @abstractmethod
    def add_(
        self,
        total: Tensor,
        *,
        stds: Sequence[float],
        partition: Partition,
        rng: Randomness,
        state: NoiseState,
        sign: int = 1,
    ) -> NoiseState:
        """Add the noise of one release to an integer sum; return the state after it.

        `stds` has the standard deviation for every tensor of the partition, in units of the sum. `sign` is -1 to take
        back noise that the same `rng` and `state` have added.
        """

    @abstractmethod
    def spent(self, z: float, sampling_prob: float, adjacency: Adjacency, releases: int) -> Counts:
        """Return the events that this many releases amount to; `z` is the noise multiplier of one release alone."""
