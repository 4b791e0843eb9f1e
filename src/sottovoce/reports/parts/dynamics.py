"""How the training went, step by step: losses, gradients, deltas before and after clipping, the server's norms."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sottovoce.reports.drawing.blocks import Block, Drawn, Part, Sheet, Text, Value
from sottovoce.reports.drawing.charts import Panel, Picture, log_axis, make_picture, thinned
from sottovoce.reports.reading.groups import Group, group_keys
from sottovoce.reports.reading.layers import private
from sottovoce.reports.reading.metrics import Line

Find = Callable[[Line], Any]
Curve = tuple[list[float], list[float]]


def _before_noise(line: Line) -> Any:
    inside = private(line)
    # Without noise, before and after are one; only a run with diagnostics says so.
    return inside.get("server_norm_before_noise", line.get("server_norm") if inside else None)


_FEDERATED: tuple[tuple[str, str, Find], ...] = (
    ("loss", "loss of users", lambda line: private(line).get("loss")),
    ("gradient_norm", "local gradient", lambda line: private(line).get("gradient_norm")),
    ("delta_norm", "delta before clipping", lambda line: private(line).get("delta_norm")),
    ("delta_norm_clipped", "delta after clipping", lambda line: private(line).get("delta_norm_clipped")),
    ("server_norm_before_noise", "average before noise", _before_noise),
    ("server_norm", "average after noise", lambda line: line.get("server_norm")),
)
_CENTRAL: tuple[tuple[str, str, Find], ...] = (
    ("loss", "loss", lambda line: line.get("loss")),
    ("gradient_norm", "gradient before clipping", lambda line: line.get("gradient_norm")),
)


# On one scale, because they are to be compared.
_COMPARED = (("delta_norm", "delta_norm_clipped", "server_norm_before_noise", "server_norm"),)


def dynamics(groups: Sequence[Group]) -> Part:
    """Return the norms over steps."""
    blocks: list[Block] = []
    federated, central = ([group for group in groups if group.kind == kind] for kind in ("federated", "central"))
    if federated:
        alt = (
            "Losses and norms against central steps: gradients, deltas before and after clipping, the server's average"
        )
        caption = (
            "Means over the users of a step; local gradients over users and local steps, before local clipping. "
            "Compare the delta before and after clipping: what the bound takes away. And the average before and after "
            "noise: where it grows much, the server mostly follows noise."
        )
        missing = [group.name for group in federated if not _curve(group, _FEDERATED[1][2])[0]]
        blocks.append(Drawn(_picture("dynamics", alt, federated, _FEDERATED, "central step"), caption))
        if missing:
            blocks.append(
                Text(
                    f"Not noted by {len(missing)} of these runs: the local gradient, which older versions did not log.",
                    "note",
                )
            )
    if central:
        caption = (
            "Central training: loss and gradient of each step (means over neighbouring steps where there are many)."
        )
        alt = "Loss and gradient norm against steps of central training"
        blocks.append(Drawn(_picture("central-dynamics", alt, central, _CENTRAL, "step"), caption))
    names = list(dict.fromkeys(name for name, *_ in (*_FEDERATED, *_CENTRAL)))
    rows: list[list[Value]] = []
    for run in (run for group in groups for run in group.runs):
        finds = {name: find for name, _, find in (_FEDERATED if run.kind == "federated" else _CENTRAL)}
        for line in run.steps:
            rows.append([run.name, line["step"], *(finds[name](line) if name in finds else None for name in names)])
    return Part("dynamics", "Training dynamics", blocks, [Sheet("dynamics", ["run", "step", *names], rows)])


def _curve(group: Group, find: Find) -> Curve:
    points = [(float(line["step"]), float(value)) for line in group.first.steps if (value := find(line)) is not None]
    return [x for x, _ in points], [y for _, y in points]


def _picture(
    name: str, alt: str, groups: Sequence[Group], curves: Sequence[tuple[str, str, Find]], label: str
) -> Picture:
    found = {key: [thinned(*_curve(group, find)) for group in groups] for key, _, find in curves}
    panels = [Panel(title, _drawing(groups, found[key], _span(key, found), label)) for key, title, _ in curves]
    return make_picture(name, alt, panels, group_keys(groups))


def _span(key: str, found: Mapping[str, Sequence[Curve]]) -> tuple[float, float] | None:
    """Return the ends of a panel's axis: those that are to be compared share them. None where there is nothing."""
    together = next((keys for keys in _COMPARED if key in keys), (key,))
    values = [y for one in together if one in found for _, ys in found[one] for y in ys if y > 0]
    return (min(values) / 1.15, max(values) * 1.15) if values else None


def _drawing(
    groups: Sequence[Group], curves: Sequence[Curve], span: tuple[float, float] | None, label: str
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for group, (xs, ys) in zip(groups, curves, strict=True):
            axes.plot(xs, ys, color=group.colour, linewidth=1.2, marker="o" if len(xs) == 1 else None)
        if any(ys for _, ys in curves) and span is not None:
            log_axis(axes, axes.yaxis, [], span)
        else:
            axes.text(0.5, 0.5, "not noted", transform=axes.transAxes, ha="center", va="center")
            axes.set_yticks([])
        axes.set_xlabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))

    return draw
