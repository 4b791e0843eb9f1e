"""A benchmark's rows and effects with their intervals, and its figures of rows that form a series."""

import math
import re
import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sottovoce.bench.effects import Series
from sottovoce.bench.preset import Size
from sottovoce.bench.prices import PRICE_HEADER, price_note, price_rows, price_table
from sottovoce.bench.result_tables import EFFECT_HEADER, effect_table, interval_note
from sottovoce.bench.results import RowResult
from sottovoce.bench.verdicts import EffectResult, effect_results
from sottovoce.evaluation.intervals import MeanOverSeeds, Scale
from sottovoce.reports.drawing.charts import INK, LegendEntry, Panel, Picture, log_axis, make_picture
from sottovoce.reports.drawing.elements import (
    CaptionedFigure,
    CsvTable,
    CsvValue,
    Element,
    HtmlTable,
    Paragraph,
    Section,
    esc,
)
from sottovoce.reports.drawing.hover import hover_label
from sottovoce.reports.drawing.numbers import number
from sottovoce.reports.reading.run_groups import COLOURS
from sottovoce.reports.sections.line_charts import line_height, name_lines

_OURS, _PAPERS = COLOURS[0], COLOURS[1]
_NAME_WIDTH = 30  # characters in a line of an effect's name
_SCALES: dict[Scale, str] = {
    "points": "points of WER",
    "relative": "ratio of WERs, % above 1",
    "times": "ratio of norms of layers",
}


def effects_section(size: Size, results: Sequence[RowResult], bench: str = "") -> Section:
    """Return the rows' WERs and the effects with their intervals beside the paper's, and the figures of series.

    A page about several benchmarks has such a section of each `bench`, with files of their own.
    """
    suffix = f"-{re.sub(r'[^a-z0-9]+', '-', bench.lower())}" if bench else ""
    run = [result for result in results if result.wer]
    effects = effect_results(size.effects, results)
    measured = [effect for effect in effects if effect.ours is not None]
    elements: list[Element] = [Paragraph(esc(interval_note(results)) or "No row has run yet.")]
    if run:
        elements.append(CaptionedFigure(_rows_picture(run, f"wer-by-row{suffix}"), _ROWS_CAPTION))
    if measured:
        elements.append(CaptionedFigure(_forest(measured, f"effects{suffix}"), _FOREST_CAPTION))
    if effects:
        lines = [[esc(cell) for cell in line] for line in effect_table(effects)]
        elements.append(HtmlTable(list(EFFECT_HEADER), lines, _TABLE_CAPTION))
    if prices := price_rows(size.prices, results):
        lines = [[esc(cell) for cell in line] for line in price_table(prices)]
        elements.append(HtmlTable(list(PRICE_HEADER), lines, esc(price_note(prices))))
    elements += [
        CaptionedFigure(picture, f"{esc(figure.title)}: WER on {esc(figure.on)}. {_SERIES_CAPTION}")
        for place, figure in enumerate(size.figures, 1)
        if (picture := _series(figure, results, f"series{suffix}-{place}")) is not None
    ]
    tables = [_rows_csv(run, f"wer-by-row{suffix}"), _effects_csv(effects, f"effects{suffix}")]
    title = f"Effects of the paper: {bench}" if bench else "Effects of the paper"
    return Section(f"effects{suffix}", title, elements, tables)


_ROWS_CAPTION = (
    "WER of every row with its 95 % interval (filled), and what the paper prints for the row that it stands for "
    "(hollow). Ours and the paper's are of different models on different data: compare the order of the rows."
)
_FOREST_CAPTION = (
    "Each effect with its 95 % interval (filled): right of the line is the paper's direction. Hollow: the paper's own "
    "value. Where the paper finds no difference, or no gain, a band shows the margin. An interval across the line "
    "cannot tell."
)
_TABLE_CAPTION = (
    "Agrees: the whole interval lies in the paper's direction, over two seeds or more. Disagrees: the whole interval "
    "lies against it. Rows share speakers and seeds, so the interval of a difference is narrower than those of its "
    "rows suggest."
)
_SERIES_CAPTION = (
    "Bars: 95 % intervals. Dashed, with hollow points: the paper's numbers for the rows that ours stand for, at our "
    "rows' places."
)
_LEGEND = [LegendEntry("ours", _OURS), LegendEntry("the paper's", _PAPERS)]


def _rows_picture(results: Sequence[RowResult], name: str) -> Picture:
    names = [result.row.name for result in results]

    def panel(label: str) -> Panel:
        def draw(axes: Axes) -> None:
            for place, result in enumerate(results):
                if label in result.wer:
                    _draw_estimate(axes, result.wer[label], place, result.row.name, _OURS)
                if label in result.paper:
                    _draw_hollow(axes, result.paper[label], place, result.row.name)
            name_lines(axes, names)
            axes.set_xlim(left=0)
            axes.set_xlabel(f"WER on {label}, %")

        return Panel("", draw, line_height(len(names)))

    labels = [label for label in ("dev", "test") if any(label in result.wer for result in results)]
    alt = "WER of every row with its interval, beside the paper's"
    legend = _LEGEND if any(result.paper for result in results) else []
    return make_picture(name, alt, [panel(label) for label in labels], legend, layout="wide")


def _forest(effects: Sequence[EffectResult], name: str) -> Picture:
    def panel(scale: Scale, own: Sequence[EffectResult]) -> Panel:
        names = [textwrap.fill(effect.effect.name, _NAME_WIDTH) for effect in own]
        lines = sum(name.count("\n") + 1 for name in names)

        def draw(axes: Axes) -> None:
            for place, effect in enumerate(own):
                if effect.effect.within is not None or effect.effect.least is not None:
                    _shade(axes, effect.effect.range, place, effect.effect.nothing)
                if effect.ours is not None:
                    _draw_estimate(axes, effect.ours, place, effect.effect.name, _OURS)
                if effect.paper is not None:
                    _draw_hollow(axes, effect.paper, place, effect.effect.name)
            axes.axvline(own[0].effect.nothing, color=INK, linewidth=1)
            name_lines(axes, names)
            if scale == "times":
                log_axis(axes, axes.xaxis, _ends(own))
            axes.set_xlabel(_SCALES[scale])

        return Panel("", draw, line_height(max(lines, len(names))))

    by_scale = {scale: [effect for effect in effects if effect.effect.scale == scale] for scale in _SCALES}
    panels = [panel(scale, own) for scale, own in by_scale.items() if own]
    legend = _LEGEND if any(effect.paper is not None for effect in effects) else []
    return make_picture(name, "Effects with their intervals, beside the paper's", panels, legend, layout="wide")


def _ends(effects: Sequence[EffectResult]) -> list[float]:
    """Return all values that a chart of effects shows."""
    shown = [one.ours for one in effects if one.ours is not None]
    return [effects[0].effect.nothing, *(end for ours in shown for end in (ours.value, *(ours.interval or ())))]


def _shade(axes: Axes, agrees: tuple[float, float], place: float, nothing: float) -> None:
    """Shade the values that agree with the paper; as far as no effect where there is no upper end."""
    low, high = agrees
    high = max(low, nothing) if math.isinf(high) else high
    axes.barh(place, high - low, 0.7, low, color=INK, alpha=0.12, linewidth=0)


def _interval(estimate: MeanOverSeeds) -> str:
    if estimate.interval is None:
        return ""
    low, high = estimate.interval
    return f", 95 % interval {number(low)} to {number(high)}"


def _draw_estimate(axes: Axes, estimate: MeanOverSeeds, place: float, name: str, colour: str) -> None:
    if estimate.interval is not None:
        axes.plot(estimate.interval, [place, place], color=colour, linewidth=2, solid_capstyle="butt")
    label = hover_label(f"{name}{_interval(estimate)}", shows="x")
    axes.plot([estimate.value], [place], "o", color=colour, markersize=5, label=label)


def _draw_hollow(axes: Axes, value: float, place: float, name: str) -> None:
    label = hover_label(f"{name}, the paper's", shows="x")
    axes.plot([value], [place], "D", color=_PAPERS, markerfacecolor="none", markersize=5, label=label)


def _series(figure: Series, results: Sequence[RowResult], name: str) -> Picture | None:
    """Return a figure of WER over what rows differ in; None where none of its rows has run."""
    rows = {result.row.name: result for result in results}
    if not any(row in rows and figure.on in rows[row].wer for line in figure.lines.values() for row in line):
        return None
    categories = figure.categories

    def draw(axes: Axes) -> None:
        for index, line in enumerate(figure.lines.values()):
            # Points of one category stand side by side, so that their intervals can be told apart.
            aside = 0 if categories is None else 0.12 * (index - (len(figure.lines) - 1) / 2)
            places = {row: _place(place, categories) + aside for row, place in line.items() if row in rows}
            drawn = {rows[row]: x for row, x in places.items()}
            _draw_line(axes, figure.on, drawn, COLOURS[index % len(COLOURS)], joined=categories is None)
        if categories is not None:
            axes.set_xticks(range(len(categories)), [textwrap.fill(text, 12) for text in categories])
            axes.set_xlim(-0.5, len(categories) - 0.5)
        elif figure.log:
            _log_places(axes, figure)
        axes.set_xlabel(figure.x)
        axes.set_ylabel(f"WER on {figure.on}, %")
        axes.set_ylim(bottom=0)

    legend = [LegendEntry(text, COLOURS[index % len(COLOURS)]) for index, text in enumerate(figure.lines)]
    if any(figure.on in rows[row].paper for line in figure.lines.values() for row in line if row in rows):
        legend.append(LegendEntry("the paper's, in the same colour", INK, dashed=True))
    return make_picture(name, figure.title, [Panel(figure.title, draw)], legend)


def _place(place: float | str, categories: Sequence[str] | None) -> float:
    return float(categories.index(str(place)) if categories is not None else place)


def _draw_line(axes: Axes, label: str, places: Mapping[RowResult, float], colour: str, *, joined: bool) -> None:
    """Draw a line of ours with its intervals and one of the paper's; points of categories are not joined."""
    ours = {x: row.wer[label] for row, x in places.items() if label in row.wer}
    paper = {x: row.paper[label] for row, x in places.items() if label in row.paper}
    for x, estimate in ours.items():
        if estimate.interval is not None:
            axes.plot([x, x], estimate.interval, color=colour, linewidth=2, alpha=0.6, solid_capstyle="butt")
    values = [estimate.value for estimate in ours.values()]
    named = hover_label(*(f"{row.row.name}{_interval(row.wer[label])}" for row in places if label in row.wer))
    axes.plot(list(ours), values, "o-" if joined else "o", color=colour, markersize=5, label=named)
    style = "D--" if joined else "D"
    named = hover_label(*(f"{row.row.name}, the paper's" for row in places if label in row.paper))
    axes.plot(
        *(list(paper), list(paper.values()), style),
        color=colour,
        markerfacecolor="none",
        markersize=5,
        linewidth=1,
        label=named,
    )


def _log_places(axes: Axes, figure: Series) -> None:
    """Make the axis logarithmic, with a label at every place where that is readable."""
    places = sorted({float(place) for line in figure.lines.values() for place in line.values()})
    log_axis(axes, axes.xaxis, places)
    if len(places) <= 8:
        axes.xaxis.set_major_locator(FixedLocator(places))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _rows_csv(results: Sequence[RowResult], name: str) -> CsvTable:
    header = ["row", "set", "seeds", "wer_percent", "low", "high", "best_on_dev_percent", "paper_percent"]
    rows: list[list[CsvValue]] = []
    for result in results:
        for label, estimate in result.wer.items():
            best = result.best_wer.get(label)
            ends = estimate.interval or (None, None)
            paper = result.paper.get(label)
            figures = [estimate.value, *ends, None if best is None else best.value, paper]
            rows.append([result.row.name, label, len(estimate.seeds), *figures])
    return CsvTable(name, header, rows)


def _effects_csv(effects: Sequence[EffectResult], name: str) -> CsvTable:
    header = ["effect", "set", "scale", "seeds", "ours", "low", "high", "paper", "verdict"]
    rows: list[list[CsvValue]] = []
    for one in effects:
        ours = one.ours
        ends = (None, None) if ours is None or ours.interval is None else ours.interval
        seeds, value = (0, None) if ours is None else (len(ours.seeds), ours.value)
        what = [one.effect.name, one.effect.measured_on, one.effect.scale]
        rows.append([*what, seeds, value, *ends, one.paper, one.verdict])
    return CsvTable(name, header, rows)
