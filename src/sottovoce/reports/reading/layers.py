"""What a run's log says of its layers: norms of users' deltas, signal and noise, trust ratios; over all steps.

A step's log holds mean and std over its users. Over all users of all steps they are pooled by the law of total
variance: the mean of the variances plus the variance of the means, each step counting by its users.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from sottovoce.model.transformer import KINDS
from sottovoce.reports.reading.metrics import Line
from sottovoce.reports.reading.records import Record

_IN_BLOCK = re.compile(r"blocks\.(\d+)(?:\.(\w+)(?:\.(\w+))?)?$")


@dataclass(frozen=True)
class Pooled:
    """Mean and std of something over so many."""

    mean: float
    std: float
    count: int

    @property
    def rms(self) -> float:
        """The root of the mean square."""
        return math.hypot(self.mean, self.std)


def pooled(parts: Iterable[tuple[float, float, int]]) -> Pooled | None:
    """Return mean and std over several groups of given mean, std and size; None where all are empty."""
    known = [(mean, std, count) for mean, std, count in parts if count > 0]
    total = sum(count for *_, count in known)
    if not total:
        return None
    mean = math.fsum(count * mean for mean, _, count in known) / total
    variance = math.fsum(count * (std**2 + (one - mean) ** 2) for one, std, count in known) / total
    return Pooled(mean, math.sqrt(variance), total)


@dataclass(frozen=True)
class Place:
    """Where a layer stands: its kind (ln1, wqkv, ...; `block` for a whole one; `rest`), its tensor, its block."""

    kind: str
    tensor: str
    block: int | None


def place_of(layer: str) -> Place:
    """Return where a layer of any partition stands."""
    found = _IN_BLOCK.match(layer)
    if found:
        return Place(found[2] or "block", found[3] or "", int(found[1]))
    return Place(layer if layer in KINDS else "rest", "", None)


def private(line: Line) -> Mapping[str, Any]:
    """Return what stands under `not_private` in a line of the metrics."""
    inside = line.get("not_private")
    return inside if isinstance(inside, Mapping) else {}


def _users(line: Line) -> int:
    inside = private(line)
    return int(inside.get("cohort") or 0) - int(inside.get("failed_users") or 0)


def layer_values(line: Line, name: str) -> Mapping[str, float]:
    """Return a value of every layer from a line of the metrics; empty where the run did not note it."""
    layers = private(line).get("layers")
    found = layers.get(name) if isinstance(layers, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def delta_norms(record: Record) -> dict[str, Pooled]:
    """Return |Delta_h| of every layer over all users and steps, before clipping."""
    parts: dict[str, list[tuple[float, float, int]]] = {}
    for line in record.steps:
        stds = layer_values(line, "delta_norm_std")
        for layer, mean in layer_values(line, "delta_norm").items():
            parts.setdefault(layer, []).append((mean, stds.get(layer, 0.0), _users(line)))
    return {layer: found for layer, one in parts.items() if (found := pooled(one)) is not None}


def central_norms(record: Record) -> dict[str, Pooled]:
    """Return the gradient's norm of every layer over the steps of a central run that noted it."""
    parts: dict[str, list[tuple[float, float, int]]] = {}
    for line in record.steps:
        for layer, norm in (line.get("layer_gradient_norms") or {}).items():
            parts.setdefault(layer, []).append((norm, 0.0, 1))
    return {layer: found for layer, one in parts.items() if (found := pooled(one)) is not None}


FAR_BELOW = 0.1  # of an even share


@dataclass(frozen=True)
class Imbalance:
    """(|Delta_h| / |Delta|) / sqrt(d_h / D) of every layer: 1 everywhere where deltas are spread evenly.

    Norms are root mean squares over users and steps, so that the squares, weighted by d_h / D, have the mean 1.
    """

    ratios: Mapping[str, float]
    sizes: Mapping[str, int]

    @property
    def drowned(self) -> float:
        """The share of all parameters that lie in layers with less than FAR_BELOW: noise drowns those first."""
        return sum(self.sizes[layer] for layer, ratio in self.ratios.items() if ratio < FAR_BELOW) / sum(
            self.sizes.values()
        )

    @property
    def least(self) -> float:
        """Of the layer that moves least for its size."""
        return min(self.ratios.values())

    @property
    def median(self) -> float:
        """Of the layer in the middle."""
        return median(self.ratios.values())

    @property
    def most(self) -> float:
        """Of the layer that moves most for its size."""
        return max(self.ratios.values())


def imbalance_of(norms: Mapping[str, Pooled], sizes: Mapping[str, int]) -> Imbalance | None:
    """Return how unevenly deltas of these norms are spread over layers of these sizes; None where that is not known."""
    if not norms or not norms.keys() <= sizes.keys():
        return None
    whole = math.sqrt(math.fsum(norm.rms**2 for norm in norms.values()))
    own = {layer: sizes[layer] for layer in norms}
    if not whole:
        return None
    parameters = sum(own.values())
    return Imbalance(
        {layer: norm.rms / whole / math.sqrt(own[layer] / parameters) for layer, norm in norms.items()}, own
    )


Find = Callable[[Line], Mapping[str, float | None]]


def signal_to_noise(line: Line) -> Mapping[str, float | None]:
    """Return the signal-to-noise ratio of every layer in one step."""
    found = private(line).get("signal_to_noise")
    return found if isinstance(found, Mapping) else {}


def trust_ratios(line: Line) -> Mapping[str, float | None]:
    """Return the trust ratio of every layer in one step."""
    return line.get("trust_ratios") or {}


def over_steps(record: Record, find: Find) -> dict[str, list[float]]:
    """Return the values of every layer in all steps that have one."""
    values: dict[str, list[float]] = {}
    for line in record.steps:
        for layer, value in find(line).items():
            if value is not None:
                values.setdefault(layer, []).append(value)
    return values


def mean_over_steps(record: Record, find: Find) -> dict[str, float]:
    """Return the mean over steps of every layer's value."""
    return {layer: math.fsum(values) / len(values) for layer, values in over_steps(record, find).items()}
