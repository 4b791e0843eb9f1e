"""The options of central training."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sottovoce.optim import AnyOptimizer, Lars, Optimizer, Schedule
from sottovoce.optim.base import require_no_correction


class Central(BaseModel):
    """How a seed model or a central baseline is trained.

    The defaults for optimizer, learning rate and batch are the paper's. Its runs differ in when the rate decays.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    optimizer: AnyOptimizer = Field(default_factory=Lars, description="the optimizer")
    schedule: Schedule = Field(default_factory=Schedule, description="the learning rate over time")
    steps: int = Field(300_000, ge=1, le=1_000_000_000, description="the number of steps")
    max_minutes: float | None = Field(None, gt=0, description="the limit on training time in minutes; null: none")
    gradient_clip: float | None = Field(1.0, gt=0, description="largest norm of the gradient; null: no clipping")
    micro_batch_seconds: float = Field(240.0, gt=0, description="audio in one micro-batch, padding included")
    micro_batches: int = Field(8, ge=1, le=100_000, description="micro-batches in one step; more processes share them")
    evaluate_every: int = Field(1000, ge=1, description="steps between evaluations on dev")
    checkpoint_every: int = Field(1000, ge=1, description="steps between checkpoints")
    patience: int | None = Field(
        None, ge=1, description="evaluations on dev without a lower WER that end training; null: it goes on"
    )
    layer_norms_every: int | None = Field(
        None, ge=1, description="steps between records of gradient norms per layer; null: none"
    )

    @field_validator("optimizer")
    @classmethod
    def _without_noise(cls, optimizer: Optimizer) -> Optimizer:
        require_no_correction(optimizer)
        return optimizer
