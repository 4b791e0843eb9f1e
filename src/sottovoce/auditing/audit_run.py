"""The audited run: a federated training whose users are canaries, each in the population by a fair coin.

It is `train_federated` and nothing else: the cohort, the clipping, the weights, the integer sum, the noise, the release
and the ledger are those of every run. Two things differ, at the seams that any backend has. Clients may be canaries
that send what they like (`CanaryClient`), and whoever receives the released averages looks at them
(`AuditingAggregator`).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import Tensor

from sottovoce.auditing.audit_settings import CanaryKind
from sottovoce.auditing.canaries import CanaryClient, DirectionEvidence, Directions
from sottovoce.auditing.one_run import Floats
from sottovoce.auditing.speaker_canaries import SpeakerEvidence
from sottovoce.config import Resolved
from sottovoce.distributed import Group
from sottovoce.federated.aggregator import AggregatorContext, Collected, Users
from sottovoce.federated.diagnostics import Figures
from sottovoce.federated.federated_training import train_federated
from sottovoce.federated.process_aggregator import ProcessAggregator
from sottovoce.files import written_whole
from sottovoce.runs.display import MakeDisplay


class Evidence(Protocol):
    """What an attacker makes of the releases."""

    @property
    def odds(self) -> Floats:
        """A number for every canary, higher where it is more likely to be in the population."""

    @property
    def reach(self) -> Floats:
        """The norm of every canary's clipped delta, in units of C."""

    def begin(self, t: int, theta: Tensor) -> None:
        """Note the model that the users of central step t start from."""

    def see(self, average: Tensor) -> None:
        """Take one released average into account."""


@dataclass(frozen=True)
class AuditingAggregators:
    """Makes the aggregator of every process of the audited run; the leading process writes the odds at the end."""

    canaries: int
    kind: CanaryKind
    steps: int
    out: Path

    def __call__(self, context: AggregatorContext) -> "AuditingAggregator":
        """Return the aggregator of one process."""
        client, mechanism = context.client, context.mechanism
        evidence: Evidence
        if self.kind == "speakers":
            evidence = SpeakerEvidence(client, context.recogniser, mechanism)
        else:
            directions = Directions.draw(mechanism.partition, self.canaries, client.seed)
            client = CanaryClient.of(client, directions, mechanism)
            evidence = DirectionEvidence(directions, mechanism)
        return AuditingAggregator(
            context.group,
            context.population,
            context.recogniser,
            client,
            mechanism,
            context.stop,
            evidence=evidence,
            steps=self.steps,
            out=self.out,
        )


@dataclass
class AuditingAggregator(ProcessAggregator):
    """The aggregator of every simulation, except that it looks at what is released."""

    evidence: Evidence = field(kw_only=True)
    steps: int = field(kw_only=True)
    out: Path = field(kw_only=True)
    seen: int = field(default=0, init=False)

    def collect(self, t: int, theta: Tensor, cohort: Users, figures: Figures) -> Collected:
        """Do as every simulation does; the leader notes the model first."""
        if self.leads:
            self.evidence.begin(t, theta)
        return super().collect(t, theta, cohort, figures)

    def broadcast_(self, vector: Tensor) -> Tensor:
        """Replace a vector by the leader's released average, which the leader takes into account."""
        average = super().broadcast_(vector)
        if self.leads:
            self.evidence.see(average)
            self.seen += 1
            if self.seen == self.steps:
                with written_whole(self.out) as file:
                    np.save(file, np.stack([self.evidence.odds, self.evidence.reach]))
        return average


def audited_run(
    group: Group,
    settings: Resolved,
    run: Path,
    canaries: int,
    kind: CanaryKind,
    out: Path,
    make_display: MakeDisplay,
) -> None:
    """Carry out the audited run in one process of a group; `settings` name the speakers that the coins let in."""
    steps = settings.config.federated.central_steps
    train_federated(group, settings, run, make_display, make_aggregator=AuditingAggregators(canaries, kind, steps, out))
