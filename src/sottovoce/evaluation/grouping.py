"""Groups of utterances by a column of the index: one for every value or, where it holds many numbers, for ranges.

Ranges hold about equally many utterances each, or have the edges that were asked for: `age:18,65` is below 18, 18 to
below 65, and 65 and more. Utterances without a value are a group of their own.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.data.population import Population
from sottovoce.errors import ConfigError

# Columns of an index that tell groups of people or conditions apart, where a corpus has them.
GROUP_COLUMNS = ("sex", "gender", "age", "accent", "accents", "domain", "language", "subset")
NO_VALUE = "(no value)"
_RANGES = 5
_MOST_NUMBERS = 8  # that are groups of their own; more are ranges

Labels = tuple[list[str], list[str]]  # the group of every utterance, and the groups in order


@dataclass(frozen=True)
class Grouping:
    """A column, and the edges of its ranges where they were asked for."""

    column: str
    edges: tuple[float, ...] = ()

    def labels(self, values: Sequence[Any]) -> Labels:
        """Return the group of every value, and all groups in order; raise ConfigError where edges meet other values."""
        given = [value for value in values if value is not None]
        numbers = _numbers(given)
        if self.edges and numbers is None:
            raise ConfigError(
                f"{self.column!r} holds other values than numbers. Use --by {self.column}, without edges."
            )
        if numbers is None:
            names = [str(value) for value in given]
            order = sorted(set(names))
        elif self.edges or len(set(numbers.tolist())) > _MOST_NUMBERS:
            places, named = _by_edges(numbers, self.edges) if self.edges else _by_share(numbers)
            names, order = [named[place] for place in places], [named[place] for place in sorted(set(places))]
        else:
            names = [str(value) for value in given]
            order = sorted(set(names), key=lambda name: (float(name), name))
        rest = iter(names)
        missing = [NO_VALUE] if len(given) < len(values) else []
        return [NO_VALUE if value is None else next(rest) for value in values], [*order, *missing]


@dataclass(frozen=True)
class EveryValue(Grouping):
    """Every value is a group, in the order in which they appear: as in evaluation.json."""

    def labels(self, values: Sequence[Any]) -> Labels:
        """Return the values as text."""
        names = [str(value) for value in values]
        return names, list(dict.fromkeys(names))


def groupings(population: Population, wanted: Sequence[str] | None) -> list[Grouping]:
    """Return what to break down by: the wanted columns, or by default those that tell groups apart.

    A wanted one is COLUMN or COLUMN:EDGE,EDGE,... Raise ConfigError for a column that the store does not have, or that
    holds lists. By default a column with a single value is left out: it tells nobody apart.
    """
    if wanted is not None:
        return [_parsed(text, population) for text in wanted]
    own = _own_index(population, default_columns(population))
    return [Grouping(column) for column in own.column_names if pc.count_distinct(own[column]).as_py() > 1]


def default_columns(population: Population) -> list[str]:
    """Return the columns that may tell groups of a population apart.

    A column in which none of its utterances has a value is left out: others in the store brought it.
    """
    present = population.store.index_columns()
    own = _own_index(population, [column for column in GROUP_COLUMNS if column in present])
    return [column for column in own.column_names if own[column].null_count < len(own)]


def speakers_without(population: Population, column: str) -> list[str]:
    """Return the speakers with utterances that have no value in a column, in the order of the store."""
    own = _own_index(population, list(dict.fromkeys(["speaker", column])))
    return list(dict.fromkeys(own.filter(pc.is_null(own[column]))["speaker"].to_pylist()))


def _own_index(population: Population, columns: list[str]) -> pa.Table:
    return population.store.index(columns).take(pa.array(population.all_rows()))


def _parsed(text: str, population: Population) -> Grouping:
    store = population.store
    present = store.index_columns()
    column, colon, edges = (text, "", "") if text in present else text.rpartition(":")
    column = column if colon else text
    if column not in present:
        raise ConfigError(f"{store.path} has no column {column!r}. It has: {', '.join(present)}.")
    if pa.types.is_nested(store.index_schema().field(column).type):
        raise ConfigError(f"{column!r} holds lists, not single values. Choose another column.")
    return Grouping(column, _edges(text, edges) if colon else ())


def _edges(text: str, edges: str) -> tuple[float, ...]:
    try:
        numbers = [float(edge) for edge in edges.split(",")]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)) or numbers != sorted(set(numbers)):
        raise ConfigError(f"Expected --by COLUMN:EDGE,EDGE with rising numbers such as age:18,65, not {text!r}.")
    return tuple(numbers)


def _numbers(values: Sequence[Any]) -> npt.NDArray[np.float64] | None:
    """Return values as numbers; None where one of them is none, or there are no values."""
    try:
        numbers = np.array([math.nan if isinstance(value, bool) else float(value) for value in values], np.float64)
    except (TypeError, ValueError):
        return None
    return numbers if len(numbers) and np.isfinite(numbers).all() else None


def _by_edges(numbers: npt.NDArray[np.float64], edges: Sequence[float]) -> tuple[list[int], list[str]]:
    places = np.searchsorted(np.array(edges), numbers, side="right").tolist()
    middle = [f"{low:g} to below {high:g}" for low, high in itertools.pairwise(edges)]
    return places, [f"below {edges[0]:g}", *middle, f"{edges[-1]:g} and more"]


def _by_share(numbers: npt.NDArray[np.float64]) -> tuple[list[int], list[str]]:
    """Cut numbers into ranges that hold about equally many, and name each by the smallest and largest in it."""
    shares = np.arange(1, _RANGES) / _RANGES
    ends = np.unique(np.quantile(numbers, shares, method="inverted_cdf"))
    places = np.searchsorted(ends, numbers, side="left")
    names = []
    for place in range(len(ends) + 1):
        own = numbers[places == place]
        low, high = (own.min(), own.max()) if len(own) else (math.nan, math.nan)
        names.append(f"{low:g}" if low == high else f"{low:g} to {high:g}")
    return places.tolist(), names
