"""The results: the headline figure, one line for every group of runs, and the epsilons claimed for other sizes."""

import math
from collections.abc import Mapping, Sequence

from sottovoce.reports.drawing.elements import (
    Band,
    Cell,
    Collapsible,
    CsvTable,
    CsvValue,
    Element,
    HtmlTable,
    Paragraph,
    RawHtml,
    Section,
    esc,
)
from sottovoce.reports.drawing.numbers import NONE, count, epsilon, number, percent
from sottovoce.reports.reading.records import SETS, RunRecord, SetName
from sottovoce.reports.reading.run_groups import RunGroup, all_runs, benches_of, headline_set, sets_of
from sottovoce.reports.sections.headline import headline_figure
from sottovoce.reports.sections.lead import further_sentences
from sottovoce.runs.documents import ClaimedEpsilon

_NO_GUARANTEE = '<span class="muted">none</span>'


def results_section(groups: Sequence[RunGroup], lead: Sequence[str] = ()) -> Section:
    """Return the headline figure, the table of results and, folded, the claims and what there is to say in words.

    `lead` are sentences to say before the page's own, as plain text.
    """
    figure = headline_figure(groups)
    elements: list[Element] = [] if figure is None else [figure]
    elements.append(_results_table(groups))
    elements += [
        Paragraph(f"<b>{esc(run.name)}</b> is unfinished: {_steps(run)} steps.", "warning")
        for run in all_runs(groups)
        if not run.finished
    ]
    if _has_claims(groups):
        elements.append(Collapsible("ε at other sizes: all claims", [_claims_table(groups)]))
    sentences = [*lead, *further_sentences(groups)]
    if sentences:
        elements.append(Collapsible("In words", [RawHtml(f"<p>{esc(sentence)}</p>") for sentence in sentences]))
    return Section("results", "Results", elements, [_csv_table(groups)])


def _has_claims(groups: Sequence[RunGroup]) -> bool:
    return any(group.first.claims for group in groups)


def _has_paper(groups: Sequence[RunGroup]) -> bool:
    return any(group.first.paper_wers for group in groups)


def _results_table(groups: Sequence[RunGroup]) -> HtmlTable:
    texts = ["run", *(["benchmark"] if _has_benches(groups) else [])]
    wers = ["dev", "test", *(["on set"] if _sets(groups) else [])]
    header = [*texts, "clipping", "σ<sub>DP</sub>", "C", "S of K", "T", *wers, "RDP", "PLD"]
    bands = [Band("", len(texts), "text"), Band("trained with", 5), Band("WER %", len(wers), "ours")]
    bands.append(Band("ε spent at S and K", 2))
    alone = ["", *texts[1:], "clipping", "σ of DP", "C", "S of K", "T", *(f"WER % {name}" for name in wers)]
    alone += ["ε by RDP", "ε by PLD"]
    if _has_claims(groups):
        header.append("extrapolated")
        alone.append("ε extrapolated")
        bands.append(Band("ε at other sizes", 1, "claim"))
    if _has_paper(groups):
        header += ["dev", "test"]
        alone += ["paper, dev", "paper, test"]
        bands.append(Band("WER % in the paper", 2, "paper"))
    rows = [_row(group, groups) for group in groups]
    return HtmlTable(header, rows, _caption(groups), text_columns=len(texts), bands=bands, sticky=True, stacked=alone)


def _has_benches(groups: Sequence[RunGroup]) -> bool:
    """Return whether rows are of different benchmarks, so that the table says of which."""
    return len(benches_of(groups)) > 1


def _sets(groups: Sequence[RunGroup]) -> list[str]:
    """Return the sets that the WERs are of, where they differ; the table calls them A, B, and so on."""
    sets = sets_of(groups, headline_set(groups))
    return sets if len(sets) > 1 else []


def _letter(place: int) -> str:
    """Return A, B, ..., Z, AA, AB, ..."""
    return (_letter(place // 26 - 1) if place >= 26 else "") + chr(ord("A") + place % 26)


def _caption(groups: Sequence[RunGroup]) -> str:
    sentences = ["WER is that of the final model, over all words."]
    if any(group.kind == "federated" for group in groups):
        sentences += [
            "About S of K users take part in each of T steps; each user's delta is clipped to norm C, and the noise on "
            "their average has standard deviation C·σ<sub>DP</sub>.",
            "ε is the privacy spent, at the run's own δ and rounded up. RDP and PLD are two upper bounds on it, and "
            "the smaller one counts. <em>none</em>: no guarantee.",
        ]
    if _sets(groups):
        sentences.append(
            f"The column <em>on set</em> names the {headline_set(groups)} set: WERs compare only where it is the same."
        )
    if any(len(group.counted) > 1 for group in groups):
        sentences.append("For several seeds: the mean, and below it the lowest and the highest value.")
    if _has_claims(groups):
        sentences.append(
            "<em>Extrapolated</em>: ε of the same σ<sub>DP</sub> at another S and K, where no model was trained; the "
            "WER in the same line was measured at the run's own S and K."
        )
    if _has_paper(groups):
        sentences.append(
            "The paper's WERs are for its own data and models: compare the order of the rows, not the values."
        )
    return " ".join(sentences)


def _row(group: RunGroup, groups: Sequence[RunGroup]) -> list[str | Cell]:
    run, sets = group.first, _sets(groups)
    several = _has_benches(groups)
    cells: list[str | Cell] = [_name(group, group.row if several else group.name)]
    cells += [esc(group.bench or NONE)] if several else []
    cells += _mechanism(run)
    cells += [Cell(_wer(group.wers(set_name)), kind="ours") for set_name in SETS]
    if sets:
        used = run.evaluated_on(headline_set(groups))
        cells.append(NONE if used is None else _letter(sets.index(used)))
    cells += _spent(run)
    if _has_claims(groups):
        cells.append(Cell("<br>".join(map(_claim, run.claims)) or NONE, kind="claim"))
    if _has_paper(groups):
        cells += [Cell(_paper_wer(run.paper_wers, set_name), kind="paper") for set_name in SETS]
    return cells


def _name(group: RunGroup, name: str) -> str:
    seeds = f' <span class="muted">n = {len(group.counted)}</span>' if len(group.runs) > 1 else ""
    unfinished = "" if all(run.finished for run in group.runs) else ' <span class="mark">unfinished</span>'
    return f"{esc(name)}{seeds}{unfinished}"


def _mechanism(run: RunRecord) -> list[str]:
    """Return the cells under `trained with`: clipping, sigma_DP, C, S of K, T."""
    if run.kind == "central":
        return ['<span class="muted">central training</span>', NONE, NONE, NONE, _steps(run)]
    kind, rule = run.setting("privacy.clipping") or "none", run.setting("privacy.rule")
    clipping = str(kind) if rule in (None, "clip") else f"{kind}, {rule}"
    clip_norm = number(run.setting("privacy.clip_norm")) if kind != "none" else NONE
    sizes = f"{count(run.cohort_size)} of {count(run.population)}"
    return [esc(clipping), number(run.setting("privacy.sigma_dp")), clip_norm, sizes, _steps(run)]


def _steps(run: RunRecord) -> str:
    return f"{run.steps_done:,}" if run.finished else f"{run.steps_done:,} of {run.steps_planned:,}"


def _wer(values: Sequence[float]) -> str:
    """Return a WER in percent; for several runs the mean and, below it, the lowest and the highest."""
    if not values:
        return NONE
    ends = f'<span class="small">{percent(min(values))} to {percent(max(values))}</span>' if len(values) > 1 else ""
    return f"{percent(math.fsum(values) / len(values))}{ends}"


def _spent(run: RunRecord) -> list[str]:
    if run.kind == "central":
        return [NONE, NONE]
    spent = run.epsilons
    return [_NO_GUARANTEE, _NO_GUARANTEE] if spent is None else [epsilon(spent.rdp), epsilon(spent.pld)]


def _claim(claim: ClaimedEpsilon) -> str:
    return f"{epsilon(claim.epsilon.tightest)} at {count(claim.cohort_size)} of {count(claim.population)}"


def _paper_wer(paper: Mapping[str, float], set_name: SetName) -> str:
    """Return the paper's WER on dev or test, or on all sets whose names begin so, such as dev-clean."""
    wers = {name: value for name, value in paper.items() if name == set_name or name.startswith(f"{set_name}-")}
    if set(wers) == {set_name}:
        return _printed(wers[set_name])
    return (
        "<br>".join(f"{esc(name.removeprefix(f'{set_name}-'))} {_printed(value)}" for name, value in wers.items())
        or NONE
    )


def _printed(wer: float) -> str:
    """Return a WER as the paper prints it: with one digit after the point, or with two."""
    return f"{wer:.1f}" if round(wer, 1) == wer else f"{wer:g}"


def _claims_table(groups: Sequence[RunGroup]) -> HtmlTable:
    header = ["run", "S", "K", "WER % dev", "WER % test", "S", "K", "T", "RDP", "PLD"]
    bands = [Band("", 1, "text"), Band("measured at", 4, "ours"), Band("ε extrapolated to", 5, "claim")]
    rows = [_claim_row(group, claim) for group in groups for claim in group.first.claims]
    caption = (
        "All claims. No model was trained at the sizes on the right. A claim assumes that the model would be no worse "
        "with the same noise on the average of more users; <code>sotto privacy claim</code> explains this."
    )
    return HtmlTable(header, rows, caption, bands=bands, sticky=True)


def _claim_row(group: RunGroup, claim: ClaimedEpsilon) -> list[str | Cell]:
    run, claimed_epsilon = group.first, claim.epsilon
    measured = [count(run.cohort_size), count(run.population), *(_wer(group.wers(set_name)) for set_name in SETS)]
    claimed = [count(size) for size in (claim.cohort_size, claim.population, claim.central_steps)]
    claimed += [epsilon(claimed_epsilon.rdp), epsilon(claimed_epsilon.pld)]
    return [esc(group.name), *measured, *(Cell(text, kind="claim") for text in claimed)]


def _csv_table(groups: Sequence[RunGroup]) -> CsvTable:
    header = ["run", "row", "seed", "kind", "finished", "clipping", "sigma_dp", "C", "S", "K", "T"]
    header += ["wer_dev", "wer_test", "epsilon_rdp", "epsilon_pld", "guarantee"]
    header += ["claimed_S", "claimed_K", "claimed_T", "claimed_epsilon_rdp", "claimed_epsilon_pld"]
    header += ["paper_wer_dev_percent", "paper_wer_test_percent", "benchmark", "size", "test_set"]
    return CsvTable("results", header, [row for run in all_runs(groups) for row in _csv_rows(run)])


def _csv_rows(run: RunRecord) -> list[list[CsvValue]]:
    """Return a line for every claim of a run, or one line without a claim."""
    federated = run.kind == "federated"
    keys = ("privacy.clipping", "privacy.sigma_dp", "privacy.clip_norm")
    mechanism = [run.setting(key) if federated else None for key in keys]
    sizes = [run.cohort_size, run.population] if federated else [None, None]
    spent, paper = run.epsilons, run.paper_wers
    row, seed = (None, run.setting("seed")) if run.row is None else (run.row.row, run.row.seed)
    own: list[CsvValue] = [run.name, row, seed, run.kind]
    own += [str(run.finished).lower(), *mechanism, *sizes, run.steps_done, run.wer("dev"), run.wer("test")]
    own += [None, None] if spent is None else [spent.rdp, spent.pld]
    own.append(run.guarantee)
    claims = [_csv_claim(claim) for claim in run.claims] or [[None] * 5]
    bench = [None, None] if run.row is None else [run.row.bench, run.row.size]
    of = [paper.get("dev"), paper.get("test"), *bench, run.evaluated_on("test")]
    return [[*own, *claim, *of] for claim in claims]


def _csv_claim(claim: ClaimedEpsilon) -> list[CsvValue]:
    return [claim.cohort_size, claim.population, claim.central_steps, claim.epsilon_rdp, claim.epsilon_pld]
