"""Where the rows of a table were trained: bits, and with them error rates, differ a little between types of machine.

Central rows also differ with the number of processes, and rows that start from two trainings of one seed model by that.
"""

from collections.abc import Iterable
from typing import TypeVar

from sottovoce.bench.results import RowResult

_NAMED = 12  # characters of a hash

_Key = TypeVar("_Key")


def machine_notes(results: Iterable[RowResult]) -> list[str]:
    """Return which rows were trained where and from which seed models, as far as that makes them differ by rounding."""
    types: dict[str, list[str]] = {}
    processes: dict[int, list[str]] = {}
    bases: dict[str, dict[str, list[str]]] = {}
    unknown: list[str] = []
    for result in results:
        if any(not run.machines for run in result.runs):
            unknown.append(result.row.name)
        for machine in result.machines:
            _add(types, str(machine), result.row.name)
            if machine.processes is not None:
                _add(processes, machine.processes, result.row.name)
        for base in filter(None, (run.started_from for run in result.runs)):
            _add(bases.setdefault(base.key, {}), base.sha256, result.row.name)
    notes: list[str] = []
    if unknown:
        notes.append(f"On which type of machine these rows were trained was not recorded: {'; '.join(unknown)}.")
    if len(types) > 1:
        notes.append("Rows come from different machines, so small differences between them may be due to rounding.")
        notes += [f"Trained on {machine}: {'; '.join(names)}" for machine, names in types.items()]
    if len(processes) > 1:
        notes.append("Central rows had different numbers of processes, which changes their rounding.")
        notes += [f"Processes: {count}: {'; '.join(names)}" for count, names in sorted(processes.items())]
    for key, rows in bases.items():
        if len(rows) > 1:
            notes.append(f"Rows start from different trainings of the seed model {key}, so they compare less well.")
            notes += [f"From the model {digest[:_NAMED]}: {'; '.join(names)}" for digest, names in rows.items()]
    return notes


def _add(rows: dict[_Key, list[str]], key: _Key, name: str) -> None:
    names = rows.setdefault(key, [])
    if name not in names:
        names.append(name)
