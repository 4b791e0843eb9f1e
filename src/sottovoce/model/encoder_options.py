"""The options of encoders, apart from torch, so that reading a preset stays fast.

A kind of encoder is a subclass of `EncoderOptions` with a `kind` of its own and a method `make`. Defining the subclass
is enough: configurations that name its kind then validate (see `open_union`).
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from sottovoce.model.encoder import Encoder


class EncoderOptions(BaseModel):
    """The options of one kind of encoder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Options that change no parameter's shape or meaning: a seed model may have been trained with other values.
    shapeless: ClassVar[frozenset[str]] = frozenset()

    kind: str = Field(description="the kind of encoder")

    @abstractmethod
    def make(self, tokens: int) -> "Encoder":
        """Return an encoder with these options that scores this many tokens.

        Import torch inside this method, and nowhere else in a file of options.
        """

    def same_shape(self, other: "EncoderOptions") -> bool:
        """Return whether the parameters of one encoder can be loaded into the other."""
        return self._shape() == other._shape()

    def _shape(self) -> dict[str, Any]:
        return self.model_dump(exclude=set(self.shapeless))


class StackOptions(EncoderOptions):
    """The options that encoders made of equal blocks share (`model/stack.py`)."""

    shapeless = frozenset({"dropout", "layer_drop"})

    blocks: int = Field(36, ge=1, description="the number of blocks")
    width: int = Field(768, ge=2, description="the width of the blocks")
    heads: int = Field(4, ge=1, description="attention heads")
    dropout: float = Field(0.3, ge=0, lt=1, description="on the conv output, attention probabilities and inside MLPs")
    layer_drop: float = Field(0.3, ge=0, lt=1, description="probability that a block is skipped for a batch")

    @model_validator(mode="after")
    def _heads_divide(self) -> "StackOptions":
        if self.width % self.heads:
            raise ValueError(f"Expected width={self.width} to be a multiple of heads={self.heads}")
        return self
