"""Every (epsilon, delta) that the paper prints, with ours beside it: at the paper's orders, dense RDP, and PLD."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sottovoce.files import read_packaged_table
from sottovoce.privacy.accounting import PAPER_ORDERS, Event, Pld, Rdp, pld, rdp
from sottovoce.processes import Progress, no_progress

TARGET_DELTA = 1e-9
# For these rows of the paper the two lowest orders were left out.
_FEWER_ORDERS = (1.8e-6, 0.625e-6)


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """One row of a table of the paper; `line` is its line in the paper's source."""

    table: str
    line: int
    language: str
    sigma_dp: float
    z: float
    cohort_size: int
    population: int
    central_steps: int
    epsilon: float
    order: float
    note: str

    @property
    def event(self) -> Event:
        """One release."""
        return Event(self.z, self.cohort_size / self.population)

    @property
    def orders(self) -> tuple[float, ...]:
        """The orders that the paper used."""
        return PAPER_ORDERS[2:] if self.sigma_dp in _FEWER_ORDERS else PAPER_ORDERS

    def agrees(self, found: Rdp) -> bool:
        """Return whether the printed epsilon is ours, to two digits, rounded up or to the nearest, at its order."""
        unit = 10.0 ** (math.floor(math.log10(found.epsilon)) - 1)
        printed = (round(found.epsilon / unit) * unit, math.ceil(found.epsilon / unit) * unit)
        return found.order == self.order and any(math.isclose(self.epsilon, one, rel_tol=1e-9) for one in printed)


@dataclass(frozen=True)
class Compared:
    """A row of the paper and what we find."""

    row: PaperRow
    at_paper_orders: Rdp
    rdp: Rdp
    pld: Pld


def paper_rows() -> list[PaperRow]:
    """Return all rows."""
    return read_packaged_table(PaperRow, "privacy/paper.csv")


def compare(rows: list[PaperRow], progress: Progress = no_progress) -> Iterator[Compared]:
    """Yield every row with ours beside it; what several rows share is computed once."""
    known: dict[tuple[Event, int], tuple[Rdp, Pld]] = {}
    for number, row in enumerate(rows, 1):
        key = (row.event, row.central_steps)
        spent = {row.event: row.central_steps}
        if key not in known:
            known[key] = (rdp(spent, TARGET_DELTA), pld(spent, TARGET_DELTA))
        yield Compared(row, rdp(spent, TARGET_DELTA, row.orders), *known[key])
        progress("rows", number, len(rows))
