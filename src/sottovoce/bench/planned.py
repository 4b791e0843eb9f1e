"""Choosing runs of a plan, whether or not their data are prepared: some rows with the models that they start from."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sottovoce.errors import ConfigError


class Planned(Protocol):
    """A run of a plan, whether or not its data are prepared."""

    @property
    def name(self) -> str:
        """The row's name."""

    @property
    def seed(self) -> int:
        """Its seed."""

    @property
    def key(self) -> str:
        """What it is known by in the plan."""

    @property
    def content_key(self) -> str | None:
        """What it is known by everywhere; None until its data are prepared."""

    @property
    def base(self) -> "Planned | None":
        """The run of its seed model."""

    @property
    def shown(self) -> bool:
        """Whether it is a row that was asked for, not only a model that others start from."""


AnyPlanned = TypeVar("AnyPlanned", bound=Planned)


def lineage(run: Planned) -> set[str]:
    """Return the keys of a run and of the models that it starts from."""
    keys, base = {run.key}, run.base
    while base is not None:
        keys.add(base.key)
        base = base.base
    return keys


def needed_for(runs: Sequence[AnyPlanned], rows: Collection[str]) -> list[AnyPlanned]:
    """Return the runs of a plan that are these rows, by their keys, or models that they start from."""
    wanted = {key for run in runs if run.shown and run.key in rows for key in lineage(run)}
    return [run for run in runs if run.key in wanted]


@dataclass(frozen=True)
class PlanPart:
    """Every nth run of a plan, beginning with one of the first n: --part 3/16."""

    first: int
    step: int

    @classmethod
    def parse(cls, text: str) -> "PlanPart":
        """Read "3/16"."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError(f"Expected --part K/N with K from 1 to N, such as 3/16, not {text!r}.")
        return cls(int(match[1]), int(match[2]))

    def of(self, jobs: Sequence[AnyPlanned]) -> list[AnyPlanned]:
        """Return the runs of this part, with the models that they start from; the same in every process."""
        rows = list(dict.fromkeys(job.key for job in jobs if job.shown))
        return needed_for(jobs, set(rows[self.first - 1 :: self.step]))
