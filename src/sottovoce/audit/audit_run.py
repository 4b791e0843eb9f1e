"""The audited run: a federated training whose users are canaries, each in the population by a fair coin.

It is `train_federated` and nothing else: the cohort, the clipping, the weights, the integer sum, the noise, the release
and the ledger are those of every run. Two things differ, at the seams that any backend has. The clients are canaries
(`CanaryClient`), and whoever receives the released averages looks at them (`AuditingAggregator.broadcast_`).
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor

from sottovoce.audit.canaries import CanaryClient, Directions, DirectionScores
from sottovoce.config import Resolved
from sottovoce.distributed import Group
from sottovoce.federated.aggregator import AggregatorContext
from sottovoce.federated.federated_training import train_federated
from sottovoce.federated.process_aggregator import ProcessAggregator
from sottovoce.files import written_whole
from sottovoce.runs.display import MakeDisplay

@dataclass(frozen=True)
class AuditingAggregators:
    """Makes the aggregator of every process of the audited run; the leading process writes the odds at the end."""

    canaries: int
    steps: int
    out: Path

    def __call__(self, context: AggregatorContext) -> "AuditingAggregator":
        """Return the aggregator of one process."""
        mechanism, client = context.mechanism, context.client
        directions = Directions.draw(mechanism.partition, self.canaries, client.seed)
        canaries = CanaryClient(
            client.store, client.batching, client.local, client.augment, client.seed, directions,
            clip_norm=float(mechanism.privacy.clip_norm or 0.0),
        )  # fmt: skip
        return AuditingAggregator(
            context.group, context.population, context.recogniser, canaries, mechanism, context.stop,
            scores=DirectionScores(directions, mechanism), steps=self.steps, out=self.out,
        )  # fmt: skip


@dataclass
class AuditingAggregator(ProcessAggregator):
    """The aggregator of every simulation, except that it looks at what is released."""

    scores: DirectionScores = field(kw_only=True)
    steps: int = field(kw_only=True)
    out: Path = field(kw_only=True)
    seen: int = field(default=0, init=False)

    def broadcast_(self, vector: Tensor) -> Tensor:
        """Replace a vector by the leader's released average; the leader takes it into account."""
        average = super().broadcast_(vector)
        if self.leads:
            self.scores.see(average)
            self.seen += 1
            if self.seen == self.steps:
                with written_whole(self.out) as file:
                    np.save(file, np.stack([self.scores.odds, self.scores.reach]))
        return average


def audited_run(
    group: Group, settings: Resolved, run: Path, canaries: int, kind: str, out: Path, make_display: MakeDisplay
) -> None:
    """Carry out the audited run in one process of a group; `settings` name the speakers that the coins let in."""
    steps = settings.config.federated.central_steps
    train_federated(group, settings, run, make_display, make_aggregator=AuditingAggregators(canaries, steps, out))
