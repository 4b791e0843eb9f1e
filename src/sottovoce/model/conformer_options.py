"""The options of the conformer, apart from torch."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from sottovoce.model.encoder_options import StackOptions

if TYPE_CHECKING:
    from sottovoce.model.encoder import Encoder


class ConformerOptions(StackOptions):
    """A conformer: attention and convolution between two half-step MLPs (Gulati et al. 2020)."""

    kind: Literal["conformer"] = "conformer"
    blocks: int = Field(16, ge=1, le=1000, description="the number of blocks")
    width: int = Field(256, ge=2, le=65_536, description="the width of the blocks")
    mlp_width: int = Field(1024, ge=1, le=262_144, description="inner width of each of the two MLPs of a block")
    kernel: int = Field(15, ge=1, le=10_001, description="outputs that the convolution of a block sees, an odd number")

    @field_validator("kernel")
    @classmethod
    def _kernel_is_odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError("expected an odd number, so that the convolution is centred")
        return kernel

    def make(self, tokens: int) -> "Encoder":
        """Return a conformer."""
        from sottovoce.model.conformer import Conformer  # noqa: PLC0415 - reading a preset stays fast

        return Conformer(self, tokens)
