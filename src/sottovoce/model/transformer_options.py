"""The options of the transformer, apart from torch."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from sottovoce.model.encoder_options import StackOptions

if TYPE_CHECKING:
    from sottovoce.model.encoder import Encoder


class TransformerOptions(StackOptions):
    """The paper's encoder."""

    shapeless = StackOptions.shapeless | {"norm_scale"}

    kind: Literal["transformer"] = "transformer"
    mlp_width: int = Field(3072, ge=1, description="inner width of the MLP")
    norm: Literal["pre", "post"] = Field("pre", description="LayerNorm before (pre) or after (post) each sublayer")
    norm_scale: float = Field(
        1.0,
        gt=0,
        description="LayerNorm scales of blocks at the start; matrices behind them start 1/norm_scale times as large: "
        "the same function, but the smaller it is, the more LayerNorms dominate gradients (norm pre only)",
    )

    @model_validator(mode="after")
    def _scale_goes_with_pre(self) -> "TransformerOptions":
        if self.norm_scale != 1 and self.norm != "pre":
            raise ValueError("Expected norm_scale=1 with norm=post: no matrix takes the scale back there")
        return self

    def make(self, tokens: int) -> "Encoder":
        """Return a transformer."""
        from sottovoce.model.transformer import Transformer  # noqa: PLC0415 - reading a preset stays fast

        return Transformer(self, tokens)
