"""The options of low-rank adapters, apart from torch."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def as_name_list(value: Any) -> Any:
    """Accept one name in place of a list of names."""
    return (value,) if isinstance(value, str) else value


class Adapters(BaseModel):
    """Low-rank adapters (Hu et al. 2022): a frozen matrix W counts as W + alpha/rank B A, and B, or B and A, train."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(
        0, ge=0, le=65_536, description="of the adapters beside frozen matrices, which train instead; 0: no adapters"
    )
    on: Annotated[tuple[str, ...], BeforeValidator(as_name_list)] = Field(
        ("wqkv", "wf", "w1", "w2"),
        min_length=1,
        description="matrices with adapters: kinds, groups and blocks such as [attention] or [blocks.3]",
    )
    alpha: float | None = Field(
        None, ge=1e-3, le=1e6, allow_inf_nan=False, description="B A is scaled by alpha/rank; null: alpha is the rank"
    )
    train: Literal["both", "b"] = Field(
        "b", description="what trains: both A and B, or B alone, with half the parameters and no product of two noises"
    )

    @property
    def scale(self) -> float:
        """The factor of B A."""
        return 1.0 if self.alpha is None else self.alpha / self.rank

    @property
    def described(self) -> str:
        """The adapters in words."""
        trained = "B trains" if self.train == "b" else "A and B train"
        scaled = "" if self.alpha is None else f", alpha {self.alpha:g}"
        return f"adapters of rank {self.rank} on {', '.join(self.on)} ({trained}{scaled})"


NO_ADAPTERS = Adapters()
