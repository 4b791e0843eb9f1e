"""Training dynamics: losses and norms of gradients, deltas and the server's average, step by step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sottovoce.reports.drawing.charts import Panel, Picture, log_axis, make_picture, thinned
from sottovoce.reports.drawing.elements import CaptionedFigure, CsvTable, CsvValue, Element, Paragraph, Section
from sottovoce.reports.drawing.hover import hover_label
from sottovoce.reports.reading.layers import diagnostics, numbers
from sottovoce.reports.reading.run_groups import RunGroup, all_runs, legend
from sottovoce.runs.metrics_log import Line

Points = tuple[list[float], list[float]]


@dataclass(frozen=True)
class Quantity:
    """A quantity that every step logs."""

    name: str  # in the CSV file
    title: str  # of its panel
    read: Callable[[Line], float | None]


def _diagnostic(name: str) -> Callable[[Line], float | None]:
    return lambda line: numbers(diagnostics(line)).get(name)


def _logged(name: str) -> Callable[[Line], float | None]:
    return lambda line: numbers(line).get(name)


def _before_noise(line: Line) -> float | None:
    values = numbers(diagnostics(line))
    # Without noise, the norm before and after it is the same; runs without diagnostics log neither.
    return values.get("server_norm_before_noise", numbers(line).get("server_norm") if values else None)


_GRADIENT = Quantity("gradient_norm", "local gradient", _diagnostic("gradient_norm"))
_FEDERATED = (
    Quantity("loss", "loss of users", _diagnostic("loss")),
    _GRADIENT,
    Quantity("delta_norm", "delta before clipping", _diagnostic("delta_norm")),
    Quantity("delta_norm_clipped", "delta after clipping", _diagnostic("delta_norm_clipped")),
    Quantity("server_norm_before_noise", "average before noise", _before_noise),
    Quantity("server_norm", "average after noise", _logged("server_norm")),
)
_CENTRAL = (
    Quantity("loss", "loss", _logged("loss")),
    Quantity("gradient_norm", "gradient before clipping", _logged("gradient_norm")),
)

# These panels share an axis, because readers compare them.
_ON_ONE_AXIS = ("delta_norm", "delta_norm_clipped", "server_norm_before_noise", "server_norm")


def dynamics_section(groups: Sequence[RunGroup]) -> Section:
    """Return losses and norms over the steps."""
    federated, central = ([group for group in groups if group.kind == kind] for kind in ("federated", "central"))
    elements: list[Element] = []
    if federated:
        elements += _federated_elements(federated)
    if central:
        picture = _picture(
            "central-dynamics",
            "Loss and gradient norm over the steps of central training",
            central,
            quantities=_CENTRAL,
            step_label="step",
        )
        caption = "Central training: loss and gradient norm of each step; in long runs, means of neighbouring steps."
        elements.append(CaptionedFigure(picture, caption))
    return Section("dynamics", "Training dynamics", elements, [_csv_table(groups)])


def _federated_elements(groups: Sequence[RunGroup]) -> list[Element]:
    picture = _picture(
        "dynamics",
        "Losses and norms over central steps: local gradients, deltas before and after clipping, the server's average",
        groups,
        quantities=_FEDERATED,
        step_label="central step",
    )
    caption = (
        "Losses and norms, as means over the users of a step. Local gradients are also averaged over the local steps, "
        "and measured before local clipping. Compare the delta before and after clipping: the difference is lost to "
        "the bound. Compare the average before and after noise: if it grows a lot, the server mostly follows noise."
    )
    elements: list[Element] = [CaptionedFigure(picture, caption)]
    missing = sum(not _points(group, _GRADIENT)[0] for group in groups)
    if missing:
        text = f"{missing} of these runs did not log the local gradient, as in older versions."
        elements.append(Paragraph(text, "note"))
    return elements


def _picture(
    name: str, alt: str, groups: Sequence[RunGroup], *, quantities: Sequence[Quantity], step_label: str
) -> Picture:
    curves = {quantity.name: [thinned(*_points(group, quantity)) for group in groups] for quantity in quantities}
    panels = [
        Panel(quantity.title, _drawing(groups, curves[quantity.name], _span(quantity.name, curves), step_label))
        for quantity in quantities
    ]
    return make_picture(name, alt, panels, legend(groups))


def _points(group: RunGroup, quantity: Quantity) -> Points:
    """Return the steps of a group's first run that logged the quantity, and its values."""
    logged = [(line["step"], value) for line in group.first.steps if (value := quantity.read(line)) is not None]
    return [float(step) for step, _ in logged], [float(value) for _, value in logged]


def _span(name: str, curves: Mapping[str, Sequence[Points]]) -> tuple[float, float] | None:
    """Return the ends of a panel's axis; None where nothing was logged."""
    together = _ON_ONE_AXIS if name in _ON_ONE_AXIS else (name,)
    values = [y for other in together if other in curves for _, ys in curves[other] for y in ys if y > 0]
    return (min(values) / 1.15, max(values) * 1.15) if values else None


def _drawing(
    groups: Sequence[RunGroup], curves: Sequence[Points], span: tuple[float, float] | None, step_label: str
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for group, (xs, ys) in zip(groups, curves, strict=True):
            marker, label = "o" if len(xs) == 1 else None, hover_label(group.name)
            axes.plot(xs, ys, color=group.colour, linewidth=1.2, marker=marker, label=label)
        if any(ys for _, ys in curves) and span is not None:
            log_axis(axes, axes.yaxis, [], span)
        else:
            axes.text(0.5, 0.5, "not logged", transform=axes.transAxes, ha="center", va="center")
            axes.set_yticks([])
        axes.set_xlabel(step_label)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))

    return draw


def _csv_table(groups: Sequence[RunGroup]) -> CsvTable:
    names = list(dict.fromkeys(quantity.name for quantity in (*_FEDERATED, *_CENTRAL)))
    rows: list[list[CsvValue]] = []
    for run in all_runs(groups):
        readers = {quantity.name: quantity.read for quantity in (_FEDERATED if run.kind == "federated" else _CENTRAL)}
        for line in run.steps:
            values = [readers[name](line) if name in readers else None for name in names]
            rows.append([run.name, line["step"], *values])
    return CsvTable("dynamics", ["run", "step", *names], rows)
