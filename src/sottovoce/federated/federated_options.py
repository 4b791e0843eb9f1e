"""The options of federated learning, apart from torch."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from sottovoce.federated.local_rules import AnyLocalRule, LocalSgd
from sottovoce.model.adapter_options import Adapters
from sottovoce.model.roles import Trainable
from sottovoce.optim import AnyOptimizer, Averaging, Lamb, Optimizer, Schedule, Sgd
from sottovoce.optim.base import require_no_correction


class Local(BaseModel):
    """Local training of a user in one central step, with a constant learning rate and started afresh each time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lr: float = Field(0.2, gt=0, allow_inf_nan=False, description="local_lr, the learning rate")
    steps: int | None = Field(None, ge=1, le=1_000_000_000, description="T_loc, local steps; null: by epochs")
    epochs: int | None = Field(None, ge=1, le=1_000_000, description="E, passes over the user's audio; null: by steps")
    gradient_clip: float | None = Field(1.0, gt=0, description="largest norm of a local gradient; null: no clipping")
    rule: AnyLocalRule = Field(default_factory=LocalSgd, description="the local rule, which corrects the gradient")
    optimizer: AnyOptimizer = Field(
        default_factory=Sgd, description="the local optimizer, which moves the user's model; its state is never kept"
    )

    @model_validator(mode="after")
    def _steps_or_epochs(self) -> "Local":
        if self.steps is not None and self.epochs is not None:
            raise ValueError("Expected steps or epochs, not both; set the other to null")
        return self

    @field_validator("optimizer")
    @classmethod
    def _without_noise(cls, optimizer: Optimizer) -> Optimizer:
        require_no_correction(optimizer)
        return optimizer

    @property
    def plain_sgd(self) -> bool:
        """Whether a local step moves the model by exactly lr times the clipped gradient."""
        return isinstance(self.optimizer, Sgd) and self.optimizer.momentum == 0

    @property
    def passes(self) -> int:
        """The number of epochs, where local work is counted in epochs; 10 by default, as in the paper."""
        return 10 if self.epochs is None else self.epochs

    @property
    def described(self) -> str:
        """The local work of a user in one central step, in words."""
        if self.steps is not None:
            return f"{self.steps} local step{'s' * (self.steps != 1)}"
        given = "" if self.epochs is not None else ", the default where neither steps nor epochs are set"
        return f"{self.passes} local epoch{'s' * (self.passes != 1)} (passes over all their audio{given})"


def _as_names(value: Any) -> Trainable:
    """Accept `all`, a name and a list of names."""
    if value == "all":
        return "all"
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError("expected all, or a list of names such as [ln, output]")
    return tuple(names)


class Federated(BaseModel):
    """How the central model is trained on users. The defaults are the paper's for Common Voice from a seed model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    local: Local = Field(default_factory=Local)
    optimizer: AnyOptimizer = Field(default_factory=Lamb, description="the server optimizer")
    schedule: Schedule = Field(
        default_factory=lambda: Schedule(lr=0.002, decay="exponential", begin=750, rate=0.6, every=750),
        description="the central learning rate over time",
    )
    averaging: Averaging | None = Field(
        None,
        description="average the last models; the average is evaluated and saved. null: the model of the last step",
    )
    partition: Literal["tensor", "block", "kind"] = Field(
        "tensor", description="the layers of clipping and trust ratios"
    )
    trainable: Annotated[Trainable, BeforeValidator(_as_names)] = Field(
        "all",
        description="the parameters that train: all, or a list of groups, kinds and blocks such as [ln, output]; with "
        "adapters, what trains besides: [] is nothing",
    )
    adapters: Adapters = Field(default_factory=Adapters, description="low-rank adapters that train besides")
    central_steps: int = Field(2000, ge=1, le=100_000_000, description="T, the number of central steps")
    evaluate_every: int = Field(100, ge=1, description="central steps between evaluations on dev")
    checkpoint_every: int = Field(10, ge=1, description="central steps between checkpoints")
    patience: int | None = Field(
        None, ge=1, description="evaluations on a public dev set without a lower WER that end training; null: none"
    )
