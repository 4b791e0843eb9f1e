"""Charts with a named line of their own for every row or effect."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sottovoce.reports.drawing.charts import WIDE

_LINE_INCHES, _AROUND_INCHES = 0.24, 0.75


def line_height(lines: int) -> float:
    """Return the height of a chart with this many lines of text, relative to the usual one."""
    return (_AROUND_INCHES + _LINE_INCHES * lines) / WIDE[1]


def name_lines(axes: Axes, names: Sequence[str]) -> None:
    """Name the lines of a chart, the first one on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
