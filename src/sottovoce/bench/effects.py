"""The effects that a benchmark looks for, its figures and its price list, as its YAML file has them.

An effect is a finding of the paper as a number: a weighted sum of the WERs of some rows, positive in the paper's
direction. {small cohort: 1, large cohort: -1} is positive where large cohorts help; {seed: 0.5, federated: -1,
central: 0.5} where federated learning recovers more than half of the gap to central training.

Some findings are about the balance of layers, not about WER. Such an effect has `norms`, weights of the logarithms of
norms of layers: {ln1: 1, wqkv: -1} is a ratio of two norms in every row. The contrast compares rows by it, or has one
row alone. It is above 1 in the paper's direction.

The first effect of a benchmark is its main finding: it decides whether the benchmark counts as reproduced.
"""

import math
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sottovoce.errors import nearest
from sottovoce.evaluation.intervals import Scale

_STRICT = ConfigDict(frozen=True, extra="forbid")
_ROUNDING = 1e-9
ROLES = ("dev", "test")


class _OnASet(BaseModel):
    """Something on one set of its rows."""

    model_config = _STRICT

    @model_validator(mode="before")
    @classmethod
    def _read_on(cls, tree: Any) -> Any:
        """Undo what YAML makes of the key `on`: it is an old word for true."""
        return {"on" if key is True else key: value for key, value in tree.items()} if isinstance(tree, dict) else tree


class Effect(_OnASet):
    """A finding of the paper: a contrast of rows that is positive, small (`within`), or not too low (`least`)."""

    name: str = Field(min_length=1, description="a plain statement of the paper's finding")
    contrast: dict[str, float] = Field(min_length=1, description="weights of rows; their sum is 0")
    norms: dict[str, float] = Field({}, description="weights of norms of layers, whose sum is 0; without any: of WER")
    scale: Scale = Field(
        "points", description="points: of WER; relative: of its logarithm, shown as a ratio in percent; times: of norms"
    )
    within: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="the paper finds no difference: at most so many points, or percent"
    )
    least: float | None = Field(
        None, allow_inf_nan=False, description="the paper finds no gain: at least so many points, percent, or times"
    )
    on: str = Field("test", description="the set that decides: test, dev, or a part in `also` of all its rows")
    paper: bool = Field(True, description="whether the paper's own numbers, where it prints them, must show it")

    @model_validator(mode="after")
    def _one_kind_of_margin(self) -> "Effect":
        if self.within is not None and self.least is not None:
            raise ValueError(f"the effect {self.name!r} has both `within` and `least`; choose one")
        if (self.scale == "times") != bool(self.norms) or (self.norms and self.within is not None):
            raise ValueError(f"the effect {self.name!r}: `norms` go with `scale: times`, and without `within`")
        return self

    @property
    def range(self) -> tuple[float, float]:
        """The ends between which a value agrees with the paper."""
        if self.within is not None:
            return -self.within, self.within
        return self.nothing if self.least is None else self.least, math.inf

    @property
    def nothing(self) -> float:
        """The value of no effect."""
        return 1.0 if self.scale == "times" else 0.0

    @property
    def measured_on(self) -> str:
        """What it is measured on: a set, or the norms of layers along training."""
        return "norms" if self.norms else self.on

    def of(self, percents: Mapping[str, float]) -> float | None:
        """Return the contrast of WERs in percent, by row: in points, or in percent; None where a row has none.

        A ratio of a WER of 0 has none either, and norms are none of WERs.
        """
        if self.norms or not self.contrast.keys() <= percents.keys():
            return None
        if self.scale == "points":
            return math.fsum(weight * percents[row] for row, weight in self.contrast.items())
        if min(percents[row] for row in self.contrast) <= 0:
            return None  # no ratio
        return 100 * math.expm1(math.fsum(weight * math.log(percents[row]) for row, weight in self.contrast.items()))

    def holds(self, value: float) -> bool:
        """Return whether a value of the contrast agrees with the paper."""
        low, high = self.range
        return low < value < high


class Series(_OnASet):
    """A figure: WER over something that rows differ in, with one or several lines."""

    title: str = Field(min_length=1)
    x: str = Field(min_length=1, description="the label of the axis")
    lines: dict[str, dict[str, float | str]] = Field(min_length=1, description="by name: the place of each row")
    log: bool = Field(False, description="whether the axis is logarithmic")
    on: str = Field("test", description="the set: test, dev, or a part in `also` of all its rows")

    @property
    def categories(self) -> list[str] | None:
        """The places in order where they are texts; None where they are numbers."""
        places = [place for line in self.lines.values() for place in line.values()]
        return list(dict.fromkeys(map(str, places))) if any(isinstance(place, str) for place in places) else None


class PriceList(BaseModel):
    """The rows whose WER is priced, and those of the recipe that it is priced by (prices.py)."""

    model_config = _STRICT

    curve: tuple[str, ...] = Field(min_length=2, description="rows of one recipe that differ in sigma_dp alone")
    rows: tuple[str, ...] = Field(min_length=1, description="rows to price, trained on as many users")


def require_effects(
    effects: Iterable[Effect], rows: Mapping[str, Collection[str]], shown: Mapping[str, Hashable]
) -> None:
    """Raise ValueError where effects contradict themselves or the rows.

    `rows` have the names of their sets, `shown` what identifies the run that each shows and the sets it is shown on.
    """
    seen: set[str] = set()
    for effect in effects:
        if effect.name in seen:
            raise ValueError(f"two effects are named {effect.name!r}")
        seen.add(effect.name)
        _require_rows(f"the effect {effect.name!r}", effect.contrast, effect.on, rows)
        weights = [*effect.contrast.values(), *effect.norms.values()]
        if not all(math.isfinite(weight) and weight != 0 for weight in weights):
            raise ValueError(f"the effect {effect.name!r} has a weight that is 0 or not finite")
        alone = bool(effect.norms) and len(effect.contrast) == 1  # a ratio of norms in one row
        if abs(math.fsum(effect.norms.values() if alone else effect.contrast.values())) > _ROUNDING:
            raise ValueError(f"the weights of the effect {effect.name!r} do not sum to 0")
        if not alone and len({shown[name] for name in effect.contrast}) == 1:
            raise ValueError(f"the rows of the effect {effect.name!r} are one and the same run")


def require_series(figures: Iterable[Series], rows: Mapping[str, Collection[str]]) -> None:
    """Raise ValueError where figures need rows or sets that do not exist, or a logarithm of nothing."""
    for figure in figures:
        what = f"the figure {figure.title!r}"
        for name, line in figure.lines.items():
            if not line:
                raise ValueError(f"{what} has no rows in its line {name!r}")
            _require_rows(what, line, figure.on, rows)
        places = [place for line in figure.lines.values() for place in line.values()]
        if figure.categories is not None and not all(isinstance(place, str) for place in places):
            raise ValueError(f"{what} mixes numbers and texts on its axis")
        if not all(isinstance(place, str) or math.isfinite(place) for place in places):
            raise ValueError(f"{what} has a place that is not finite")
        if figure.log and not all(not isinstance(place, str) and place > 0 for place in places):
            raise ValueError(f"{what} has a logarithmic axis and a place that is not a number above 0")


def require_prices(prices: PriceList, rows: Mapping[str, Collection[str]]) -> None:
    """Raise ValueError where a price list needs a row that does not exist, or the same one twice."""
    named = [*prices.curve, *prices.rows]
    _require_rows("the price list", named, "test", rows)
    if twice := sorted({name for name in named if named.count(name) > 1}):
        raise ValueError(f"the price list names the row {twice[0]!r} twice")


def _require_rows(what: str, names: Iterable[str], on: str, rows: Mapping[str, Collection[str]]) -> None:
    for name in names:
        if name not in rows:
            raise ValueError(f"{what} needs the row {name!r}, which does not exist.{nearest(name, rows)}".rstrip("."))
        if on not in ROLES and on not in rows[name]:
            raise ValueError(f"{what} is decided on {on!r}, on which the row {name!r} is not evaluated (`also`)")
