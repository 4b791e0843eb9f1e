"""The shape of the recogniser, apart from the recogniser itself, so that reading a preset does not load torch."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ModelOptions(BaseModel):
    """The shape of the recogniser."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    blocks: int = Field(36, ge=1, description="transformer blocks")
    width: int = Field(768, ge=2, description="width of the transformer")
    heads: int = Field(4, ge=1, description="attention heads")
    mlp_width: int = Field(3072, ge=1, description="inner width of the MLP")
    dropout: float = Field(0.3, ge=0, lt=1, description="on the conv output, attention probabilities and after ReLU")
    layer_drop: float = Field(0.3, ge=0, lt=1, description="probability that a block is skipped for a batch")
    norm: Literal["pre", "post"] = Field("pre", description="LayerNorm before (pre) or after (post) each sublayer")
    norm_scale: float = Field(
        1.0,
        gt=0,
        description="LayerNorm scales of blocks at the start; matrices behind them start 1/norm_scale times as large: "
        "the same function, but the smaller it is, the more LayerNorms dominate gradients (norm pre only)",
    )

    @model_validator(mode="after")
    def _scale_goes_with_pre(self) -> "ModelOptions":
        if self.norm_scale != 1 and self.norm != "pre":
            raise ValueError("Expected norm_scale=1 with norm=post: no matrix takes the scale back there.")
        return self

    @model_validator(mode="after")
    def _heads_divide(self) -> "ModelOptions":
        if self.width % self.heads:
            raise ValueError(f"Expected width={self.width} to be a multiple of heads={self.heads}.")
        return self
