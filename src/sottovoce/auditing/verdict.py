"""An audit: a claim, what one run with canaries proves against it, and the verdict.

    claim    the tight epsilon that the audited run's own ledger leads to
    bound    the least epsilon, at the same delta, that agrees with the guesses at the given confidence

The claim is refuted where the guesses have a probability below 1 - confidence under the claim's whole trade-off curve,
which is where the bound is above the claim. So a correct mechanism is refuted in at most 5 of 100 audits; how seldom it
really is, docs/audit.md says.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sottovoce.auditing.claimed_curve import epsilon_of, floor_of, refuted_noise, with_noise
from sottovoce.auditing.one_run import Floor, Guesses, binomial_epsilon, exceeds_curve
from sottovoce.privacy.accounting import Spent

PROVES = "A bound above the claim proves a fault. A bound below it proves nothing about what these canaries cannot see."


@dataclass(frozen=True)
class Audit:
    """What the canaries of one run prove."""

    spent: Spent  # what the run charged
    target_delta: float
    canaries: int
    present: int  # how many the coins let in
    guesses: tuple[Guesses, ...]
    confidence: float
    reach: float  # the median canary's clipped norm, in units of C
    kind: str
    mechanism: dict[str, Any]  # as the ledger describes it
    releases: int
    seed: int

    @cached_property
    def claim(self) -> float:
        """The tight epsilon of the audited run."""
        return epsilon_of(self.spent, self.target_delta)

    @cached_property
    def refuted(self) -> bool:
        """Whether the guesses contradict the claim."""
        return self._refutes(floor_of(self.spent))

    @cached_property
    def bound(self) -> float:
        """The lower bound on epsilon for a mechanism of this kind, of whatever noise."""
        factor = refuted_noise(self.spent, self._refutes)
        return 0.0 if factor is None else epsilon_of(with_noise(self.spent, factor), self.target_delta)

    @cached_property
    def bound_of_any_mechanism(self) -> float:
        """The lower bound on epsilon that assumes nothing about the mechanism (Steinke et al. 2023)."""
        return binomial_epsilon(self.guesses, self.canaries, self.target_delta, 1 - self.confidence)

    @property
    def best_guesses(self) -> Guesses:
        """The guesses that prove most about any mechanism."""
        level = 1 - self.confidence
        return max(self.guesses, key=lambda guess: binomial_epsilon([guess], self.canaries, self.target_delta, level))

    def _refutes(self, floor: Floor) -> bool:
        level = (1 - self.confidence) / len(self.guesses)
        return any(exceeds_curve(guess, self.canaries, floor, level) for guess in self.guesses)

    @property
    def verdict(self) -> str:
        """The outcome in one word or two."""
        return "VIOLATED" if self.refuted else "not refuted"

    def document(self) -> dict[str, Any]:
        """Return everything for a program to read."""
        return {
            "verdict": self.verdict,
            "claim": self.claim,
            "bound": self.bound,
            "bound_of_any_mechanism": self.bound_of_any_mechanism,
            "target_delta": self.target_delta,
            "confidence": self.confidence,
            "kind": self.kind,
            "canaries": self.canaries,
            "present": self.present,
            "reach": self.reach,
            "guesses": [{"made": guess.made, "correct": guess.correct} for guess in self.guesses],
            "releases": self.releases,
            "seed": self.seed,
            "mechanism": self.mechanism,
            "proves": PROVES,
        }
