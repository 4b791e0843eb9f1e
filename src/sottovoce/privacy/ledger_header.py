"""The header of a ledger: the mechanism, what is protected, what the accounting needs. Written and read only here."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sottovoce.errors import PrivacyError
from sottovoce.privacy.acceptance import Acceptance
from sottovoce.privacy.accounting import Adjacency, Spent
from sottovoce.privacy.ledger_lines import read_line
from sottovoce.privacy.mechanism import Mechanism, plain_mechanism
from sottovoce.privacy.noise import AnyNoise, Gaussian
from sottovoce.privacy.privacy_options import ClippingName, RuleName, Sampling
from sottovoce.version import VERSION

FORMAT = "sottovoce-ledger-1"
SECURE = "secure"
SIMULATION = "seeded: a simulation"


class LedgerHeader(BaseModel):
    """The first line of a ledger. The order of the fields is the order in the file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ledger: str = FORMAT
    guarantee: str  # "epsilon", or "none: " and the reason
    unit: str
    adjacency: Adjacency | None  # None without a guarantee
    target_delta: float = Field(gt=0, lt=1)
    population: int
    cohort_size: float
    sampling: Sampling
    sampling_prob: float
    weight: str
    weight_bound: float
    divisor: float
    q_min: float | None
    clip_norm: float | None
    clipping: ClippingName
    rule: RuleName
    clip_norms: tuple[float, ...] | None
    sigma_dp: float
    sensitivity: float
    z: float
    noise: str  # SECURE or SIMULATION
    sampler_epsilon: float | None
    seed_model: str
    code: str = f"sottovoce {VERSION}"
    config: str  # a hash of the configuration
    noise_mechanism: AnyNoise = Gaussian()  # left out of the file where it is the Gaussian
    accepted: tuple[Acceptance, ...] = ()  # what the operator stated; left out of the file where it is nothing

    @classmethod
    def of(cls, mechanism: Mechanism, *, unit: str, seed_model: str, config_hash: str) -> "LedgerHeader":
        """Describe a mechanism, and what its releases protect."""
        privacy, participation = mechanism.privacy, mechanism.participation
        guaranteed = privacy.void is None
        return cls(
            guarantee="epsilon" if guaranteed else f"none: {privacy.void}",
            unit=f"all audio of one {unit}",
            adjacency=mechanism.adjacency if guaranteed else None,
            target_delta=privacy.target_delta,
            population=mechanism.population,
            cohort_size=mechanism.cohort_size,
            sampling=participation.sampling,
            sampling_prob=mechanism.sampling_prob,
            weight=participation.weight,
            weight_bound=participation.weight_bound,
            divisor=mechanism.divisor,
            q_min=participation.q_min,
            clip_norm=privacy.clip_norm,
            clipping=privacy.clipping,
            rule=privacy.rule,
            clip_norms=mechanism.clip_norms,
            sigma_dp=privacy.sigma_dp,
            sensitivity=mechanism.sensitivity,
            z=mechanism.z,
            noise=SECURE if mechanism.source == "secure" else SIMULATION,
            sampler_epsilon=mechanism.sampler_epsilon if guaranteed else None,
            seed_model=seed_model,
            config=config_hash,
            noise_mechanism=privacy.noise,
            accepted=privacy.accept,
        )

    @classmethod
    def read(cls, line: Mapping[str, Any], path: Path) -> "LedgerHeader":
        """Read the first line of a ledger."""
        if line.get("ledger") != FORMAT:
            raise PrivacyError(f"{path} is not a ledger of the form {FORMAT}.")
        return read_line(cls, line, f"{path}: the header")

    def line(self) -> dict[str, Any]:
        """Return the header as it is written."""
        written = self.model_dump(mode="json")
        if self.noise_mechanism == Gaussian():
            del written["noise_mechanism"]
        if not self.accepted:
            del written["accepted"]
        return written

    @property
    def guaranteed(self) -> bool:
        """Whether there is an epsilon at all."""
        return self.adjacency is not None

    @property
    def simulated(self) -> bool:
        """Whether cohorts and noise came from a seed."""
        return self.noise != SECURE

    def spent(self, releases: int) -> Spent:
        """Return what this many releases cost; raise where there is no guarantee."""
        if self.adjacency is None:
            raise PrivacyError(f"There is no epsilon: {self.guarantee.removeprefix('none: ')}.")
        events = self.noise_mechanism.spent(self.z, self.sampling_prob, self.adjacency, releases)
        return Spent(events, releases * (self.sampler_epsilon or 0.0))

    def at(self, cohort_size: float, population: int, what: str) -> Mechanism:
        """Return the same noise with another cohort size and population; `what` names the run in errors."""
        if self.weight != "one" or self.q_min is not None:
            raise PrivacyError(f"{what} weighs its users: a claim at other sizes needs their weights too.")
        if self.simulated:
            return plain_mechanism(self.sigma_dp, cohort_size, population, self.sampling, noise=self.noise_mechanism)
        return plain_mechanism(
            self.sigma_dp,
            cohort_size,
            population,
            self.sampling,
            noise=self.noise_mechanism,
            source="secure",
            parameters=self._parameters(),
        )

    def _parameters(self) -> int:
        """Return the number of parameters of a secure run: its `sampler_epsilon` is that of one, as often."""
        one = plain_mechanism(self.sigma_dp, self.cohort_size, self.population, self.sampling, source="secure")
        return max(math.ceil((self.sampler_epsilon or 0.0) / one.sampler_epsilon * (1 - 1e-12)), 1)
