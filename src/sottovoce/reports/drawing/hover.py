"""The values behind a panel, for the page's script: it shows them where a reader points at the figure.

A drawing names its curves by `label=hover_label(...)`; curves without such a label show nothing. Everything else is
read from the axes once they are laid out: points, names of the axes, and where the axes lie in the SVG. The script
turns values into places by the ends and the scale of each axis, so the same values serve every size of a drawing.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter

from sottovoce.privacy.accounting import rounded_up

Shown = Literal["xy", "x", "y"]
AxisName = Literal["x", "y"]
_DIGITS = 5


def hover_label(*names: str, shows: Shown = "xy") -> str:
    """Return the label of a curve: one name for all of its points, or a name for each of them.

    `shows` says which of its values mean something. The other one only places the point.
    """
    return json.dumps({"names": names, "shows": shows})


def panel_values(axes: Axes, title: str, epsilon_axis: AxisName | None = None) -> str | None:
    """Return the values of a drawn panel as JSON; None where there is nothing to show.

    An axis without a label of its own is named after the panel. Values on an axis of epsilons are rounded up.
    """
    curves = [_curve(axes, line, epsilon_axis) for line in axes.get_lines()]
    known = [curve for curve in curves if curve is not None and curve["y"]]
    if not known:
        return None
    bounds, height = axes.get_window_extent(), axes.figure.bbox.height
    box = [bounds.x0, height - bounds.y1, bounds.x1, height - bounds.y0]
    document = {
        "box": [round(float(side), 2) for side in box],
        "x": _axis(axes.xaxis, ""),
        "y": _axis(axes.yaxis, title),
        "curves": known,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _axis(axis: Axis, title: str) -> dict[str, Any]:
    low, high = axis.get_view_interval()
    if axis.get_inverted():
        low, high = high, low
    described: dict[str, Any] = {"label": axis.get_label_text() or title, "ends": [float(low), float(high)]}
    if axis.get_scale() == "log":
        described["log"] = True
    formatter = axis.get_major_formatter()
    if isinstance(formatter, FixedFormatter):
        named = zip(axis.get_majorticklocs(), formatter.seq, strict=True)
        described["names"] = {f"{place:g}": " ".join(name.split()) for place, name in named}
    return described


def _curve(axes: Axes, line: Line2D, epsilon_axis: AxisName | None) -> dict[str, Any] | None:
    label = str(line.get_label())
    if not label.startswith("{"):
        return None
    described = json.loads(label)
    points = list(zip(*(np.asarray(data, dtype=np.float64).tolist() for data in line.get_data()), strict=True))
    names = described["names"]
    curve = {"colour": line.get_color(), "shows": described["shows"]}
    if line.get_transform() != axes.transData:  # a horizontal line across the panel
        return {**curve, "names": names, "flat": True, "shows": "y", "x": [], "y": _values([points[0][1]])}
    kept = [place for place, point in enumerate(points) if all(map(math.isfinite, point))]
    xs, ys = ([points[place][side] for place in kept] for side in (0, 1))
    named = [names[place] for place in kept] if len(names) == len(points) > 1 else names
    return {
        **curve,
        "names": named,
        "x": _values(xs, up=epsilon_axis == "x"),
        "y": _values(ys, up=epsilon_axis == "y"),
    }


def _values(values: Sequence[float], *, up: bool = False) -> list[float | int]:
    """Return values with few digits; an epsilon never becomes smaller."""
    return [_short(float(rounded_up(value)) if up else float(f"{value:.{_DIGITS}g}")) for value in values]


def _short(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
