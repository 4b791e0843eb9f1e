"""Values per layer from a run's metrics: norms of users' deltas, signal-to-noise ratios, trust ratios.

A line of the metrics holds the mean and the standard deviation over the users of one step. Over all users of all steps
they are pooled by the law of total variance: the mean of the variances plus the variance of the means, where each step
is weighted by its number of users.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from sottovoce.model.partition import Partition
from sottovoce.model.roles import REST, role_by_name
from sottovoce.reports.reading.records import RunRecord
from sottovoce.runs.metrics_log import Line

ReadLayers = Callable[[Line], Mapping[str, float | None]]
"""Reads a value for every layer from a line of the metrics."""

FAR_BELOW = 0.1
"""A layer whose imbalance is below this has a tenth of the movement that its size would give it."""


@dataclass(frozen=True)
class Place:
    """The place of a layer in the model.

    `kind` is its role in a block ("wqkv"; "block" for a whole block) or, outside the blocks, its own name or "rest".
    `tensor` is the last part of a tensor's name, such as "weight" or "bias", or "". `block` is None for a layer that
    lies in no single block.
    """

    kind: str
    tensor: str
    block: int | None


def place_of(layer: str, partition: Partition | None = None) -> Place:
    """Return the place of a layer from the roles of its tensors; without its partition, from its name alone."""
    tensors = {layer: role_by_name(layer, {})} if partition is None else partition.roles_in(layer)
    blocks, kinds = {role.block for role in tensors.values()}, {role.kind for role in tensors.values()}
    numbered = re.fullmatch(r".+\.(\d+)", min(blocks)) if len(blocks) == 1 else None
    if numbered is None:
        return Place(REST if "." in layer else layer, "", None)
    number, block = int(numbered[1]), numbered[0]
    if len(tensors) > 1 or layer == block:
        return Place(kinds.pop() if len(kinds) == 1 and layer != block else "block", "", number)
    # A tensor: blocks.3.w1.weight is the weight of w1, and layers.3.attention.key.weight that of attention.key.
    name = layer.removeprefix(f"{block}.") if layer.startswith(f"{block}.") else kinds.pop()
    kind, _, tensor = name.rpartition(".")
    return Place(kind, tensor, number) if kind else Place(name, "", number)


@dataclass(frozen=True)
class Pooled:
    """The mean and the standard deviation of `count` values."""

    mean: float
    std: float
    count: int

    @property
    def rms(self) -> float:
        """The root mean square."""
        return math.hypot(self.mean, self.std)


def pooled(samples: Iterable[tuple[float, float, int]]) -> Pooled | None:
    """Pool samples given as (mean, std, count); return None where all of them are empty."""
    known = [(mean, std, count) for mean, std, count in samples if count > 0]
    total = sum(count for *_, count in known)
    if not total:
        return None
    mean = math.fsum(count * own for own, _, count in known) / total
    variance = math.fsum(count * (std**2 + (own - mean) ** 2) for own, std, count in known) / total
    return Pooled(mean, math.sqrt(variance), total)


def diagnostics(line: Line) -> Mapping[str, Any]:
    """Return the diagnostics of a step: the values under `not_private`; empty where they are switched off."""
    values = line.get("not_private")
    return values if isinstance(values, Mapping) else {}


def layer_values(line: Line, name: str) -> Mapping[str, float]:
    """Return a diagnostic of every layer; empty where the run did not log it."""
    layers = diagnostics(line).get("layers")
    return numbers(layers.get(name) if isinstance(layers, Mapping) else None)


def numbers(values: object) -> Mapping[str, float]:
    """Return the numbers among the values of a section; empty where it is none."""
    named = values.items() if isinstance(values, Mapping) else ()
    return {name: value for name, value in named if isinstance(value, int | float)}


def signal_to_noise(line: Line) -> Mapping[str, float]:
    """Return the signal-to-noise ratio of every layer in one step."""
    return numbers(diagnostics(line).get("signal_to_noise"))


def trust_ratios(line: Line) -> Mapping[str, float]:
    """Return the trust ratio of every layer in one step."""
    return numbers(line.get("trust_ratios"))


def delta_norms(record: RunRecord) -> dict[str, Pooled]:
    """Return |Delta_h| before clipping for every layer, over all users of all steps."""
    samples: dict[str, list[tuple[float, float, int]]] = {}
    for line in record.steps:
        stds = layer_values(line, "delta_norm_std")
        for layer, mean in layer_values(line, "delta_norm").items():
            samples.setdefault(layer, []).append((mean, stds.get(layer, 0.0), _users(line)))
    return _pooled_by_layer(samples)


def central_norms(record: RunRecord) -> dict[str, Pooled]:
    """Return the norm of the gradient for every layer of a central run, over the steps that logged it."""
    samples: dict[str, list[tuple[float, float, int]]] = {}
    for line in record.steps:
        for layer, norm in numbers(line.get("layer_gradient_norms")).items():
            samples.setdefault(layer, []).append((norm, 0.0, 1))
    return _pooled_by_layer(samples)


def _users(line: Line) -> int:
    """Return the number of users whose deltas entered a step."""
    values = diagnostics(line)
    return int(values.get("cohort") or 0) - int(values.get("failed_users") or 0)


def _pooled_by_layer(samples: Mapping[str, list[tuple[float, float, int]]]) -> dict[str, Pooled]:
    return {layer: result for layer, own in samples.items() if (result := pooled(own)) is not None}


def over_steps(record: RunRecord, read: ReadLayers) -> dict[str, list[float]]:
    """Return for every layer its values in all steps that have one."""
    values: dict[str, list[float]] = {}
    for line in record.steps:
        for layer, value in read(line).items():
            if value is not None:
                values.setdefault(layer, []).append(value)
    return values


def mean_over_steps(record: RunRecord, read: ReadLayers) -> dict[str, float]:
    """Return for every layer the mean of its values over the steps."""
    return {layer: math.fsum(values) / len(values) for layer, values in over_steps(record, read).items()}


@dataclass(frozen=True)
class Imbalance:
    """(|Delta_h| / |Delta|) / sqrt(d_h / D) for every layer h.

    The ratio is 1 in every layer if users' deltas are spread evenly over the parameters. Norms are root mean squares
    over users and steps, so the mean of the squared ratios, weighted by d_h / D, is 1.
    """

    ratios: Mapping[str, float]
    sizes: Mapping[str, int]

    @property
    def share_far_below(self) -> float:
        """The share of all parameters in layers with a ratio below FAR_BELOW: noise drowns these layers first."""
        far_below = sum(self.sizes[layer] for layer, ratio in self.ratios.items() if ratio < FAR_BELOW)
        return far_below / sum(self.sizes.values())

    @property
    def least(self) -> float:
        """The smallest ratio."""
        return min(self.ratios.values())

    @property
    def median(self) -> float:
        """The median ratio."""
        return median(self.ratios.values())

    @property
    def most(self) -> float:
        """The largest ratio."""
        return max(self.ratios.values())


def imbalance_of(norms: Mapping[str, Pooled], sizes: Mapping[str, int]) -> Imbalance | None:
    """Return the imbalance of deltas with these norms; None where a layer's size is unknown or all norms are 0."""
    if not norms or not norms.keys() <= sizes.keys():
        return None
    whole = math.sqrt(math.fsum(norm.rms**2 for norm in norms.values()))
    if not whole:
        return None
    own = {layer: sizes[layer] for layer in norms}
    parameters = sum(own.values())
    ratios = {layer: norm.rms / whole / math.sqrt(own[layer] / parameters) for layer, norm in norms.items()}
    return Imbalance(ratios, own)
