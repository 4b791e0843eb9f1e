"""Reading metrics.jsonl in little memory.

A long run has thousands of lines, and each holds several values for every one of hundreds of layers. The values of a
line are kept as an array of floats, and all lines share the layers' names.
"""

import math
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sottovoce.runs.metrics_log import Line, MetricsLog

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


def read_metrics(run: Path) -> list[Line]:
    """Return the lines of a run's metrics, as `MetricsLog.lines` reads them, with values by layer as LayerValues."""
    layers: _Layers = {}
    return [_compact(line, layers) for line in MetricsLog(run).lines()]


def _compact(tree: Mapping[str, Any], layers: _Layers) -> Line:
    """Return a line whose large mappings of numbers are LayerValues."""
    return {key: _compact_value(value, layers) if isinstance(value, dict) else value for key, value in tree.items()}


def _compact_value(tree: dict[str, Any], layers: _Layers) -> Line:
    if len(tree) < _MANY or not all(value is None or isinstance(value, int | float) for value in tree.values()):
        return _compact(tree, layers)
    names = tuple(tree)
    indices = layers.setdefault(names, {name: index for index, name in enumerate(names)})
    return LayerValues(indices, array("d", (math.nan if value is None else value for value in tree.values())))
