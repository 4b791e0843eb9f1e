"""Who contributed in each step of a deployed run, and the same run as a simulation that is told so.

    RUN/contributions.jsonl   a line per attempt at a step: who was asked, who contributed, who was refused and why

The file names users, so it is private to the operator. Where a step was repeated after a kill, its last line counts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sottovoce.errors import DataError
from sottovoce.federated.aggregator import AggregatorContext, Collected, MakeAggregator, Users
from sottovoce.federated.diagnostics import Figures
from sottovoce.federated.process_aggregator import ProcessAggregator
from sottovoce.files import open_private
from sottovoce.reading import BadDocument, parse_json, read_bounded

CONTRIBUTIONS_FILE = "contributions.jsonl"


@dataclass(frozen=True)
class Contributions:
    """The answers to one step."""

    step: int
    contributed: tuple[str, ...]
    refused: Mapping[str, str]  # by user, with the reason
    silent: tuple[str, ...]  # offline, too late, or gone
    received: int = 0  # bytes of the updates that contributed

    @property
    def bytes_per_update(self) -> int | None:
        """The mean size of an update on the wire; None where nobody contributed, or an earlier version wrote this."""
        return round(self.received / len(self.contributed)) if self.received and self.contributed else None

    def append_to(self, run: Path) -> None:
        """Add the line of this step to a run's file, in place of a last line that a kill has cut."""
        path = run / CONTRIBUTIONS_FILE
        whole = read_bounded(path).rfind(b"\n") + 1 if path.exists() else 0
        line: dict[str, Any] = {
            "step": self.step,
            "contributed": list(self.contributed),
            "refused": dict(self.refused),
            "silent": list(self.silent),
            "received": self.received,
        }
        with open_private(path, "ab") as file:
            file.truncate(whole)
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def read_contributions(run: Path) -> dict[int, Contributions]:
    """Return the last answers to every step, by step; a last line that a kill has cut is left out."""
    path = run / CONTRIBUTIONS_FILE
    found: dict[int, Contributions] = {}
    lines = read_bounded(path).split(b"\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            document = parse_json(line)
            answers = Contributions(
                int(document["step"]),
                tuple(document["contributed"]),
                dict(document["refused"]),
                tuple(document["silent"]),
                int(document.get("received", 0)),
            )
        except (BadDocument, KeyError, TypeError, ValueError):
            raise DataError(f"{path}: line {number} is damaged. Restore it from a copy.") from None
        found[answers.step] = answers
    return found


@dataclass
class ToldContributors(ProcessAggregator):
    """A simulation whose cohorts are those that contributed in a deployed run, whoever is drawn."""

    told: Mapping[int, Sequence[str]] | None = None

    def collect(self, t: int, theta: Tensor, cohort: Users, figures: Figures) -> Collected:
        """Train the users who contributed in step t of the deployment."""
        if self.told is None or t not in self.told:
            raise DataError(f"Nobody has said who contributed in step {t}. Simulate the steps that were deployed.")
        numbers = {name: number for number, name in enumerate(self.population.keys())}
        cohort = np.array(sorted(numbers[name] for name in self.told[t]), dtype=np.int64)
        return super().collect(t, theta, cohort, figures)


def told_by(run: Path) -> MakeAggregator:
    """Return what makes the aggregator of a simulation of a deployed run, for `sv.train_federated`."""
    told = {step: answers.contributed for step, answers in read_contributions(run).items()}

    def make(context: AggregatorContext) -> ToldContributors:
        return ToldContributors(
            *(context.group, context.population, context.recogniser, context.client, context.mechanism, context.stop),
            told=told,
        )

    return make
