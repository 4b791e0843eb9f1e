"""WER per speaker: how it is spread, who fares worst, and by group."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from sottovoce.reports.drawing.blocks import Block, Drawn, Fold, Part, Sheet, Table, Text, Value, esc
from sottovoce.reports.drawing.charts import Panel, make_picture
from sottovoce.reports.drawing.numbers import NONE, percent
from sottovoce.reports.reading.groups import Group, detailed, group_keys

Document = Mapping[str, Any]  # what `evaluation.report` returns for one run on one population
_HOW = "A run writes it when it ends. For an older one, <code>sotto eval RUN STORE</code> prints the same figures."


def people(groups: Sequence[Group]) -> Part:
    """Return WER per speaker of the final models."""
    shown = [*detailed(groups), *detailed(groups, "central")]
    sets = list(dict.fromkeys(name for group in shown for name in group.first.evaluation))
    blocks: list[Block] = []
    if sets:
        blocks.append(_figure(shown, sets))
        blocks.append(_summary(shown, sets))
        blocks += [block for name in sets for block in _by_group(shown, name)]
        blocks.append(Fold("The speakers with the highest WER", [_worst(shown, sets)]))
    missing = [run.name for group in groups for run in group.runs if not run.evaluation]
    if missing:
        names = ", ".join(esc(name) for name in missing[:4]) + (" and others" if len(missing) > 4 else "")
        blocks.append(Text(f"WER per speaker is missing for {names}: there is no evaluation.json. {_HOW}", "note"))
    return Part("speakers", "WER per speaker", blocks, [_sheet(groups), _group_sheet(groups)])


def rates_of(document: Document) -> list[float]:
    """Return the WER of every speaker, from the lowest to the highest."""
    return sorted(float(rate) for rate in document["speakers"]["wer"].values())


def worst_tenth(rates: Sequence[float]) -> float:
    """Return the mean WER of the tenth of speakers who fare worst, at least one."""
    worst = sorted(rates)[-max(len(rates) // 10, 1) :]
    return math.fsum(worst) / len(worst)


def _figure(shown: Sequence[Group], sets: Sequence[str]) -> Block:
    def drawing(name: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for group in shown:
                document = group.first.evaluation.get(name)
                if document is not None:
                    rates = rates_of(document)
                    at = [100 * (place + 0.5) / len(rates) for place in range(len(rates))]
                    dots = "o" if len(rates) <= 40 else None
                    axes.plot(at, [100 * rate for rate in rates], color=group.colour, marker=dots, markersize=3)
            axes.axvspan(90, 100, color="#888888", alpha=0.12, linewidth=0)
            axes.set_xlim(0, 100)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("speakers, %")
            axes.set_ylabel("WER, %")

        return draw

    panels = [Panel(name, drawing(name)) for name in sets]
    keys = group_keys(group for group in shown if group.first.evaluation)
    alt = "WER of every speaker, sorted, a line per run"
    picture = make_picture("wer-per-speaker", alt, panels, keys, wide=len(panels) == 1)
    caption = (
        "Speakers sorted from the best understood to the worst; the shaded tenth fares worst. A line that turns up "
        "steeply at its end hides people behind a good mean. Noise may hurt them first: compare the ends of the lines."
    )
    return Drawn(picture, caption)


def _summary(shown: Sequence[Group], sets: Sequence[str]) -> Block:
    rows = []
    for name in sets:
        for group in shown:
            document = group.first.evaluation.get(name)
            if document is not None:
                rates = rates_of(document)
                quantiles = document["speakers"]["wer_quantiles"]
                values = [document["wer"], document["speakers"]["mean_wer"], quantiles["0.5"], quantiles["0.9"]]
                values += [worst_tenth(rates), rates[-1]]
                rows.append([esc(name), esc(group.name), f"{len(rates):,}", *(percent(value) for value in values)])
    header = ["set", "run", "speakers", "all words", "mean", "median", "90 %", "worst tenth", "worst"]
    caption = "WER in %: over all words, and over speakers. Of rows with several seeds, the first."
    return Table(header, rows, caption, text_columns=2)


def _by_group(shown: Sequence[Group], name: str) -> list[Block]:
    documents = {group.name: document for group in shown if (document := group.first.evaluation.get(name)) is not None}
    columns = dict.fromkeys(column for document in documents.values() for column in document.get("groups", {}))
    rows = []
    for column in columns:
        found = [document.get("groups", {}).get(column, {}) for document in documents.values()]
        for value in sorted({value for one in found for value in one}):
            some = next(one[value] for one in found if value in one)
            wers = [percent(one[value]["wer"]) if value in one else NONE for one in found]
            rows.append([f"{esc(column)} = {esc(value)}", f"{some['speakers']:,}", f"{some['words']:,}", *wers])
    if not rows:
        return []
    header = [f"{esc(name)}, by group", "speakers", "words", *(esc(group) for group in documents)]
    return [Table(header, rows, "WER in %. Look for a group that is left behind by all models, or by one of them.")]


def _worst(shown: Sequence[Group], sets: Sequence[str]) -> Block:
    rows = [
        [esc(name), esc(group.name), f"<code>{esc(one['speaker'])}</code>", f"{one['words']:,}", percent(one["wer"])]
        for name in sets
        for group in shown
        if (document := group.first.evaluation.get(name)) is not None
        for one in document["speakers"]["worst"]
    ]
    return Table(["set", "run", "speaker", "words", "WER %"], rows, text_columns=3)


def _sheet(groups: Sequence[Group]) -> Sheet:
    rows: list[list[Value]] = [
        [run.name, name, speaker, rate]
        for group in groups
        for run in group.runs
        for name, document in run.evaluation.items()
        for speaker, rate in document["speakers"]["wer"].items()
    ]
    return Sheet("wer-per-speaker", ["run", "set", "speaker", "wer"], rows)


def _group_sheet(groups: Sequence[Group]) -> Sheet:
    rows: list[list[Value]] = [
        [run.name, name, column, value, scores["speakers"], scores["words"], scores["wer"]]
        for group in groups
        for run in group.runs
        for name, document in run.evaluation.items()
        for column, values in document.get("groups", {}).items()
        for value, scores in values.items()
    ]
    return Sheet("wer-by-group", ["run", "set", "column", "value", "speakers", "words", "wer"], rows)
