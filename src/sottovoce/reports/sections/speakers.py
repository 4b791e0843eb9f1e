"""WER per speaker: its distribution, the speakers with the highest WER, and WER by speaker group."""

import math
from collections.abc import Callable, Iterator, Sequence

from matplotlib.axes import Axes

from sottovoce.reports.drawing.charts import Panel, make_picture
from sottovoce.reports.drawing.elements import (
    CaptionedFigure,
    Collapsible,
    CsvTable,
    CsvValue,
    Element,
    HtmlTable,
    Paragraph,
    Section,
    esc,
)
from sottovoce.reports.drawing.hover import hover_label
from sottovoce.reports.drawing.numbers import NONE, percent
from sottovoce.reports.reading.run_groups import RunGroup, all_runs, detailed, legend
from sottovoce.runs.documents import Evaluation


def speakers_section(groups: Sequence[RunGroup]) -> Section:
    """Return the WER per speaker of the final models."""
    both = [*detailed(groups), *detailed(groups, "central")]
    shown = [group for group in groups if group in both]  # in the order of the page
    sets = list(dict.fromkeys(name for group in shown for name in group.first.evaluations))
    elements: list[Element] = []
    if sets:
        elements += [_figure(shown, sets), _summary(shown, sets)]
        elements += [table for name in sets if (table := _by_speaker_group(shown, name)) is not None]
        elements.append(Collapsible("The speakers with the highest WER", [_worst(shown, sets)]))
    missing = [run.name for run in all_runs(groups) if not run.evaluations]
    if missing:
        elements.append(_missing_note(missing))
    return Section("speakers", "WER per speaker", elements, [_speakers_csv(groups), _speaker_groups_csv(groups)])


def _missing_note(names: Sequence[str]) -> Paragraph:
    listed = ", ".join(esc(name) for name in names[:4]) + (" and others" if len(names) > 4 else "")
    text = (
        f"WER per speaker is missing for {listed}: there is no evaluation.json. A run writes this file when it ends. "
        "For an older run, <code>sotto eval RUN STORE</code> prints the same numbers."
    )
    return Paragraph(text, "note")


def sorted_wers(evaluation: Evaluation) -> list[float]:
    """Return the WER of every speaker, lowest first."""
    return sorted(evaluation.speakers.wer.values())


def worst_tenth(wers: Sequence[float]) -> float:
    """Return the mean of the highest tenth of the WERs, at least one."""
    worst = sorted(wers)[-max(len(wers) // 10, 1) :]
    return math.fsum(worst) / len(worst)


def _evaluated(shown: Sequence[RunGroup], name: str) -> Iterator[tuple[RunGroup, Evaluation]]:
    """Yield the groups that were evaluated on a set, with the evaluation of their first run."""
    for group in shown:
        if (evaluation := group.first.evaluations.get(name)) is not None:
            yield group, evaluation


def _figure(shown: Sequence[RunGroup], sets: Sequence[str]) -> CaptionedFigure:
    def drawing(name: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            highest = 1.0
            for group, evaluation in _evaluated(shown, name):
                by_speaker = sorted(evaluation.speakers.wer.items(), key=lambda one: (one[1], one[0]))
                wers = [100 * wer for _, wer in by_speaker]
                highest = max(highest, *wers)
                ranks = [100 * (rank + 0.5) / len(wers) for rank in range(len(wers))]
                label = hover_label(*(f"{group.name}, speaker {speaker}" for speaker, _ in by_speaker))
                marker = "o" if len(wers) <= 40 else None
                axes.plot(ranks, wers, color=group.colour, marker=marker, markersize=3, label=label)
            axes.axvspan(90, 100, color="#888888", alpha=0.12, linewidth=0)
            axes.set_xlim(0, 100)
            axes.set_ylim(-0.03 * highest, 1.08 * highest)  # room for whole markers at both ends
            axes.set_xlabel("speakers, %")
            axes.set_ylabel("WER, %")

        return draw

    panels = [Panel(name, drawing(name)) for name in sets]
    entries = legend(group for group in shown if group.first.evaluations)
    alt = "WER of every speaker in ascending order, one line per run"
    picture = make_picture("wer-per-speaker", alt, panels, entries)
    caption = (
        "Speakers in the order of their WER; the tenth with the highest WER is shaded. If a line rises steeply at its "
        "right end, a good mean hides speakers whom the model understands badly. Noise may affect them first: compare "
        "the right ends of the lines."
    )
    return CaptionedFigure(picture, caption)


def _summary(shown: Sequence[RunGroup], sets: Sequence[str]) -> HtmlTable:
    rows = []
    for name in sets:
        for group, evaluation in _evaluated(shown, name):
            wers, quantiles = sorted_wers(evaluation), evaluation.speakers.wer_quantiles
            values = [evaluation.wer, evaluation.speakers.mean_wer, quantiles["0.5"], quantiles["0.9"]]
            values += [worst_tenth(wers), wers[-1]]
            rows.append([esc(name), esc(group.name), f"{len(wers):,}", *(percent(value) for value in values)])
    header = ["set", "run", "speakers", "all words", "mean", "median", "90 %", "worst tenth", "worst"]
    caption = (
        "WER in %. <em>All words</em>: over all words of the set. The columns to its right are over speakers: mean, "
        "median, 90 % quantile, mean of the worst tenth, highest. Of several seeds, the first is shown."
    )
    return HtmlTable(header, rows, caption, text_columns=2)


def _by_speaker_group(shown: Sequence[RunGroup], name: str) -> HtmlTable | None:
    """Return the WER of every group of speakers in a set; None where no column divides its speakers."""
    documents = {group.name: evaluation.groups for group, evaluation in _evaluated(shown, name)}
    columns = dict.fromkeys(column for by_column in documents.values() for column in by_column)
    rows = []
    for column in columns:
        by_run = [by_column.get(column, {}) for by_column in documents.values()]
        speaker_groups = sorted({value for scores in by_run for value in scores})
        for value in speaker_groups if len(speaker_groups) > 1 else []:
            sizes = next(scores[value] for scores in by_run if value in scores)
            wers = [percent(scores[value].wer) if value in scores else NONE for scores in by_run]
            rows.append([f"{esc(column)} = {esc(value)}", f"{sizes.speakers:,}", f"{sizes.words:,}", *wers])
    if not rows:
        return None
    header = [f"{esc(name)}, by group", "speakers", "words", *(esc(run) for run in documents)]
    caption = "WER in % by group of speakers. Look for a group with a high WER in all models, or in one of them."
    return HtmlTable(header, rows, caption)


def _worst(shown: Sequence[RunGroup], sets: Sequence[str]) -> HtmlTable:
    rows = [
        [esc(name), esc(group.name), f"<code>{esc(one.speaker)}</code>", f"{one.words:,}", percent(one.wer)]
        for name in sets
        for group, evaluation in _evaluated(shown, name)
        for one in evaluation.speakers.worst
    ]
    return HtmlTable(["set", "run", "speaker", "words", "WER %"], rows, text_columns=3)


def _speakers_csv(groups: Sequence[RunGroup]) -> CsvTable:
    rows: list[list[CsvValue]] = [
        [run.name, name, speaker, wer]
        for run in all_runs(groups)
        for name, evaluation in run.evaluations.items()
        for speaker, wer in evaluation.speakers.wer.items()
    ]
    return CsvTable("wer-per-speaker", ["run", "set", "speaker", "wer"], rows)


def _speaker_groups_csv(groups: Sequence[RunGroup]) -> CsvTable:
    rows: list[list[CsvValue]] = [
        [run.name, name, column, value, scores.speakers, scores.words, scores.wer]
        for run in all_runs(groups)
        for name, evaluation in run.evaluations.items()
        for column, values in evaluation.groups.items()
        for value, scores in values.items()
    ]
    return CsvTable("wer-by-group", ["run", "set", "column", "value", "speakers", "words", "wer"], rows)
