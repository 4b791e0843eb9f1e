"""A benchmark's rows and effects with their intervals, and its figures of rows that form a series."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from sottovoce.bench.effects import Series
from sottovoce.bench.preset import Size
from sottovoce.bench.result_tables import EFFECT_HEADER, effect_table, interval_note
from sottovoce.bench.results import RowResult
from sottovoce.bench.verdicts import EffectResult, effect_results
from sottovoce.evaluation.intervals import MeanOverSeeds
from sottovoce.reports.drawing.charts import INK, WIDE, LegendEntry, Panel, Picture, log_axis, make_picture
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
from sottovoce.reports.drawing.numbers import number
from sottovoce.reports.reading.run_groups import COLOURS

_OURS, _PAPERS = COLOURS[0], COLOURS[1]
_LINE_INCHES, _AROUND_INCHES = 0.24, 0.75  # of a chart with one line for each row
_NAME_WIDTH = 30  # characters in a line of an effect's name
_SCALES: tuple[Literal["points"], Literal["relative"]] = ("points", "relative")


def effects_section(size: Size, results: Sequence[RowResult]) -> Section:
    """Return the rows' WERs and the effects with their intervals beside the paper's, and the figures of series."""
    run = [result for result in results if result.wer]
    effects = effect_results(size.effects, results)
    measured = [effect for effect in effects if effect.ours is not None]
    elements: list[Element] = [Paragraph(esc(interval_note(results)) or "No row has run yet.")]
    if run:
        elements.append(CaptionedFigure(_rows_picture(run), _ROWS_CAPTION))
    if measured:
        elements.append(CaptionedFigure(_forest(measured), _FOREST_CAPTION))
    if effects:
        lines = [[esc(cell) for cell in line] for line in effect_table(effects)]
        elements.append(HtmlTable(list(EFFECT_HEADER), lines, _TABLE_CAPTION))
    elements += [
        CaptionedFigure(picture, f"{esc(figure.title)}: WER on {esc(figure.on)}. {_SERIES_CAPTION}")
        for place, figure in enumerate(size.figures, 1)
        if (picture := _series(figure, results, f"series-{place}")) is not None
    ]
    tables = [_rows_csv(run), _effects_csv(effects)]
    return Section("effects", "Effects of the paper", elements, tables)


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


def _rows_picture(results: Sequence[RowResult]) -> Picture:
    names = [result.row.name for result in results]

    def panel(label: str) -> Panel:
        def draw(axes: Axes) -> None:
            for place, result in enumerate(results):
                if label in result.wer:
                    _draw_estimate(axes, result.wer[label], place, _OURS)
                if label in result.paper:
                    _draw_hollow(axes, result.paper[label], place)
            _name_lines(axes, names)
            axes.set_xlim(left=0)
            axes.set_xlabel(f"WER on {label}, %")

        return Panel("", draw, _height(len(names)))

    labels = [label for label in ("dev", "test") if any(label in result.wer for result in results)]
    alt = "WER of every row with its interval, beside the paper's"
    legend = _LEGEND if any(result.paper for result in results) else []
    return make_picture("wer-by-row", alt, [panel(label) for label in labels], legend, wide=True)


def _forest(effects: Sequence[EffectResult]) -> Picture:
    def panel(scale: str, own: Sequence[EffectResult]) -> Panel:
        names = [textwrap.fill(effect.effect.name, _NAME_WIDTH) for effect in own]
        lines = sum(name.count("\n") + 1 for name in names)

        def draw(axes: Axes) -> None:
            for place, effect in enumerate(own):
                if effect.effect.within is not None or effect.effect.least is not None:
                    _shade(axes, effect.effect.range, place)
                if effect.ours is not None:
                    _draw_estimate(axes, effect.ours, place, _OURS)
                if effect.paper is not None:
                    _draw_hollow(axes, effect.paper, place)
            axes.axvline(0, color=INK, linewidth=1)
            _name_lines(axes, names)
            axes.set_xlabel("points of WER" if scale == "points" else "ratio of WERs, % above 1")

        return Panel("", draw, _height(max(lines, len(names))))

    by_scale = {scale: [effect for effect in effects if effect.effect.scale == scale] for scale in _SCALES}
    panels = [panel(scale, own) for scale, own in by_scale.items() if own]
    legend = _LEGEND if any(effect.paper is not None for effect in effects) else []
    return make_picture("effects", "Effects with their intervals, beside the paper's", panels, legend, wide=True)


def _height(lines: int) -> float:
    """Return the height of a chart with this many lines of text, relative to the usual one."""
    return (_AROUND_INCHES + _LINE_INCHES * lines) / WIDE[1]


def _shade(axes: Axes, agrees: tuple[float, float], place: float) -> None:
    """Shade the values that agree with the paper; as far as 0 where there is no upper end."""
    low, high = agrees
    high = max(low, 0.0) if math.isinf(high) else high
    axes.barh(place, high - low, 0.7, low, color=INK, alpha=0.12, linewidth=0)


def _draw_estimate(axes: Axes, estimate: MeanOverSeeds, place: float, colour: str) -> None:
    if estimate.interval is not None:
        axes.plot(estimate.interval, [place, place], color=colour, linewidth=2, solid_capstyle="butt")
    axes.plot([estimate.value], [place], "o", color=colour, markersize=5)


def _draw_hollow(axes: Axes, value: float, place: float) -> None:
    axes.plot([value], [place], "D", color=_PAPERS, markerfacecolor="none", markersize=5)


def _name_lines(axes: Axes, names: Sequence[str]) -> None:
    """Name the lines of a chart, the first one on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def _series(figure: Series, results: Sequence[RowResult], name: str) -> Picture | None:
    """Return a figure of WER over what rows differ in; None where none of its rows has run."""
    rows = {result.row.name: result for result in results}
    if not any(row in rows and figure.on in rows[row].wer for line in figure.lines.values() for row in line):
        return None
    categories = figure.categories

    def draw(axes: Axes) -> None:
        for index, line in enumerate(figure.lines.values()):
            places = {row: _place(place, categories) for row, place in line.items() if row in rows}
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
    return make_picture(name, figure.title, [Panel(figure.title, draw)], legend, wide=True)


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
    axes.plot(list(ours), values, "o-" if joined else "o", color=colour, markersize=5)
    style = "D--" if joined else "D"
    axes.plot(list(paper), list(paper.values()), style, color=colour, markerfacecolor="none", markersize=5, linewidth=1)


def _log_places(axes: Axes, figure: Series) -> None:
    """Make the axis logarithmic, with a label at every place where that is readable."""
    places = sorted({float(place) for line in figure.lines.values() for place in line.values()})
    log_axis(axes, axes.xaxis, places)
    if len(places) <= 8:
        axes.xaxis.set_major_locator(FixedLocator(places))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _rows_csv(results: Sequence[RowResult]) -> CsvTable:
    header = ["row", "set", "seeds", "wer_percent", "low", "high", "best_on_dev_percent", "paper_percent"]
    rows: list[list[CsvValue]] = []
    for result in results:
        for label, estimate in result.wer.items():
            best = result.best_wer.get(label)
            ends = estimate.interval or (None, None)
            paper = result.paper.get(label)
            figures = [estimate.value, *ends, None if best is None else best.value, paper]
            rows.append([result.row.name, label, len(estimate.seeds), *figures])
    return CsvTable("wer-by-row", header, rows)


def _effects_csv(effects: Sequence[EffectResult]) -> CsvTable:
    header = ["effect", "set", "scale", "seeds", "ours", "low", "high", "paper", "verdict"]
    rows: list[list[CsvValue]] = []
    for one in effects:
        ours = one.ours
        ends = (None, None) if ours is None or ours.interval is None else ours.interval
        seeds, value = (0, None) if ours is None else (len(ours.seeds), ours.value)
        rows.append([one.effect.name, one.effect.on, one.effect.scale, seeds, value, *ends, one.paper, one.verdict])
    return CsvTable("effects", header, rows)
