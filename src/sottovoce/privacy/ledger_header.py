"""The header of a ledger: the mechanism, what is protected, what the accounting needs. Written and read only here."""

import math
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sottovoce.errors import PrivacyError
from sottovoce.privacy.acceptance import Acceptance
from sottovoce.privacy.accounting import Adjacency, Spent, rdp
from sottovoce.privacy.adaptive import CountNoise
from sottovoce.privacy.charges import Repetitions, cost
from sottovoce.privacy.events import ZERO_OUT
from sottovoce.privacy.ledger_lines import read_line
from sottovoce.privacy.mechanism import Mechanism, plain_mechanism
from sottovoce.privacy.noise import AnyNoise, Gaussian
from sottovoce.privacy.privacy_options import ClippingName, RuleName, Sampling
from sottovoce.version import VERSION

FORMAT = "sottovoce-ledger-2"
EARLIER_FORMAT = "sottovoce-ledger-1"
SECURE = "secure"
UNKNOWN = "unknown"  # what a header that names no seed model says of it
SIMULATION = "seeded: a simulation"


class EarlierRun(BaseModel):
    """A run on the same users whose model this run started from: its releases are part of what this run has spent."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: str  # the hash of its ledger's header
    head: str  # the hash of its ledger's last line when its model was taken
    adjacency: Adjacency
    sampling_prob: float
    z: float
    noise: str
    sampler_epsilon: float | None
    repetitions: dict[int, int]  # see `charges.py`
    truncation_delta: float = Field(0.0, ge=0, le=1)
    noise_mechanism: AnyNoise = Gaussian()

    @property
    def simulated(self) -> bool:
        """Whether cohorts and noise came from a seed."""
        return self.noise != SECURE

    @property
    def releases(self) -> int:
        """The number of its releases."""
        return sum(times * steps for times, steps in self.repetitions.items())

    @property
    def spent(self) -> Spent:
        """What its releases cost."""
        return cost(self, self.repetitions)


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
    parameters: int  # how many numbers a release has: D, and counts where clip bounds adapt
    seed_model: str
    code: str = f"sottovoce {VERSION}"
    config: str  # a hash of the configuration
    noise_mechanism: AnyNoise = Gaussian()  # left out of the file where it is the Gaussian
    accepted: tuple[Acceptance, ...] = ()  # what the operator stated; left out of the file where it is nothing
    earlier: tuple[EarlierRun, ...] = ()  # runs on the same users that the seed model comes from; left out likewise
    population_ledger: str | None = None  # the id of the ledger that all runs on these users share; left out likewise
    planned_steps: int | None = None  # where releases decide when the run ends: all of these count; left out likewise
    cap: int | None = None  # the largest number of users in a step; left out likewise
    truncation_delta: float = Field(0.0, ge=0, le=1)  # what the cap adds to delta with a release; left out likewise
    adaptive: CountNoise | None = None  # where clip bounds adapt: `clip_norms` are the first ones; left out likewise
    run_id: str | None = None  # random: tells secure runs with equal settings apart; copies of a run share it

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        *,
        unit: str,
        seed_model: str,
        config_hash: str,
        earlier: tuple[EarlierRun, ...] = (),
        population_ledger: str | None = None,
        planned_steps: int | None = None,
    ) -> "LedgerHeader":
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
            parameters=sum(mechanism.summed.sizes),
            seed_model=seed_model,
            config=config_hash,
            noise_mechanism=privacy.noise.complete(),
            accepted=privacy.accept,
            earlier=earlier,
            population_ledger=population_ledger,
            planned_steps=planned_steps if guaranteed else None,
            cap=participation.cap,
            truncation_delta=mechanism.truncation_delta if guaranteed else 0.0,
            adaptive=mechanism.count_noise if guaranteed else None,
            run_id=secrets.token_hex(16) if mechanism.source == "secure" else None,
        )

    @classmethod
    def read(cls, line: Mapping[str, Any], path: Path) -> "LedgerHeader":
        """Read the first line of a ledger."""
        if line.get("ledger") == EARLIER_FORMAT:
            raise PrivacyError(f"{path} is of an earlier version, whose ledgers do not name models. Train again.")
        if line.get("ledger") != FORMAT:
            raise PrivacyError(f"{path} is not a ledger of the form {FORMAT}.")
        return read_line(cls, line, f"{path}: the header")

    def line(self) -> dict[str, Any]:
        """Return the header as it is written."""
        written = self.model_dump(mode="json")
        if self.noise_mechanism == Gaussian():
            del written["noise_mechanism"]
        optional = (
            *("accepted", "earlier", "population_ledger", "planned_steps", "cap", "truncation_delta", "adaptive"),
            "run_id",
        )
        empty = [key for key in optional if not written[key]]
        for key in empty:
            del written[key]
        return written

    @property
    def guaranteed(self) -> bool:
        """Whether there is an epsilon at all."""
        return self.adjacency is not None

    @property
    def simulated(self) -> bool:
        """Whether cohorts and noise came from a seed."""
        return self.noise != SECURE

    def own_cost(self, repetitions: Repetitions) -> Spent:
        """Return what this run's own releases cost; raise where there is no guarantee."""
        if self.adjacency is None:
            raise PrivacyError(f"There is no epsilon: {self.guarantee.removeprefix('none: ')}.")
        return cost(self, self.counted(repetitions))

    def counted(self, repetitions: Repetitions) -> Repetitions:
        """Return the releases that count: those made, and where releases decide when the run ends, all planned ones.

        An end that is chosen by looking at releases depends on the users. Only the cost of all steps that might have
        been taken bounds what such a run reveals.
        """
        missing = (self.planned_steps or 0) - sum(repetitions.values())
        return {**repetitions, 1: repetitions.get(1, 0) + missing} if repetitions and missing > 0 else repetitions

    def spent_on(self, repetitions: Repetitions) -> Spent:
        """Return what the run has spent: on its own releases, and on those of the runs its seed model comes from."""
        return sum((run.spent for run in self.earlier), self.own_cost(repetitions))

    def spent(self, releases: int) -> Spent:
        """Return what the run has spent after this many steps, each released once."""
        return self.spent_on({1: releases})

    def epsilon(self, repetitions: Repetitions) -> float | None:
        """Return epsilon after these releases, by RDP; None without a guarantee."""
        return rdp(self.spent_on(repetitions), self.target_delta).epsilon if self.guaranteed else None

    def at(self, cohort_size: float, population: int, what: str) -> Mechanism:
        """Return the same noise with another cohort size and population; `what` names the run in errors.

        Where cohorts have a largest size, it is as many times the cohort size as here.
        """
        if self.weight != "one" or self.q_min is not None:
            raise PrivacyError(f"{what} weighs its users: a claim at other sizes needs their weights too.")
        return plain_mechanism(
            self.sigma_dp,
            cohort_size,
            population,
            self.sampling,
            noise=self.noise_mechanism,
            source="seeded" if self.simulated else "secure",
            parameters=1 if self.simulated else self.parameters,
            cap=None if self.cap is None else math.ceil(self.cap / self.cohort_size * cohort_size),
            all_or_nothing=self.adjacency == ZERO_OUT,
        )
