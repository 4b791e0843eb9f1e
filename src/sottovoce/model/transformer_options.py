"""The options of the transformer, apart from torch."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sottovoce.model.encoder_options import StackOptions

if TYPE_CHECKING:
    from sottovoce.model.encoder import Encoder


class TransformerOptions(StackOptions):
    """The paper's encoder."""

    kind: Literal["transformer"] = "transformer"
    mlp_width: int = Field(3072, ge=1, le=262_144, description="inner width of the MLP")
    norm: Literal["pre", "post"] = Field("pre", description="LayerNorm before (pre) or after (post) each sublayer")

    def make(self, tokens: int) -> "Encoder":
        """Return a transformer."""
        from sottovoce.model.transformer import Transformer  # noqa: PLC0415 - reading a preset stays fast

        return Transformer(self, tokens)
