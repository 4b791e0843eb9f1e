"""The aggregator: who has the users of a cohort train, and adds up their clipped deltas.

The engine knows nothing else of transport. In a simulation the aggregator is a group of processes that share the cohort
(`process_aggregator.py`); in a deployment it is a server that real clients send their integers to.

Guarantees that every aggregator must give:
- the sum consists of clipped integers only, each user at most once in a step; a user that fails or lies adds zero;
- only the leader ever holds the sum; nobody but the leader's release function sees it before it has its noise;
- the sum does not depend on the order in which users finish: integers make that easy.

An aggregator of your own needs no change of the package: give `sv.train_federated` a function that makes it from an
`AggregatorContext`.

The noise is drawn while `collect` runs. The leader draws it, unless the aggregator says which processes share the work
(`SharesNoise`). Where clip bounds adapt, the aggregator is told those of every step (`FollowsBounds`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sottovoce.data.population import Population
from sottovoce.distributed import Group
from sottovoce.federated.client import Client
from sottovoce.federated.diagnostics import Figures
from sottovoce.model.recogniser import Recogniser
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.runs.stop import Stop

Users = npt.NDArray[np.int64]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Collected:
    """The work of one cohort."""

    # The integer sum of weighted, clipped deltas, in `Mechanism.units`, and of counts where bounds adapt
    # (`Mechanism.summed`). On the leader only.
    total: Tensor
    weight: int  # of the whole cohort, in units of `Mechanism.weight_unit`
    # Whether to stop after this step (`Stop.decide`: a signal arrived, or time is up). None: the aggregator did not ask
    # the processes, so the training does.
    stopping: bool | None = None


class Aggregator(Protocol):
    """Carries out the users' part of a central step."""

    @property
    def leads(self) -> bool:
        """Whether this process holds the sum, releases it and writes files."""

    def collect(self, t: int, theta: Tensor, cohort: Users, figures: Figures) -> Collected:
        """Have every user of the cohort train from theta; return the sum of their clipped deltas.

        Figures about the users are added to `figures`. They are private.
        """

    def from_leader(self, item: Item) -> Item:
        """Return the leader's item on every process."""

    def broadcast_(self, vector: Tensor) -> Tensor:
        """Replace a vector by the leader's, on every process, and return it."""


@runtime_checkable
class SharesNoise(Protocol):
    """An aggregator whose processes draw the noise together. Without this, the leader draws all of it, in a thread."""

    @property
    def noise_group(self) -> Group:
        """The processes. All of them take part in every step, and the group's leader is the aggregator's."""


@runtime_checkable
class FollowsBounds(Protocol):
    """An aggregator that can be told new clip bounds. Without this, bounds cannot adapt."""

    def follow(self, mechanism: Mechanism) -> None:
        """Use this mechanism, with the bounds of the next step, until told otherwise."""


@dataclass(frozen=True)
class AggregatorContext:
    """What a run gives to whoever makes its aggregator."""

    group: Group  # the processes of the run
    population: Population  # the users of a simulation
    recogniser: Recogniser  # the model that clients train
    client: Client
    mechanism: Mechanism
    stop: Stop


MakeAggregator = Callable[[AggregatorContext], Aggregator]
