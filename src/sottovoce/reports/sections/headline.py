"""The figure that opens the page: the WER of every run or row, or the progress of a single one."""

import math
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sottovoce.reports.drawing.charts import Panel, log_axis, make_picture, thinned
from sottovoce.reports.drawing.elements import CaptionedFigure
from sottovoce.reports.drawing.hover import hover_label
from sottovoce.reports.drawing.numbers import epsilon, percent
from sottovoce.reports.reading.layers import diagnostics, numbers
from sottovoce.reports.reading.records import RunRecord, SetName
from sottovoce.reports.reading.run_groups import RunGroup, benches_of, headline_set
from sottovoce.reports.sections.line_charts import line_height, name_lines

Curve = list[tuple[int, float]]  # steps and values
_NAME_WIDTH = 34  # characters in a line of a row's name
_ROOM = 1.42  # to the right of the highest WER, for what is written beside it


def headline_figure(groups: Sequence[RunGroup]) -> CaptionedFigure | None:
    """Return the figure; None where there is neither a WER nor a step to show."""
    return _progress(groups[0]) if len(groups) == 1 else _comparison(groups)


def _comparison(groups: Sequence[RunGroup]) -> CaptionedFigure | None:
    """Return the WER of every group, with a panel for each benchmark."""
    set_name = headline_set(groups)
    shown = [group for group in groups if group.wers(set_name)]
    if not shown:
        return None
    highest = max(100 * wer for group in shown for wer in group.wers(set_name))
    benches = benches_of(shown)
    panels = [
        _rows_panel([group for group in shown if group.bench == bench], bench, len(benches) > 1, set_name, highest)
        for bench in benches
    ]
    alt = f"WER on {set_name} of every run or row"
    picture = make_picture("wer-by-run", alt, panels, layout="wide" if len(benches) == 1 else "pair")
    return CaptionedFigure(picture, _comparison_caption(shown, set_name, several=len(benches) > 1))


def _comparison_caption(shown: Sequence[RunGroup], set_name: SetName, *, several: bool) -> str:
    sentences = [f"WER of the final models on {set_name}, in %; the lower the better."]
    if any(len(group.counted) > 1 for group in shown):
        sentences.append("Dots: means over seeds; strokes: single seeds.")
    if any(group.first.epsilons is not None for group in shown):
        sentences.append("Beside rows with a privacy guarantee: the ε that they spent.")
    if several:
        sentences.append("A panel for each benchmark, all on one axis. WERs on different sets do not compare.")
    return " ".join(sentences)


def _rows_panel(own: Sequence[RunGroup], bench: str | None, titled: bool, set_name: SetName, highest: float) -> Panel:
    names = [textwrap.fill(group.row if titled else group.name, _NAME_WIDTH) for group in own]

    def draw(axes: Axes) -> None:
        for place, group in enumerate(own):
            _draw_row(axes, place, group, set_name)
        name_lines(axes, names)
        axes.set_xlim(0, _ROOM * max(highest, 1.0))
        axes.set_xlabel(f"WER on {set_name}, %")

    title = (bench or "other runs") if titled else ""
    return Panel(title, draw, line_height(sum(name.count("\n") + 1 for name in names)))


def _draw_row(axes: Axes, place: int, group: RunGroup, set_name: SetName) -> None:
    wers = {run.name: 100 * wer for run in group.counted if (wer := run.wer(set_name)) is not None}
    mean = math.fsum(wers.values()) / len(wers)
    spent = group.first.tightest_epsilon
    guarantee = "" if spent is None else f", ε = {epsilon(spent)}"
    name = group.name
    if len(wers) > 1:
        label = hover_label(*wers, shows="x")
        axes.plot(
            list(wers.values()), [place] * len(wers), "|", color=group.colour, markersize=10, alpha=0.7, label=label
        )
        name += f", mean of {len(wers)} seeds"
    label = hover_label(f"{name}{guarantee}", shows="x")
    axes.plot([mean], [place], "o", color=group.colour, markersize=6, label=label)
    beside = (max(wers.values()), place)
    axes.annotate(f"{percent(mean / 100)}{guarantee}", beside, (9, 0), textcoords="offset points", va="center")


def _progress(group: RunGroup) -> CaptionedFigure | None:
    """Return WER, loss and epsilon over the steps of a single run or row, those that there are."""
    first = group.first
    federated = group.kind == "federated"
    named = [
        ("WER on dev, %", [_wers(run) for run in group.runs], False),
        ("loss of users" if federated else "loss", [_losses(run) for run in group.runs], False),
        ("ε spent", [_epsilons(run) for run in group.runs], True),
    ]
    panels = [_curve_panel(title, curves, group, private=private) for title, curves, private in named if any(curves)]
    if not panels:
        return None
    alt = f"{', '.join(panel.title for panel in panels)} over steps"
    picture = make_picture("progress", alt, panels)
    caption = "The training, step by step."
    if any(_wers(run) for run in group.runs):
        caption += " A WER that still falls at the last step needs more steps."
    if first.epsilons is not None:
        caption += " ε is the privacy spent so far, by RDP."
    return CaptionedFigure(picture, caption)


def _wers(run: RunRecord) -> Curve:
    return [(int(line["step"]), 100 * float(line["dev_wer"])) for line in run.dev_evaluations]


def _losses(run: RunRecord) -> Curve:
    values = [
        (int(line["step"]), numbers(line if run.kind == "central" else diagnostics(line)).get("loss"))
        for line in run.steps
    ]
    return [(step, value) for step, value in values if value is not None]


def _epsilons(run: RunRecord) -> Curve:
    return [(int(line["step"]), numbers(line)["epsilon"]) for line in run.steps if "epsilon" in numbers(line)]


def _few(curve: Curve) -> tuple[list[float], list[float]]:
    """Return some points of a curve with the last one: a mean of epsilons would be smaller than what was spent."""
    chosen = [*curve[:: -(-len(curve) // 240) or 1], *curve[-1:]]
    return [float(step) for step, _ in chosen], [value for _, value in chosen]


def _curve_panel(title: str, curves: Sequence[Curve], group: RunGroup, *, private: bool) -> Panel:
    def draw(axes: Axes) -> None:
        for run, curve in zip(group.runs, curves, strict=True):
            xs, ys = _few(curve) if private else thinned([float(step) for step, _ in curve], [y for _, y in curve])
            marker = "o" if len(xs) <= 40 else None
            label = hover_label(run.name)
            axes.plot(xs, ys, color=group.colour, marker=marker, markersize=3, label=label)
        axes.set_xlabel("step" if group.kind == "central" else "central step")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
        values = [value for curve in curves for _, value in curve]
        if private and min(values) > 0:
            log_axis(axes, axes.yaxis, values)
        else:
            axes.set_ylim(0, 1.06 * max(*values, 1e-9))

    return Panel(title, draw, epsilon_axis="y" if private else None)
