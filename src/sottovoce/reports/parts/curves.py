"""How far the runs came: WER over central steps, WER against epsilon."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator

from sottovoce.reports.drawing.blocks import Drawn, Part, Sheet, Text, Value
from sottovoce.reports.drawing.charts import INK, Key, Panel, log_axis, log_ticks, make_picture
from sottovoce.reports.drawing.numbers import PROTECTS_NOBODY
from sottovoce.reports.reading.groups import Group, group_keys
from sottovoce.reports.reading.records import Record, Which, claimed_epsilon, tightest


def over_steps(groups: Sequence[Group]) -> Part:
    """Return WER on dev against central steps; central runs are lines to compare with."""
    learners = [group for group in groups if group.kind == "federated"] or list(groups)
    curves = {group.name: [run for run in group.runs if run.evaluations] for group in learners}
    bounds = [group for group in groups if group not in learners and group.wers("dev")]
    rows: list[list[Value]] = [
        [run.name, line["step"], line["dev_wer"], line.get("dev_loss")]
        for group in groups
        for run in group.runs
        for line in run.evaluations
    ]
    sheet = Sheet("wer-over-steps", ["run", "step", "dev_wer", "dev_loss"], rows)
    title = "WER over steps"
    if not any(curves.values()):
        return Part(
            "steps", title, [Text("No run was evaluated on dev while it trained: give one with --dev.")], [sheet]
        )
    central = learners[0].kind == "central"

    def draw(axes: Axes) -> None:
        for group in learners:
            for run in curves[group.name]:
                xs, ys = _points(run)
                axes.plot(xs, ys, color=group.colour, marker="o", markersize=3)
        for group in bounds:
            axes.axhline(100 * _mean(group.wers("dev")), color=group.colour, linestyle="--", linewidth=1.2)
        axes.set_xlabel("step" if central else "central step")
        axes.set_ylabel("WER on dev, %")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        axes.set_ylim(0, 1.06 * axes.get_ylim()[1])

    keys = [Key(group.name, group.colour) for group in learners if curves[group.name]]
    keys += [Key(f"{group.name} (central, its final model)", group.colour, dashed=True) for group in bounds]
    picture = make_picture(
        "wer-over-steps", "WER on dev against steps, a line per run", [Panel("", draw)], keys[1:] and keys, wide=True
    )
    caption = "How fast each run learns, and where it levels off. "
    if bounds:
        caption += "Dashed: the final WER of models that were trained centrally, each on data of its own. "
    caption += "A line that still falls at its end has not had enough steps."
    return Part("steps", title, [Drawn(picture, caption)], [sheet])


def _points(run: Record) -> tuple[list[int], list[float]]:
    found = {int(line["step"]): 100 * float(line["dev_wer"]) for line in run.evaluations}
    return list(found), list(found.values())


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def over_epsilon(groups: Sequence[Group]) -> Part:
    """Return WER against epsilon, measured and claimed; runs without a guarantee stand at the side."""
    which: Which = "test" if all(group.wers("test") for group in groups) else "dev"
    shown = [group for group in groups if group.wers(which)]
    private = [group for group in shown if tightest(group.first) is not None]
    rows = [row for group in groups for row in _privacy_rows(group)]
    sheet = Sheet("wer-over-epsilon", ["run", "S", "K", "epsilon", "measured", "wer_dev", "wer_test"], rows)
    title = "WER against privacy"
    if not private:
        text = "No run of this page has both a guarantee and a WER, so there is nothing to weigh against each other."
        return Part("privacy-utility", title, [Text(text)], [sheet])

    def draw(axes: Axes) -> None:
        _draw_privacy(axes, shown, which)

    keys = group_keys(shown)
    alt = f"WER on {which} against epsilon on a logarithmic axis"
    picture = make_picture("wer-over-epsilon", alt, [Panel("", draw)], keys, wide=True)
    caption = "Down is better, left is more private. Filled: WER and ε measured together. "
    if any(group.first.row.get("claims") for group in private):
        caption += (
            "Hollow, at the end of a dotted line: ε claimed for a larger S and K at the same σ<sub>DP</sub>; the WER "
            "is the one that was measured at the simulated sizes. "
        )
    if len(private) < len(shown):
        caption += "At the side: runs without a guarantee. "
    if any((tightest(run) or 0.0) > PROTECTS_NOBODY for group in private for run in group.runs):
        caption += "An ε of hundreds or more protects nobody; it is what this noise gives in so small a population."
    return Part("privacy-utility", title, [Drawn(picture, caption)], [sheet])


def _draw_privacy(axes: Axes, shown: Sequence[Group], which: Which) -> None:
    epsilons: list[float] = []
    for group in shown:
        for run in group.runs:
            at, wer = tightest(run), run.wer(which)
            if at is None or wer is None:
                continue
            epsilons.append(at)
            claims = [found for claim in run.row.get("claims") or [] if (found := claimed_epsilon(claim)) is not None]
            axes.plot([at, *claims], [100 * wer] * (1 + len(claims)), color=group.colour, linestyle=":", linewidth=1)
            axes.plot(claims, [100 * wer] * len(claims), "o", color=group.colour, markerfacecolor="none", markersize=7)
            axes.plot([at], [100 * wer], "o", color=group.colour, markersize=7)
            epsilons += claims
    low, high = min(epsilons), max(epsilons)
    room = max((high / low) ** 0.15, 2.0)
    beside = [group for group in shown if all(tightest(run) is None for run in group.runs)]
    log_axis(axes, axes.xaxis, epsilons, (low / room, high * room ** (3 if beside else 1)))
    axes.xaxis.set_major_locator(FixedLocator(log_ticks(low / room, high * room)))
    if beside:
        axes.axvline(high * room, color=INK, linewidth=0.8, alpha=0.5)
        for group in beside:
            wers = group.wers(which)
            axes.plot([high * room**2] * len(wers), [100 * wer for wer in wers], "s", color=group.colour, markersize=6)
        axes.text(high * room**2, 1.0, "no guarantee", transform=axes.get_xaxis_transform(), ha="center", va="bottom")
    axes.set_xlabel("ε (logarithmic)")
    axes.set_ylabel(f"WER on {which}, %")
    axes.set_ylim(0, 112 * max(max(group.wers(which)) for group in shown))


def _privacy_rows(group: Group) -> list[list[Value]]:
    rows: list[list[Value]] = []
    for run in group.runs:
        wers = [run.wer("dev"), run.wer("test")]
        rows.append([run.name, run.cohort_size, run.population, tightest(run), "measured", *wers])
        for claim in run.row.get("claims") or []:
            sizes = [claim.get("cohort_size"), claim.get("population")]
            rows.append(
                [run.name, *sizes, claimed_epsilon(claim), "extrapolated: WER is of the simulated S and K", *wers]
            )
    return rows
