"""Groups of runs: the seeds of one row of a benchmark form a group; every other run is a group of its own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sottovoce.reports.drawing.charts import LegendEntry
from sottovoce.reports.reading.records import RunRecord, SetName

COLOURS = (
    *("#3f7fd4", "#d8752a", "#2f9e73", "#c04f86", "#8b72d6", "#a58512", "#3e9fb5", "#9c6650"),
    *("#7b8087", "#cf4b43", "#6f8f1f", "#5a62c4"),
)
"""Colours of groups, readable on a white and on a black page."""

MOST_DETAILED = 6
"""The largest number of groups in figures that show every layer or every speaker."""


@dataclass(frozen=True)
class RunGroup:
    """Runs that the page shows together, under one name and in one colour."""

    name: str  # no other group of the page has the same
    runs: tuple[RunRecord, ...]
    colour: str
    row: str = ""  # its name within its benchmark; the same as `name` for other runs

    @property
    def counted(self) -> tuple[RunRecord, ...]:
        """The runs that enter means: the finished ones, or all of them where none is finished."""
        return tuple(run for run in self.runs if run.finished) or self.runs

    @property
    def first(self) -> RunRecord:
        """The run that represents the group where only one can be shown."""
        return self.counted[0]

    @property
    def kind(self) -> Literal["central", "federated"]:
        """How the runs were trained."""
        return self.first.kind

    @property
    def bench(self) -> str | None:
        """The benchmark and size that the row is of; None for other runs."""
        return self.first.bench

    def wers(self, set_name: SetName) -> list[float]:
        """Return the WERs of the counted runs; runs without an evaluation are left out."""
        return [wer for run in self.counted if (wer := run.wer(set_name)) is not None]


def group_runs(records: Sequence[RunRecord]) -> list[RunGroup]:
    """Return the groups in the order of their first runs, those of one benchmark together."""
    members: dict[tuple[str, ...], list[RunRecord]] = {}
    benches = list(dict.fromkeys(record.bench for record in records))
    for record in sorted(records, key=lambda record: benches.index(record.bench)):
        members.setdefault(_group_key(record), []).append(record)
    rows = [_row_name(runs[0]) if len(runs) > 1 else runs[0].name for runs in members.values()]
    return [
        RunGroup(
            row if rows.count(row) == 1 else f"{row} ({', '.join(key[:2])})",
            tuple(runs),
            COLOURS[index % len(COLOURS)],
            row if runs[0].row is None else runs[0].row.row if len(runs) > 1 else runs[0].row.label,
        )
        for index, (row, (key, runs)) in enumerate(zip(rows, members.items(), strict=True))
    ]


def benches_of(groups: Iterable[RunGroup]) -> list[str | None]:
    """Return the benchmarks of a page, each with its size; None stands for runs of no benchmark."""
    return list(dict.fromkeys(group.bench for group in groups))


def sets_of(groups: Iterable[RunGroup], set_name: SetName) -> list[str]:
    """Return the different sets of speech that the groups were evaluated on, as hashes."""
    return list(dict.fromkeys(found for group in groups if (found := group.first.evaluated_on(set_name)) is not None))


def headline_set(groups: Sequence[RunGroup]) -> SetName:
    """Return the set whose WER stands for the groups: test, where all have it."""
    return "test" if all(group.wers("test") for group in groups) else "dev"


def _group_key(record: RunRecord) -> tuple[str, ...]:
    """Return what the runs of a group have in common: benchmark, size and row, or else the folder."""
    row = record.row
    return (str(record.path),) if row is None else (row.bench, row.size, row.row)


def _row_name(record: RunRecord) -> str:
    return record.name if record.row is None else record.row.row


def all_runs(groups: Iterable[RunGroup]) -> list[RunRecord]:
    """Return the runs of all groups, in the order of the page."""
    return [run for group in groups for run in group.runs]


def legend(groups: Iterable[RunGroup]) -> list[LegendEntry]:
    """Return the legend of the groups' colours; empty for a single group."""
    entries = [LegendEntry(group.name, group.colour) for group in groups]
    return entries if len(entries) > 1 else []


def detailed(groups: Sequence[RunGroup], kind: Literal["central", "federated"] = "federated") -> list[RunGroup]:
    """Return the groups of a kind that figures show in detail: at most MOST_DETAILED."""
    return [group for group in groups if group.kind == kind][:MOST_DETAILED]
