"""The options of central training."""

from pydantic import BaseModel, ConfigDict, Field

from sottovoce.optim import AnyOptimizer, Lars, Schedule


class Central(BaseModel):
    """How a seed model or a central baseline is trained.

    Optimizer, rate and batch are the paper's; its runs differ in when the rate falls.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    optimizer: AnyOptimizer = Field(default_factory=Lars, description="lars, lamb, adam, adagrad or sgd")
    schedule: Schedule = Field(default_factory=Schedule, description="the learning rate over time")
    steps: int = Field(300_000, ge=1, description="stop after so many steps")
    max_minutes: float | None = Field(None, gt=0, description="stop after so many minutes of training; null: never")
    gradient_clip: float | None = Field(1.0, gt=0, description="largest norm of the gradient; null: no clipping")
    micro_batch_seconds: float = Field(240.0, gt=0, description="audio in one micro-batch, padding included")
    micro_batches: int = Field(8, ge=1, description="micro-batches in one step, shared out over the processes")
    evaluate_every: int = Field(1000, ge=1, description="steps between evaluations on dev")
    checkpoint_every: int = Field(1000, ge=1, description="steps between checkpoints")
    layer_norms_every: int | None = Field(None, ge=1, description="record gradient norms per layer every so many steps")
