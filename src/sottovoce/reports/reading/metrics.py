"""Reading a run's metrics: thousands of lines with a value for each of hundreds of layers, in little memory."""

import json
import math
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sottovoce.errors import DataError

Line = Mapping[str, Any]
_MANY = 16  # values by layer are kept as an array from so many on


class LayerValues(Mapping[str, float | None]):
    """A value for every layer: numbers in an array, names shared by all lines."""

    __slots__ = ("_places", "_values")

    def __init__(self, places: Mapping[str, int], values: "array[float]") -> None:
        """Keep the numbers; None is kept as no number."""
        self._places, self._values = places, values

    def __getitem__(self, layer: str) -> float | None:
        """Return the value of a layer."""
        value = self._values[self._places[layer]]
        return None if math.isnan(value) else value

    def __iter__(self) -> Iterator[str]:
        """Yield the layers."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self._places)


def read_metrics(path: Path) -> list[Line]:
    """Return the whole lines of a run's metrics; raise DataError with the number of one that cannot be read.

    Half a line at the end, of a run that is going on or was killed, is left out.
    """
    if not path.is_file():
        return []
    lines: list[Line] = []
    names: dict[tuple[str, ...], dict[str, int]] = {}
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                break
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if (
                not isinstance(line, dict)
                or not all(isinstance(line.get(key, 0), int | float) for key in ("step", "lr", "central_lr", "dev_wer"))
                or "step" not in line
            ):
                raise DataError(f"{path}: line {number} is damaged. Remove it, and make the report again.")
            lines.append(_small(line, names))
    return lines


def _small(tree: dict[str, Any], names: dict[tuple[str, ...], dict[str, int]]) -> Line:
    """Return a line with its many values by layer as arrays."""
    return {key: _small_value(value, names) if isinstance(value, dict) else value for key, value in tree.items()}


def _small_value(tree: dict[str, Any], names: dict[tuple[str, ...], dict[str, int]]) -> Line:
    if len(tree) < _MANY or not all(value is None or isinstance(value, int | float) for value in tree.values()):
        return _small(tree, names)
    keys = tuple(tree)
    places = names.setdefault(keys, {key: place for place, key in enumerate(keys)})
    return LayerValues(places, array("d", (math.nan if value is None else value for value in tree.values())))
