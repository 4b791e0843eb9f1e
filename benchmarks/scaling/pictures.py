"""The pictures of the page: measured laws with their fits, stragglers, the test of the simulation, parts of a step."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from content import Table
from documents import Measurements, Point
from fits import PHASES, Law, law_of, memory_law, phase_points, time_law
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.ticker import FixedLocator
from projection import PARTS, Projection
from stragglers import RULES, Workload
from validation import Prediction

from sottovoce.files import written_whole
from sottovoce.reports.drawing.charts import INK, LegendEntry, Panel, log_axis, make_picture

COLOURS = tuple(map(to_hex, mpl.color_sequences["tab10"]))
_FIT = "#8a8f98"


def save(
    path: Path, name: str, panels: Sequence[Panel], legend: Sequence[LegendEntry] = (), wide: bool = False
) -> None:
    """Draw a picture into a PNG file."""
    picture = make_picture(name, name, panels, legend, wide=wide)
    with written_whole(path / f"{name}.png") as file:
        file.write(picture.png)


def laws(measurements: Measurements, folder: Path) -> None:
    """Draw every measured law."""
    series = measurements.points
    panels = [
        Panel("seconds of a step by cohort size", _timed(series("cohort", "steps"))),
        Panel("peak MB by cohort size", _remembered(series("cohort", "steps"))),
        Panel("ms to draw 64 users by population", _drawn(series("population", "seeded cohort"))),
        Panel("seconds of a step by parameters", _phases(measurements)),
        Panel("seconds of a step by local steps", _timed(series("local-steps", "steps"), log=False)),
        Panel("seconds of a step by s of audio in a batch", _timed(series("audio", "steps"), log=False)),
    ]
    legend = [LegendEntry("fitted law: fixed + slope * x", _FIT, dashed=True)]
    legend += [
        LegendEntry(f"by parameters: {phase}" + " (CPU time)" * (phase == "noise"), COLOURS[place])
        for place, phase in enumerate(PHASES)
    ]
    save(folder, "scaling-laws", panels, legend)


def _timed(points: Sequence[Point], *, log: bool = True) -> Callable[[Axes], None]:
    return _scatter([point.x for point in points], [point.median for point in points], time_law(points), log=log)


def _drawn(points: Sequence[Point]) -> Callable[[Axes], None]:
    values = [1e3 * point.median for point in points]
    return _scatter([point.x for point in points], values, None, from_zero=True)


def _remembered(points: Sequence[Point]) -> Callable[[Axes], None]:
    values = [point.megabytes or 0.0 for point in points]
    return _scatter([point.x for point in points], values, memory_law(points), from_zero=True)


def _scatter(
    xs: Sequence[float], ys: Sequence[float], law: Law | None, *, log: bool = True, from_zero: bool = False
) -> Callable[[Axes], None]:
    """Return a function that draws points and their law; y is logarithmic with `log`, unless it starts at zero."""

    def draw(axes: Axes) -> None:
        if law is not None:
            axes.plot(xs, [law.at(x) for x in xs], color=_FIT, linestyle="--", linewidth=1.2)
        axes.plot(xs, ys, "o", color=COLOURS[0], markersize=4)
        if log:
            log_axis(axes, axes.xaxis, xs)
        if log and not from_zero:
            log_axis(axes, axes.yaxis, ys)
        else:
            axes.set_ylim(0, 1.25 * max(ys))

    return draw


def _phases(measurements: Measurements) -> Callable[[Axes], None]:
    points = phase_points(measurements)

    def draw(axes: Axes) -> None:
        for colour, own in zip(COLOURS, points.values(), strict=False):
            xs, ys = [x for x, _ in own], [y for _, y in own]
            law = law_of(own)
            axes.plot(xs, [law.at(x) for x in xs], color=colour, linestyle="--", linewidth=1)
            axes.plot(xs, ys, "o", color=colour, markersize=3.5)
        log_axis(axes, axes.xaxis, [x for own in points.values() for x, _ in own])
        log_axis(axes, axes.yaxis, [y for own in points.values() for _, y in own])

    return draw


def stragglers(table: Table, workloads: Sequence[Workload], cohort: int, workers: Sequence[int], folder: Path) -> None:
    """Draw the idle share by workers under every rule, for every workload."""

    def panel(workload: Workload) -> Panel:
        def draw(axes: Axes) -> None:
            for colour, rule in zip(COLOURS, RULES, strict=False):
                shares = [100 * table[workload.name, rule.name, cohort, count].idle for count in workers]
                axes.plot(workers, shares, "o", color=colour, markersize=3, linestyle="--" if rule.capped else "-")
            log_axis(axes, axes.xaxis, workers)
            axes.xaxis.set_major_locator(FixedLocator(list(workers)))
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.set_ylim(0, None)
            axes.set_xlabel("workers")

        return Panel(f"idle %, {workload.name}, S = {cohort:,}", draw, 1.25)

    legend = [LegendEntry(rule.name, colour, rule.capped) for colour, rule in zip(COLOURS, RULES, strict=False)]
    save(folder, "scaling-stragglers", [panel(workload) for workload in workloads], legend)


def validation(predictions: Sequence[Prediction], folder: Path) -> None:
    """Draw predicted against measured times and idle shares of steps with two workers."""

    def times(axes: Axes) -> None:
        xs = [prediction.measured.phases["users"] for prediction in predictions]
        ys = [prediction.users_seconds for prediction in predictions]
        _diagonal(axes, xs, ys, predictions)
        log_axis(axes, axes.xaxis, [*xs, *ys])
        log_axis(axes, axes.yaxis, [*xs, *ys])

    def idle(axes: Axes) -> None:
        xs = [100 * prediction.measured.idle for prediction in predictions]
        ys = [100 * prediction.idle for prediction in predictions]
        _diagonal(axes, xs, ys, predictions)

    panels = [Panel("users' part of a step, seconds", times, 1.2), Panel("idle share, %", idle, 1.2)]
    legend = [LegendEntry("the engine's shares", COLOURS[0]), LegendEntry("shares dealt at random", COLOURS[1])]
    save(folder, "scaling-validation", panels, legend)


def _diagonal(axes: Axes, xs: Sequence[float], ys: Sequence[float], predictions: Sequence[Prediction]) -> None:
    ends = [min(*xs, *ys), max(*xs, *ys)]
    axes.plot(ends, ends, color=_FIT, linestyle="--", linewidth=1)
    colours = [COLOURS[0] if prediction.measured.rule == "engine" else COLOURS[1] for prediction in predictions]
    axes.scatter(xs, ys, c=colours, s=14)
    axes.set_xlabel("measured")
    axes.set_ylabel("predicted")


def step_parts(rows: Sequence[tuple[str, Projection]], folder: Path) -> None:
    """Draw the parts of a central step as shares, one bar for every projected run."""

    def draw(axes: Axes) -> None:
        left = [0.0] * len(rows)
        for colour, part in zip(COLOURS, PARTS, strict=False):
            shares = [100 * projection.share(part) for _, projection in rows]
            axes.barh(range(len(rows)), shares, left=left, color=colour, height=0.7)
            left = [before + share for before, share in zip(left, shares, strict=True)]
        axes.set_yticks(range(len(rows)), [name for name, _ in rows], color=INK)
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.grid(visible=False, axis="y")

    legend = [LegendEntry(part, colour) for colour, part in zip(COLOURS, PARTS, strict=False)]
    save(folder, "scaling-parts", [Panel("% of the time of a central step", draw, 1.3)], legend, wide=True)
