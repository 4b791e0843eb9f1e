"""Reading metrics.jsonl in little memory.

A long run has thousands of lines, and each holds several values for every one of hundreds of layers. The values of a
line are kept as an array of floats, and all lines share the layers' names.
"""

import json
import math
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sottovoce.errors import DataError

Line = Mapping[str, Any]
_Layers = dict[tuple[str, ...], dict[str, int]]  # the indices of layers, by the tuple of their names
_MANY = 16  # a mapping with at least this many numbers becomes LayerValues


class LayerValues(Mapping[str, float | None]):
    """A number, or None, for every layer: an array of floats, with layer names shared by all lines."""

    __slots__ = ("_indices", "_values")

    def __init__(self, indices: Mapping[str, int], values: "array[float]") -> None:
        """Keep the index of every layer and the values; NaN stands for None."""
        self._indices, self._values = indices, values

    def __getitem__(self, layer: str) -> float | None:
        """Return the value of a layer."""
        value = self._values[self._indices[layer]]
        return None if math.isnan(value) else value

    def __iter__(self) -> Iterator[str]:
        """Yield the layers."""
        return iter(self._indices)

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self._indices)


def read_metrics(path: Path) -> list[Line]:
    """Return the lines of a run's metrics; raise DataError with the number of a line that cannot be read.

    An incomplete last line is left out: the run is still writing it, or was killed.
    """
    if not path.is_file():
        return []
    lines: list[Line] = []
    layers: _Layers = {}
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                break
            line = _parsed(text)
            if line is None:
                raise DataError(f"{path}: line {number} is damaged. Remove it, and make the report again.")
            lines.append(_compact(line, layers))
    return lines


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return one line; None where it is damaged."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    if not isinstance(line, dict) or "step" not in line:
        return None
    numbers = (line.get(key, 0) for key in ("step", "lr", "central_lr", "dev_wer"))
    return line if all(isinstance(number, int | float) for number in numbers) else None


def _compact(tree: dict[str, Any], layers: _Layers) -> Line:
    """Return a line whose large mappings of numbers are LayerValues."""
    return {key: _compact_value(value, layers) if isinstance(value, dict) else value for key, value in tree.items()}


def _compact_value(tree: dict[str, Any], layers: _Layers) -> Line:
    if len(tree) < _MANY or not all(value is None or isinstance(value, int | float) for value in tree.values()):
        return _compact(tree, layers)
    names = tuple(tree)
    indices = layers.setdefault(names, {name: index for index, name in enumerate(names)})
    return LayerValues(indices, array("d", (math.nan if value is None else value for value in tree.values())))
