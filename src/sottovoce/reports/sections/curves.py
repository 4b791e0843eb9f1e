"""WER over central steps, and WER against epsilon."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator

from sottovoce.privacy.epsilons import PROTECTS_NOBODY
from sottovoce.reports.drawing.charts import INK, LegendEntry, Panel, Picture, log_axis, log_ticks, make_picture
from sottovoce.reports.drawing.elements import CaptionedFigure, CsvTable, CsvValue, Paragraph, Section
from sottovoce.reports.drawing.hover import hover_label
from sottovoce.reports.reading.records import RunRecord, SetName
from sottovoce.reports.reading.run_groups import RunGroup, all_runs, headline_set, legend


def steps_section(groups: Sequence[RunGroup]) -> Section:
    """Return the WER on dev over the steps; beside federated runs, central runs are horizontal lines.

    A single run has nothing to show here: the page opens with its curve.
    """
    learners = [group for group in groups if group.kind == "federated"] or list(groups)
    references = [group for group in groups if group not in learners and group.wers("dev")]
    rows: list[list[CsvValue]] = [
        [run.name, line["step"], line["dev_wer"], line.get("dev_loss")]
        for run in all_runs(groups)
        for line in run.dev_evaluations
    ]
    table = CsvTable("wer-over-steps", ["run", "step", "dev_wer", "dev_loss"], rows)
    title = "WER over steps"
    if not any(run.dev_evaluations for run in all_runs(learners)):
        text = "No run was evaluated on dev during its training. Give a dev set with --dev."
        return Section("steps", title, [Paragraph(text)], [table])
    if len(groups) == 1:  # the page opens with this curve
        return Section("steps", title, [], [table])
    caption = "WER on dev at every evaluation during training. "
    if references:
        caption += "Dashed: the final WER of models that were trained centrally, each on its own data. "
    caption += "A curve that still falls at its last step needs more steps."
    return Section("steps", title, [CaptionedFigure(_steps_picture(learners, references), caption)], [table])


def _steps_picture(learners: Sequence[RunGroup], references: Sequence[RunGroup]) -> Picture:
    central = learners[0].kind == "central"

    def draw(axes: Axes) -> None:
        for group in learners:
            for run in group.runs:
                wers = {int(line["step"]): 100 * float(line["dev_wer"]) for line in run.dev_evaluations}
                label = hover_label(run.name)
                axes.plot(list(wers), list(wers.values()), color=group.colour, marker="o", markersize=3, label=label)
        for group in references:
            height, label = 100 * _mean(group.wers("dev")), hover_label(f"{group.name}, final model")
            axes.axhline(height, color=group.colour, linestyle="--", linewidth=1.2, label=label)
        axes.set_xlabel("step" if central else "central step")
        axes.set_ylabel("WER on dev, %")
        first, last = axes.get_xlim()
        if last - first < 2:  # a single evaluation
            axes.set_xlim(0, last)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        axes.set_ylim(0, 1.06 * axes.get_ylim()[1])

    entries = [LegendEntry(group.name, group.colour) for group in learners if _evaluated(group)]
    entries += [LegendEntry(f"{group.name} (central, final model)", group.colour, dashed=True) for group in references]
    alt = "WER on dev over steps, one line per run"
    return make_picture("wer-over-steps", alt, [Panel("", draw)], entries if len(entries) > 1 else [])


def _evaluated(group: RunGroup) -> bool:
    return any(run.dev_evaluations for run in group.runs)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def privacy_utility_section(groups: Sequence[RunGroup]) -> Section:
    """Return the WER against epsilon, measured and extrapolated; runs without a guarantee are at the side.

    A single point has nothing to show here: the page opens with its WER and epsilon.
    """
    set_name = headline_set(groups)
    shown = [group for group in groups if group.wers(set_name)]
    private = [group for group in shown if group.first.epsilons is not None]
    rows = [row for run in all_runs(groups) for row in _privacy_rows(run)]
    table = CsvTable("wer-over-epsilon", ["run", "S", "K", "epsilon", "measured", "wer_dev", "wer_test"], rows)
    title = "WER against privacy"
    if len(groups) == 1 and not groups[0].first.claims:
        return Section("privacy-utility", title, [], [table])
    if not private:
        text = "No run on this page has both a privacy guarantee and a WER, so there is nothing to compare."
        return Section("privacy-utility", title, [Paragraph(text)], [table])

    def draw(axes: Axes) -> None:
        _draw_privacy(axes, shown, set_name)

    alt = f"WER on {set_name} against epsilon on a logarithmic axis"
    panel = Panel("", draw, epsilon_axis="x")
    picture = make_picture("wer-over-epsilon", alt, [panel], legend(shown))
    return Section("privacy-utility", title, [CaptionedFigure(picture, _privacy_caption(shown, private))], [table])


def _privacy_caption(shown: Sequence[RunGroup], private: Sequence[RunGroup]) -> str:
    sentences = [
        "Lower is more accurate, further left is more private. Filled circles: WER and ε measured in the same run."
    ]
    if any(group.first.claims for group in private):
        sentences.append(
            "Hollow circles: ε extrapolated to another S and K with the same σ<sub>DP</sub>; their WER was measured at "
            "the simulated sizes."
        )
    if len(private) < len(shown):
        sentences.append("Squares at the right: runs without a guarantee.")
    if any((run.tightest_epsilon or 0.0) > PROTECTS_NOBODY for run in all_runs(private)):
        sentences.append(f"An ε above {PROTECTS_NOBODY:g} protects nobody: the noise is too small for so few users.")
    return " ".join(sentences)


def _draw_privacy(axes: Axes, shown: Sequence[RunGroup], set_name: SetName) -> None:
    epsilons = [value for group in shown for value in _draw_guaranteed(axes, group, set_name)]
    low, high = min(epsilons), max(epsilons)
    room = max((high / low) ** 0.15, 2.0)
    unprotected = [group for group in shown if all(run.epsilons is None for run in group.runs)]
    log_axis(axes, axes.xaxis, epsilons, (low / room, high * room ** (3 if unprotected else 1)))
    axes.xaxis.set_major_locator(FixedLocator(log_ticks(low / room, high * room)))
    if unprotected:
        axes.axvline(high * room, color=INK, linewidth=0.8, alpha=0.5)
        for group in unprotected:
            wers = [100 * wer for wer in group.wers(set_name)]
            label = hover_label(f"{group.name}, no guarantee", shows="y")
            axes.plot([high * room**2] * len(wers), wers, "s", color=group.colour, markersize=6, label=label)
        axes.text(high * room**2, 1.0, "no guarantee", transform=axes.get_xaxis_transform(), ha="center", va="bottom")
    axes.set_xlabel("ε (logarithmic)")
    axes.set_ylabel(f"WER on {set_name}, %")
    axes.set_ylim(0, 112 * max(max(group.wers(set_name)) for group in shown))


def _draw_guaranteed(axes: Axes, group: RunGroup, set_name: SetName) -> list[float]:
    """Draw the runs of a group that have a guarantee, with their claims; return all epsilons drawn."""
    epsilons: list[float] = []
    for run in group.runs:
        spent, wer = run.tightest_epsilon, run.wer(set_name)
        if spent is None or wer is None:
            continue
        claims = [epsilon for claim in run.claims if (epsilon := claim.epsilon.tightest) is not None]
        heights = [100 * wer] * len(claims)
        axes.plot([spent, *claims], [100 * wer, *heights], color=group.colour, linestyle=":", linewidth=1)
        label = hover_label(f"{run.name}, ε extrapolated")
        axes.plot(claims, heights, "o", color=group.colour, markerfacecolor="none", markersize=7, label=label)
        axes.plot([spent], [100 * wer], "o", color=group.colour, markersize=7, label=hover_label(run.name))
        epsilons += [spent, *claims]
    return epsilons


def _privacy_rows(run: RunRecord) -> list[list[CsvValue]]:
    wers = [run.wer("dev"), run.wer("test")]
    rows: list[list[CsvValue]] = [[run.name, run.cohort_size, run.population, run.tightest_epsilon, "measured", *wers]]
    for claim in run.claims:
        tightest = claim.epsilon.tightest
        note = "extrapolated: WER is of the simulated S and K"
        rows.append([run.name, claim.cohort_size, claim.population, tightest, note, *wers])
    return rows
