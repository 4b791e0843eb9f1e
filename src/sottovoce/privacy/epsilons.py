"""Epsilon of one run or claim by both accountants, and which of the two to quote."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Epsilons:
    """Epsilon by RDP and by PLD. Both are upper bounds; None where there is no guarantee or it was not computed."""

    rdp: float | None = None
    pld: float | None = None

    @property
    def tightest(self) -> float | None:
        """The smaller one of those that are known; None where neither is."""
        return min((epsilon for epsilon in (self.rdp, self.pld) if epsilon is not None), default=None)
