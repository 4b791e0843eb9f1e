"""The options of participation and privacy, apart from torch, so that reading a preset stays fast."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sottovoce.privacy.acceptance import Acceptance
from sottovoce.privacy.adaptive import AdaptiveClipping
from sottovoce.privacy.events import ADD_OR_REMOVE, REPLACE, ZERO_OUT, Adjacency
from sottovoce.privacy.noise import AnyNoise, Gaussian

Sampling = Literal["poisson", "cyclic", "fixed", "everyone"]
ClippingName = Literal["none", "global", "uniform", "dim", "root", "weighted", "adaptive", "adaptive_global"]
RuleName = Literal["clip", "normalize"]
SourceName = Literal["seeded", "secure"]
LayerWeight = Annotated[float, Field(ge=1e-6, le=1e6)]


class Participation(BaseModel):
    """Who takes part in a central step, and how much each counts. All of it is public: you state it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    population: int | None = Field(None, ge=1, description="K, the public number of users")
    cohort_size: float = Field(1024, gt=0, allow_inf_nan=False, description="S, the expected number of users in a step")
    sampling: Sampling = Field(
        "poisson",
        description="poisson: each user with probability S/K; cyclic: the same, but b groups of users take turns, for "
        "correlated noise; fixed: S users; everyone: all in every step",
    )
    cap: int | None = Field(
        None,
        ge=1,
        description="the most users in a step: a larger Poisson cohort is cut to a random part; null: no limit",
    )
    all_or_nothing: bool = Field(
        False,
        description="a step with too few users adds nothing, as with secure aggregation; the guarantee is then that of "
        "a user's updates against zeros",
    )
    weight: Literal["one", "utterances", "seconds"] = Field("one", description="what a user counts by")
    weight_bound: float = Field(1.0, ge=1e-12, le=1e12, description="the most that a user counts")
    weight_total: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="W, the public total of weights; null: K where all weights are one"
    )
    q_min: float | None = Field(
        None, gt=0, le=1, description="divide by max(q_min W, the cohort's weight) instead of q W (biased)"
    )

    @model_validator(mode="after")
    def _weights_have_a_total(self) -> "Participation":
        if self.weight == "one":
            if self.weight_bound != 1.0 or self.weight_total is not None:
                raise ValueError("Expected no weight_bound and no weight_total where weight is one")
        elif self.weight_total is None:
            raise ValueError(f"Expected weight_total, a public number, where weight is {self.weight}")
        if self.cohort_size < 1:
            raise ValueError(
                f"Expected cohort_size={self.cohort_size:g} >= 1: with less than one user in a step delta alone may "
                "cover all audio of a user, and epsilon says nothing"
            )
        if self.population is not None and self.sampling != "everyone" and self.cohort_size > self.population:
            default = "" if "cohort_size" in self.model_fields_set else " (the default)"
            raise ValueError(
                f"Expected cohort_size={self.cohort_size:g}{default} <= population={self.population}. Set both "
                "participation.population and participation.cohort_size"
            )
        if self.sampling == "fixed" and self.cohort_size != int(self.cohort_size):
            raise ValueError(f"Expected a whole cohort_size where sampling is fixed, not {self.cohort_size:g}")
        if self.sampling == "fixed" and self.all_or_nothing:
            raise ValueError("Expected Poisson sampling where a step may add nothing: no guarantee is known for both")
        if self.cap is not None and (self.sampling != "poisson" or self.cap <= self.cohort_size):
            raise ValueError(
                f"Expected cap={self.cap} > cohort_size={self.cohort_size:g} and Poisson sampling: other cohorts have "
                "a size already, and a cap at the mean cuts half of them"
            )
        return self

    @property
    def adjacency(self) -> Adjacency:
        """Which change of the population a guarantee covers.

        Where too few users lose the whole sum, one user more or less may decide that, and move the sum by far more than
        one update. Only the content of the user's updates is protected then, not whether the user takes part.
        """
        if self.all_or_nothing:
            return ZERO_OUT
        return REPLACE if self.sampling == "fixed" else ADD_OR_REMOVE


class NoiseAnalysis(BaseModel):
    """Noise that differs between parameter groups: for the paper's figures only. It voids the guarantee."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str = Field(description="a group, kind or block of the encoder, such as mlp, ln1 or blocks.0")
    inside: float = Field(1.0, ge=0, le=1e3, description="factor of the noise on the group")
    outside: float = Field(1.0, ge=0, le=1e3, description="factor of the noise on everything else")


class Budget(BaseModel):
    """How much all runs on the same users may spend; a run stops before the step that would spend more."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epsilon: float = Field(gt=0, allow_inf_nan=False, description="the largest epsilon, by RDP")
    target_delta: float | None = Field(None, gt=0, lt=1, description="at this delta; null: privacy.target_delta")


class RandomSource(BaseModel):
    """Where the randomness of cohorts and noise comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: SourceName = Field(
        "seeded", description="seeded repeats, for simulation; secure: the operating system's generator, for deployment"
    )


class Privacy(BaseModel):
    """Clipping, which bounds one user's influence, and noise, which hides it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clip_norm: float | None = Field(None, ge=1e-30, le=1e30, description="C, the bound on a user's delta")
    clipping: ClippingName = Field(
        "none",
        description="none, global to C, or layer by layer with sum C_h^2 = C^2: uniform, dim, root, weighted; adaptive "
        "(layer by layer) and adaptive_global: bounds that begin with C and follow a quantile of users' norms",
    )
    adaptive: AdaptiveClipping = Field(default_factory=AdaptiveClipping, description="options of adaptive clipping")
    rule: RuleName = Field("clip", description="clip: the paper's; normalize: every layer to C_h once |delta| >= C")
    layer_weights: dict[str, LayerWeight] = Field(
        default_factory=dict,
        description="a_h of `weighted`: the weight of layers that consist of a group, such as mlp; 1 for all others",
    )
    sigma_dp: float = Field(
        0.0, ge=0, le=1e6, description="std of the noise on the average, in units of C; 0: no noise"
    )
    noise: AnyNoise = Field(default_factory=Gaussian, description="the noise mechanism")
    target_delta: float = Field(1e-9, gt=0, lt=1, description="delta of the (epsilon, delta) claim")
    budget: Budget | None = Field(
        None, description="stops the run before the step that would spend more, with all runs on the same users"
    )
    ledger: Path | None = Field(
        None, description="the folder of the ledger that all runs on the same users share; null: beside the store"
    )
    noise_analysis: NoiseAnalysis | None = Field(None, description="other noise on a parameter group: voids the claim")
    accept: tuple[Acceptance, ...] = Field(
        (), description="what you state where the code cannot know, recorded in the ledger; errors name the statements"
    )
    diagnostics: bool | None = Field(
        None,
        description="log and show figures that are computed from private data; null: only where randomness is seeded",
    )

    @model_validator(mode="after")
    def _bounds_have_a_norm(self) -> "Privacy":
        if self.clip_norm is None and (self.clipping != "none" or self.sigma_dp > 0):
            raise ValueError("Expected privacy.clip_norm: clipping and noise are measured in it. Give it with --set")
        if self.noise_analysis is not None and self.sigma_dp == 0:
            raise ValueError("Expected sigma_dp > 0 where noise_analysis is given")
        if self.adapts and self.rule != "clip":
            raise ValueError(f"Expected rule=clip where clipping={self.clipping}")
        return self

    @property
    def adapts(self) -> bool:
        """Whether clip bounds follow users' norms."""
        return self.clipping in ("adaptive", "adaptive_global")

    @property
    def clips_whole(self) -> bool:
        """Whether one bound holds for the whole delta."""
        return self.clipping in ("global", "adaptive_global")

    def diagnosed(self, source: SourceName) -> bool:
        """Return whether private figures are logged and shown: as configured, or else in simulations only."""
        return source == "seeded" if self.diagnostics is None else self.diagnostics

    @property
    def void(self) -> str | None:
        """Why no guarantee holds, in one line; None where one does."""
        if self.sigma_dp == 0:
            return "there is no noise (privacy.sigma_dp=0)"
        if self.clipping == "none":
            return "deltas are not clipped (privacy.clipping=none)"
        if self.noise_analysis is not None:
            return "noise differs between parameter groups (privacy.noise_analysis)"
        return None
