"""Epsilon of a number of releases, computed twice: by Renyi DP (RDP, `renyi.py`) and, tightly, by PLD (`tight.py`).

Guarantees: every epsilon is an upper bound, in floating point too. An epsilon that cannot be computed is refused.
`events.py` has what a release is, and the pairs of distributions that it stands for.
"""

import math
import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.events import ADD_OR_REMOVE, REPLACE, Adjacency, Counts, Event, Spent
from sottovoce.privacy.renyi import ORDERS, PAPER_ORDERS, Floats, Rdp, moments, rdp
from sottovoce.privacy.target_delta import delta_caution, require_delta
from sottovoce.privacy.tight import Pld, delta_at, pld

__all__ = [
    "ADD_OR_REMOVE",
    "ORDERS",
    "PAPER_ORDERS",
    "REPLACE",
    "Accounted",
    "Adjacency",
    "Counts",
    "Event",
    "Floats",
    "Pld",
    "Rdp",
    "Spent",
    "account_for",
    "delta_at",
    "delta_caution",
    "moments",
    "pld",
    "rdp",
    "require_delta",
    "rounded_up",
    "short_exponents",
    "short_number",
]


@dataclass(frozen=True)
class Accounted:
    """Epsilon by both accountants."""

    rdp: Rdp
    pld: Pld

    @property
    def epsilons(self) -> Epsilons:
        """The two numbers alone."""
        return Epsilons(self.rdp.epsilon, self.pld.epsilon)


def account_for(spent: Spent | Counts, target_delta: float) -> Accounted:
    """Return epsilon at the target delta, by RDP and by PLD."""
    return Accounted(rdp(spent, target_delta), pld(spent, target_delta))


def rounded_up(epsilon: float, digits: int = 3) -> str:
    """Return an epsilon as people read it, never smaller than it is."""
    if epsilon == 0 or not math.isfinite(epsilon):
        return f"{epsilon:g}"
    exponent = math.floor(math.log10(abs(epsilon))) - digits + 1
    # 6.29 is a little more than 6.29 in binary, which is not worth another hundredth.
    scaled = Decimal(epsilon * (1 - 1e-12)).scaleb(-exponent).to_integral_value(ROUND_CEILING)
    return f"{float(scaled.scaleb(exponent)):.{digits}g}"


def short_exponents(text: str) -> str:
    """Return a text with the exponents of its numbers as people write them: 3e-6 for 3e-06, 2.67e5 for 2.67e+05."""
    return re.sub(r"(?<=\d)e([+-])0*(?=\d)", lambda found: "e-" if found[1] == "-" else "e", text)


def short_number(value: float, digits: int = 6) -> str:
    """Return a number with this many significant digits and a short exponent: 0.00123, 12.3, 3e-6."""
    return short_exponents(f"{value:.{digits}g}")
