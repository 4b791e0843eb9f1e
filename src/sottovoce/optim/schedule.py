"""Learning rates over time: constant, step-wise or exponential decay, with a linear warmup before."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Schedule(BaseModel):
    """A learning rate for every step t = 0, 1, ...

    constant: lr. step: lr * rate^(1 + floor((t - begin) / every)) from `begin` on. exponential: the continuous
    lr * rate^((t - begin) / every) from `begin` on. In the first `warmup` steps that is multiplied by (t + 1) / warmup.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lr: float = Field(0.5, gt=0, description="the learning rate at the start")
    decay: Literal["constant", "step", "exponential"] = Field("constant", description="how it falls")
    begin: int = Field(0, ge=0, description="the step at which it starts to fall")
    rate: float = Field(0.5, gt=0, le=1, description="the factor it falls by in `every` steps")
    every: int = Field(50_000, ge=1, description="the steps in which it falls by `rate`")
    warmup: int = Field(0, ge=0, description="steps of linear warmup; 0: none")

    def at(self, t: int) -> float:
        """Return the learning rate of step t."""
        lr = self.lr
        if self.decay != "constant" and t >= self.begin:
            passed = (t - self.begin) / self.every
            lr *= self.rate ** (1 + int(passed) if self.decay == "step" else passed)
        return lr * min(1.0, (t + 1) / self.warmup) if self.warmup else lr
