"""The epsilons of a run and of the claims that extrapolate from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sottovoce.privacy.epsilons import Epsilons


def read_epsilons(document: Mapping[str, Any]) -> Epsilons | None:
    """Return the epsilons that a document states under `epsilon_rdp` and `epsilon_pld`; None without a guarantee."""
    rdp, pld = document.get("epsilon_rdp"), document.get("epsilon_pld")
    return None if rdp is None else Epsilons(float(rdp), None if pld is None else float(pld))


@dataclass(frozen=True)
class ExtrapolatedClaim:
    """The epsilon of a run's noise at another cohort size and population, where no model was trained."""

    cohort_size: float | None
    population: float | None
    central_steps: float | None
    epsilons: Epsilons | None

    @property
    def tightest_epsilon(self) -> float | None:
        """The smallest known upper bound on the claimed epsilon; None without a guarantee."""
        return None if self.epsilons is None else self.epsilons.tightest


def read_claim(document: Mapping[str, Any]) -> ExtrapolatedClaim:
    """Return a claim as row.json states it."""
    return ExtrapolatedClaim(
        cohort_size=document.get("cohort_size"),
        population=document.get("population"),
        central_steps=document.get("central_steps"),
        epsilons=read_epsilons(document),
    )
