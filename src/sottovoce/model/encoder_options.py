"""The options of encoders, apart from torch, so that reading a preset stays fast.

A kind of encoder is a subclass of `EncoderOptions` with a `kind` of its own and a method `make`. Defining the subclass
is enough: configurations that name its kind then validate (see `open_union`).
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from sottovoce.model.encoder import Encoder

DEFAULT_DISTANCE = 512


class EncoderOptions(BaseModel):
    """The options of one kind of encoder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Options that change no parameter's shape or meaning: a seed model may have been trained with other values.
    shapeless: ClassVar[frozenset[str]] = frozenset()
    # Options that the first model files did not have: a file leaves them out where they have their default values.
    added: ClassVar[frozenset[str]] = frozenset()

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
    added = frozenset({"positions", "max_distance"})

    blocks: int = Field(36, ge=1, le=1000, description="the number of blocks")
    width: int = Field(768, ge=2, le=65_536, description="the width of the blocks")
    heads: int = Field(4, ge=1, le=1024, description="attention heads")
    dropout: float = Field(0.3, ge=0, lt=1, description="on the conv output, attention probabilities and inside MLPs")
    layer_drop: float = Field(0.3, ge=0, lt=1, description="probability that a block is skipped for a batch")
    positions: Literal["cape", "relative"] = Field(
        "cape", description="CAPE, added to the first block's input, or relative, learned, in every block's attention"
    )
    max_distance: int = Field(
        DEFAULT_DISTANCE,
        ge=1,
        le=100_000,
        description="outputs (0.03 s each) up to which relative positions differ; longer distances count as this one",
    )

    @model_validator(mode="after")
    def _heads_divide(self) -> "StackOptions":
        if self.width % self.heads:
            raise ValueError(f"Expected width={self.width} to be a multiple of heads={self.heads}")
        return self

    @model_validator(mode="after")
    def _distance_goes_with_relative(self) -> "StackOptions":
        if self.max_distance != DEFAULT_DISTANCE and self.positions != "relative":
            raise ValueError("Expected max_distance with positions=relative only: CAPE has no largest distance")
        return self
