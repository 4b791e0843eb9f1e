"""Epsilon of one run or claim by both accountants, and which of the two to quote."""

from dataclasses import dataclass

PROTECTS_NOBODY = 50.0  # a larger epsilon is no protection
NOBODY_PROTECTED = "An epsilon this large protects nobody: the noise is too small for so few users."


@dataclass(frozen=True)
class Epsilons:
    """Epsilon by RDP and by PLD. Both are upper bounds; None where there is no guarantee or it was not computed."""

    rdp: float | None = None
    pld: float | None = None

    @property
    def tightest(self) -> float | None:
        """The smaller one of those that are known; None where neither is."""
        return min((epsilon for epsilon in (self.rdp, self.pld) if epsilon is not None), default=None)

    @property
    def protects_nobody(self) -> bool:
        """Whether the tightest bound is too large to protect anyone; False where neither bound is known."""
        return self.tightest is not None and self.tightest > PROTECTS_NOBODY
