"""Where the rows of a table were trained: bits, and with them error rates, differ a little between types of machine.

Central rows also differ with the number of processes, and rows that start from two trainings of one seed model by that.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from sottovoce.bench.results import RowResult
from sottovoce.runs.documents import RunConfig
from sottovoce.runs.machine import Machine, machines_of

_NAMED = 12  # characters of a hash

_Key = TypeVar("_Key")


def machines_of_row(result: RowResult) -> list[Machine]:
    """Return the types of machine that the runs of a row were trained on."""
    return list(dict.fromkeys(machine for folder in result.folders for machine in machines_of(folder)))


def machine_notes(results: Iterable[RowResult]) -> list[str]:
    """Return which rows were trained where and from which seed models, as far as that makes them differ by rounding."""
    types: dict[str, list[str]] = {}
    processes: dict[int, list[str]] = {}
    bases: dict[str, dict[str, list[str]]] = {}
    for result in results:
        for machine in machines_of_row(result):
            _add(types, str(machine), result.row.name)
            if machine.processes is not None:
                _add(processes, machine.processes, result.row.name)
        for folder in result.folders:
            for place, digest in _seed_model(folder):
                _add(bases.setdefault(place, {}), digest, result.row.name)
    notes: list[str] = []
    if len(types) > 1:
        notes.append("Rows come from different machines, so small differences between them may be due to rounding.")
        notes += [f"Trained on {machine}: {', '.join(names)}" for machine, names in types.items()]
    if len(processes) > 1:
        notes.append("Central rows had different numbers of processes, which changes their rounding.")
        notes += [f"Processes: {count}: {', '.join(names)}" for count, names in sorted(processes.items())]
    for place, rows in bases.items():
        if len(rows) > 1:
            notes.append(f"Rows start from different trainings of the seed model {place}, so they compare less well.")
            notes += [f"From the model {digest[:_NAMED]}: {', '.join(names)}" for digest, names in rows.items()]
    return notes


def _seed_model(folder: Path) -> Sequence[tuple[str, str]]:
    """Return the key and the SHA-256 of the model that a run of a benchmark started from; nothing where it has none."""
    begun = RunConfig.find(folder)
    place, digest = (None, None) if begun is None else (begun.seed_model(folder), begun.data.get("seed_model"))
    return [] if place is None or digest is None else [(place.parent.name, digest)]


def _add(rows: dict[_Key, list[str]], key: _Key, name: str) -> None:
    names = rows.setdefault(key, [])
    if name not in names:
        names.append(name)
