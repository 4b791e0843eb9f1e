"""The price list of a benchmark: what the WER of each row would cost by one recipe, in epsilon and in users.

    prices:
      curve: [epsilon 8, epsilon 4, epsilon 2]     rows of one recipe that differ in their noise alone
      rows: [dim, correlated]                      what is priced; each is compared with the curve's row at its epsilon

The WER of a row lies between those of two rows of the curve. There the curve's recipe is as good as the row: it spends
that epsilon, or it spends the same epsilon as the row with so many users as that noise then needs. Both are
interpolated along the curve, linearly in WER and in the logarithms of epsilon and of the number of users.

The interval of a price is that of the row's difference from the curve's row at its epsilon; the curve itself is taken
as exact. Beyond the ends of the curve a price is only known to be above or below them.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from sottovoce.bench.effects import PriceList
from sottovoce.bench.results import RowResult
from sottovoce.config import Config
from sottovoce.errors import ConfigError
from sottovoce.evaluation.intervals import MeanOverSeeds, estimate
from sottovoce.privacy.planner import Plan, solve

PRICE_HEADER = ("row", "better by", "as good as epsilon", "as good as with users")


@dataclass(frozen=True)
class Amount:
    """A price, or the end of its interval; beyond the curve it is the end of the curve."""

    value: float
    beyond: str = ""  # above or below: it lies beyond the curve

    def text(self, digits: int = 2) -> str:
        """Return it as people read it: 5.2, 14,000, or above 16."""
        places = max(digits - 1 - math.floor(math.log10(self.value)), 0)
        rounded = round(self.value, digits - 1 - math.floor(math.log10(self.value)))
        return f"{self.beyond} {rounded:,.{places}f}".strip()


@dataclass(frozen=True)
class PriceRange:
    """A price with the ends of its interval."""

    value: Amount
    low: Amount
    high: Amount

    @property
    def text(self) -> str:
        """The price as people read it: 5.2 (4.1 to 6.6)."""
        if self.value.beyond and self.low == self.high:
            return self.value.text()
        return f"{self.value.text()} ({self.low.text()} to {self.high.text()})"


@dataclass(frozen=True)
class Price:
    """What a row's WER costs by the curve's recipe."""

    row: str
    reference: str  # the curve's row at the row's epsilon
    population: int  # of that row
    better_by: MeanOverSeeds  # points of WER
    epsilon: PriceRange
    users: PriceRange


def price_rows(prices: PriceList | None, results: Sequence[RowResult]) -> list[Price]:
    """Return the prices of the rows that have run.

    There are none where not all of the curve has run, or where its WER does not rise with every step of its noise.
    Raise ConfigError where rows of the curve differ in more than noise.
    """
    if prices is None:
        return []
    rows = {result.row.name: result for result in results}
    curve = [rows[name] for name in prices.curve if name in rows and rows[name].wer.get("test") is not None]
    if len(curve) < len(prices.curve):
        return []
    _require_one_recipe(curve)
    curve.sort(key=lambda result: result.config.privacy.sigma_dp)
    wers = [result.wer["test"].value for result in curve]
    if any(lower >= higher for lower, higher in pairwise(wers)):
        return []
    found = (_price(rows[name], curve, wers) for name in prices.rows if name in rows)
    return [price for price in found if price is not None]


def _price(row: RowResult, curve: Sequence[RowResult], wers: Sequence[float]) -> Price | None:
    spent = row.epsilon.tightest
    epsilons = [_spent(result) for result in curve]
    if spent is None:
        return None
    place = min(range(len(curve)), key=lambda index: abs(math.log(epsilons[index] / spent)))
    reference = curve[place]
    better = estimate([(1.0, reference.counts("test")), (-1.0, row.counts("test"))])
    if better is None or better.half is None:
        return None
    users = [float(_users_for(result.config, epsilons[place])) for result in curve]
    wer, half = wers[place] - better.value, better.half
    return Price(
        row.row.name,
        reference.row.name,
        _population(reference),
        better,
        *(_along(wers, prices, wer, half) for prices in (epsilons, users)),
    )


def _along(wers: Sequence[float], prices: Sequence[float], wer: float, half: float) -> PriceRange:
    """Return the price of a WER along the curve, whose WERs rise, with its interval: a lower WER costs more."""

    def at(place: float) -> Amount:
        price = math.exp(float(np.interp(place, wers, np.log(prices))))
        return Amount(price, "above" if place < wers[0] else "below" if place > wers[-1] else "")

    return PriceRange(at(wer), at(wer + half), at(wer - half))


def _spent(result: RowResult) -> float:
    spent = result.epsilon.tightest
    if spent is None:
        raise ConfigError(f"The row {result.row.name!r} of the price list has no epsilon. Use rows with noise.")
    return spent


def _population(result: RowResult) -> int:
    population = result.config.participation.population
    if population is None:
        raise ConfigError(f"The row {result.row.name!r} of the price list has no participation.population.")
    return population


def _require_one_recipe(curve: Sequence[RowResult]) -> None:
    recipes = [result.config.model_dump(mode="json", exclude={"privacy": {"sigma_dp"}}) for result in curve]
    for result, recipe in zip(curve, recipes, strict=True):
        if recipe != recipes[0]:
            names = f"{curve[0].row.name!r} and {result.row.name!r}"
            raise ConfigError(f"The rows {names} of the price list differ in more than privacy.sigma_dp.")


def _users_for(config: Config, epsilon: float) -> int:
    """Return how many users a recipe needs for an epsilon with the same noise, cohorts and steps."""
    plan = Plan(
        population=None,
        cohort_size=config.participation.cohort_size,
        sigma_dp=config.privacy.sigma_dp,
        central_steps=config.federated.central_steps,
        epsilon=epsilon,
        target_delta=config.privacy.target_delta,
        sampling=config.participation.sampling,
    )
    return _solved(plan)


@cache
def _solved(plan: Plan) -> int:
    return solve(plan, "pld").population or 0


def price_table(prices: Sequence[Price]) -> list[list[str]]:
    """Return the rows of a table with the columns of PRICE_HEADER."""
    return [
        [
            price.row,
            f"{price.better_by.value:+.1f} ± {price.better_by.half or 0:.1f} points",
            price.epsilon.text,
            price.users.text,
        ]
        for price in prices
    ]


def price_document(price: Price) -> dict[str, Any]:
    """Return a price as JSON; `beyond` says that the curve ends there."""
    return {
        "row": price.row,
        "reference": price.reference,
        "better_by": price.better_by.value,
        "better_by_interval": price.better_by.interval,
        "epsilon": asdict(price.epsilon),
        "users": asdict(price.users),
    }


def price_note(prices: Sequence[Price]) -> str:
    """Return what the table of prices shows; nothing where it is empty."""
    if not prices:
        return ""
    named = ", ".join(dict.fromkeys(f"`{price.reference}`, {price.population:,} users" for price in prices))
    return (
        f"Price list. A row that is better by so much than the one it is compared with ({named}) is as good as that "
        "row's recipe at another epsilon, or with another number of users at the same epsilon. In brackets: for the "
        "ends of the 95 % interval of the difference; the recipe's WER between its rows is interpolated."
    )
