"""A value of every layer along a training: norms of central gradients (P:2144, P:2152), clip bounds that adapt.

One panel for each kind of layer, and a line for every layer.
"""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sottovoce.model.partition import WHOLE
from sottovoce.reports.drawing.charts import Panel, Picture, log_axis, make_picture
from sottovoce.reports.drawing.hover import hover_label
from sottovoce.reports.reading.layers import numbers, place_of
from sottovoce.reports.reading.run_groups import RunGroup, legend

Norms = Mapping[str, Mapping[int, float]]  # by layer, then by step


def layers_over_steps_picture(name: str, alt: str, groups: Sequence[RunGroup], key: str) -> Picture | None:
    """Return what the metrics have under `key` for every layer; None where no run logged it at two steps."""
    shown = [(group, norms) for group in groups if (norms := _norms(group, key))]
    if not shown:
        return None
    kinds = list(dict.fromkeys(_kind(group, layer) for group, norms in shown for layer in norms))
    values = [
        value for _, norms in shown for over_steps in norms.values() for value in over_steps.values() if value > 0
    ]
    span = (min(values) / 1.3, max(values) * 1.3) if values else (0.1, 1.0)
    panels = [Panel(kind, _drawing(shown, kind, span)) for kind in kinds]
    alt = f"{alt}, a line for every layer, one panel per kind of layer"
    return make_picture(name, alt, panels, legend(group for group, _ in shown))


def _norms(group: RunGroup, key: str) -> Norms:
    norms: dict[str, dict[int, float]] = {}
    for line in group.first.steps:
        for layer, norm in numbers(line.get(key)).items():
            if norm > 0:  # layer drop leaves a layer out of some steps
                norms.setdefault(layer, {})[int(line["step"])] = float(norm)
    return norms if any(len(over_steps) > 1 for over_steps in norms.values()) else {}


def _kind(group: RunGroup, layer: str) -> str:
    """Return the kind of a layer; those outside the blocks share a panel."""
    if layer == WHOLE:
        return WHOLE
    place = place_of(layer, group.first.partition)
    return "outside the blocks" if place.block is None else place.kind


def _drawing(shown: Sequence[tuple[RunGroup, Norms]], kind: str, span: tuple[float, float]) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for group, norms in shown:
            for layer, over_steps in norms.items():
                if _kind(group, layer) == kind:
                    steps = list(over_steps)
                    label = hover_label(f"{group.name}: {layer}")
                    norms_of = list(over_steps.values())
                    axes.plot(steps, norms_of, color=group.colour, linewidth=1, alpha=0.6, label=label)
        log_axis(axes, axes.yaxis, [], span)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))

    return draw
