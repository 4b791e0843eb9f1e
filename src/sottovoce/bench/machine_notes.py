"""Where the rows of a table were trained: bits, and with them error rates, differ a little between types of machine."""

from collections.abc import Iterable

from sottovoce.bench.results import RowResult
from sottovoce.runs.machine import Machine, machines_of


def machines_of_row(result: RowResult) -> list[Machine]:
    """Return the types of machine that the runs of a row were trained on."""
    return list(dict.fromkeys(machine for folder in result.folders for machine in machines_of(folder)))


def machine_notes(results: Iterable[RowResult]) -> list[str]:
    """Return which rows were trained on which type of machine, where they are not all of one type."""
    rows: dict[str, list[str]] = {}
    for result in results:
        for machine in machines_of_row(result):
            rows.setdefault(str(machine), []).append(result.row.name)
    if len(rows) < 2:
        return []
    first = "Rows come from different machines, so small differences between them may be due to rounding."
    return [first, *(f"Trained on {machine}: {', '.join(names)}" for machine, names in rows.items())]
