"""Pictures that fit a phone, a wide screen and paper, in light and dark colours.

A picture consists of one or more panels. On the page, each panel is an SVG of its own, so the panels fill as many
columns as fit the screen, and text and grid lines take the page's colours. A panel that has a line of the page to
itself is drawn twice, for wide and for narrow windows, because letters grow with an SVG. The PNG file shows all panels
together on white.
"""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from sottovoce.reports.drawing.hover import AxisName, panel_values
from sottovoce.reports.drawing.numbers import number

INK, GRID = "#2b2d31", "#d6d8dc"  # in an SVG, the page's own colours replace them
_STYLE: Any = {
    "font.size": 9.0,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "sottovoce",
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "text.parse_math": False,
}
SMALL, WIDE, BROAD = (3.25, 2.3), (4.5, 2.8), (8.5, 3.1)  # inches: of many panels, of one or two, on a wide screen
_SVG_DPI, _PNG_DPI = 72, 150
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


@dataclass(frozen=True)
class LegendEntry:
    """The meaning of a colour or a line style."""

    label: str
    colour: str
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One panel of a picture: its title and the function that draws it."""

    title: str
    draw: Callable[[Axes], None]
    height: float = 1.0  # relative to the usual height
    epsilon_axis: AxisName | None = None  # its values are shown rounded up


@dataclass(frozen=True)
class DrawnPanel:
    """A panel as an SVG, and the values behind it as JSON; None where none can be shown."""

    svg: str
    values: str | None


Layout = Literal["wide", "pair", "many"]
"""How many panels share a line of a wide page: one, two, or as many as fit."""


@dataclass(frozen=True)
class Picture:
    """A picture, drawn: every panel as an SVG, and one PNG."""

    name: str
    alt: str
    panels: tuple[DrawnPanel, ...]
    broad: tuple[DrawnPanel, ...]  # the same panels for wide screens; only where each has a line to itself
    png: Callable[[], bytes]
    legend: tuple[LegendEntry, ...]
    layout: Layout


def make_picture(
    name: str,
    alt: str,
    panels: Sequence[Panel],
    legend: Sequence[LegendEntry] = (),
    layout: Layout | None = None,
) -> Picture:
    """Draw the panels, each as an SVG; `alt` describes the picture to screen readers.

    The layout follows from the number of panels where it is not given. The PNG is drawn when it is asked for.
    """
    if layout is None:
        layout = "wide" if len(panels) == 1 else "pair" if len(panels) == 2 else "many"
    size = SMALL if layout == "many" else WIDE
    with mpl.rc_context(_STYLE):
        drawn = tuple(_drawn(panel, f"{name}-{index}", size) for index, panel in enumerate(panels))
        broad = tuple(
            _drawn(panel, f"{name}-{index}-broad", _broad(panel))
            for index, panel in enumerate(panels)
            if layout == "wide"
        )
    return Picture(name, alt, drawn, broad, lambda: _png(panels, legend, layout), tuple(legend), layout)


def _broad(panel: Panel) -> tuple[float, float]:
    """Return the size of a panel on a wide screen; one with lines of text is as high as on a narrow one."""
    return BROAD if panel.height <= 1 else (BROAD[0], WIDE[1])


def _drawn(panel: Panel, prefix: str, size: tuple[float, float]) -> DrawnPanel:
    width, height = size
    figure = Figure(figsize=(width, height * panel.height), dpi=_SVG_DPI, layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    axes.set_title(panel.title)
    panel.draw(axes)
    _lay_out(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    return DrawnPanel(
        _embedded(buffer.getvalue(), prefix), panel_values(axes, panel.title or "value", panel.epsilon_axis)
    )


def _lay_out(figure: Figure) -> None:
    """Place everything for good. A figure that still has a layout engine when it is saved is drawn twice."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def _embedded(svg: str, prefix: str) -> str:
    """Return an SVG for use inside a page: it takes size and colours from the page, and its ids get the prefix.

    It has no styles of its own, only attributes: a page may then forbid all styles but its style sheet.
    """
    svg = svg[svg.index("<svg") :]
    for side in ("width", "height"):
        svg = re.sub(rf'(<svg[^>]*?) {side}="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    svg = re.sub(r'xlink:href="#', f'xlink:href="#{prefix}-', svg)
    svg = re.sub(r' style="([^"]*)"', _as_attributes, svg)
    svg = svg.replace("<svg", '<svg aria-hidden="true" stroke-linejoin="round" stroke-linecap="butt"', 1)
    return svg.replace(INK, "currentColor").replace(GRID, "var(--grid)")


def _as_attributes(style: re.Match[str]) -> str:
    """Return the declarations of a style as attributes; the page chooses the font."""
    pairs = (declaration.partition(":") for declaration in style[1].split(";"))
    kept = ((key.strip(), value.strip()) for key, _, value in pairs if key.strip() != "font-family")
    return "".join(f' {key}="{value}"' for key, value in kept if value)


def _png(panels: Sequence[Panel], legend: Sequence[LegendEntry], layout: Layout) -> bytes:
    columns = 1 if layout == "wide" else 2 if len(panels) in (2, 4) else 3
    rows = -(-len(panels) // columns)
    width, height = SMALL if layout == "many" else WIDE
    tallest = max(panel.height for panel in panels)
    size = (width * columns, height * tallest * rows + 0.22 * len(legend))
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, dpi=_PNG_DPI, layout="constrained")
        FigureCanvasAgg(figure)
        for position, panel in enumerate(panels, 1):
            axes = figure.add_subplot(rows, columns, position)
            axes.set_title(panel.title)
            panel.draw(axes)
        if legend:
            handles = [Line2D([], [], color=entry.colour, linestyle="--" if entry.dashed else "-") for entry in legend]
            figure.legend(handles, [entry.label for entry in legend], loc="outside lower left")
        _lay_out(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def log_axis(axes: Axes, axis: Axis, values: Sequence[float], span: tuple[float, float] | None = None) -> None:
    """Make an axis logarithmic, with a few plain labels; without a span it covers the positive values."""
    positive = [value for value in values if value > 0]
    if span is None:
        low, high = (min(positive), max(positive)) if positive else (0.1, 1.0)
        margin = max((high / low) ** 0.06, 1.04)
        span = (low / margin, high * margin)
    horizontal = axis is axes.xaxis
    (axes.set_xscale if horizontal else axes.set_yscale)("log")
    (axes.set_xlim if horizontal else axes.set_ylim)(*span)
    axis.set_major_locator(FixedLocator(log_ticks(*span)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def log_ticks(low: float, high: float) -> list[float]:
    """Return one to seven round numbers between two positive ones; three or more unless the ends are very close."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for stride in range(8, 0, -1):
        ticks = [10.0**power for power in decades if power % stride == 0 and low <= 10.0**power <= high]
        if 4 <= len(ticks) <= 7:
            return ticks
    for digits in ((1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [digit * 10.0**power for power in decades for digit in digits if low <= digit * 10.0**power <= high]
        if 3 <= len(ticks) <= 7:
            return ticks
    return _even_ticks(low, high)


def _even_ticks(low: float, high: float) -> list[float]:
    """Return evenly spaced numbers, for ends less than a decade apart."""
    for most in (4, 5, 6, 7):
        evenly = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        ticks = [float(tick) for tick in evenly if low <= tick <= high]
        if len(ticks) >= 3:
            break
    return ticks


def thinned(xs: Sequence[float], ys: Sequence[float], most: int = 240) -> tuple[list[float], list[float]]:
    """Return a curve with at most `most` points: each is the mean of neighbouring points."""
    size = -(-len(xs) // most) or 1
    starts = range(0, len(xs), size)
    return _means(xs, starts, size), _means(ys, starts, size)


def _means(values: Sequence[float], starts: Sequence[int], size: int) -> list[float]:
    chunks = (values[start : start + size] for start in starts)
    return [sum(chunk) / len(chunk) for chunk in chunks]
