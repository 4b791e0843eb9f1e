"""Runs that belong together: the seeds of one row of a benchmark; every other run stands for itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sottovoce.reports.drawing.charts import Key
from sottovoce.reports.reading.records import Record, Which

# Readable on white and on black.
COLOURS = ("#3f7fd4", "#d8752a", "#2f9e73", "#c04f86", "#8b72d6", "#a58512", "#3e9fb5", "#9c6650")
MOST_DETAILED = 6  # groups that are drawn layer by layer


@dataclass(frozen=True)
class Group:
    """Runs of one row, under one name and one colour."""

    name: str
    runs: tuple[Record, ...]
    colour: str

    @property
    def first(self) -> Record:
        """The run that stands for the others where only one can be shown."""
        return self.counted[0]

    @property
    def kind(self) -> str:
        """How they were trained."""
        return self.first.kind

    def wers(self, which: Which) -> list[float]:
        """Return the WER of every run that has one; of finished runs only, unless none is."""
        return [wer for run in self.counted if (wer := run.wer(which)) is not None]

    @property
    def counted(self) -> tuple[Record, ...]:
        """The runs that a mean is over: those that are finished, unless none is."""
        return tuple(run for run in self.runs if run.finished) or self.runs


def groups_of(records: Sequence[Record]) -> list[Group]:
    """Return the groups in the order of their first runs."""
    found: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        row = record.row
        key = (str(row.get("bench")), str(row.get("size")), str(row["row"])) if row.get("row") else (str(record.path),)
        found.setdefault(key, []).append(record)
    names = [str(runs[0].row["row"]) if len(runs) > 1 else runs[0].name for runs in found.values()]
    places = zip(names, found.items(), strict=True)
    return [
        Group(
            name if names.count(name) == 1 else f"{name} ({', '.join(key[:2])})",
            tuple(runs),
            COLOURS[place % len(COLOURS)],
        )
        for place, (name, (key, runs)) in enumerate(places)
    ]


def group_keys(groups: Iterable[Group]) -> list[Key]:
    """Return what the colours stand for; nothing where there is only one."""
    keys = [Key(group.name, group.colour) for group in groups]
    return keys if len(keys) > 1 else []


def detailed(groups: Sequence[Group], kind: str = "federated") -> list[Group]:
    """Return the groups that are drawn layer by layer."""
    return [group for group in groups if group.kind == kind][:MOST_DETAILED]
