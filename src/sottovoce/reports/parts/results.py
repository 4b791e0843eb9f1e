"""The results: one line for every run, and what is claimed beyond them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sottovoce.reports.drawing.blocks import Block, Cell, Part, Sheet, Table, Text, Value, esc
from sottovoce.reports.drawing.numbers import NONE, count, epsilon, number, percent
from sottovoce.reports.reading.groups import Group
from sottovoce.reports.reading.records import Record, Which, claimed_epsilon

SETS: tuple[Which, ...] = ("dev", "test")


def headline(groups: Sequence[Group]) -> Part:
    """Return the table of all runs, a line for each row of a benchmark or run, and the table of claims."""
    claims = any(group.first.row.get("claims") for group in groups)
    paper = any(group.first.row.get("paper") for group in groups)
    header = ["run", "clipping", "σ<sub>DP</sub>", "C", "S of K", "T", "dev", "test", "RDP", "PLD"]
    bands = [("", 1, "text"), ("trained with", 5, ""), ("WER %", 2, "ours"), ("ε spent at S and K", 2, "")]
    if claims:
        header.append("extrapolated")
        bands.append(("ε claimed elsewhere", 1, "claim"))
    if paper:
        header += ["dev", "test"]
        bands.append(("WER % in the paper", 2, "paper"))
    rows = [_row(group, claims=claims, paper=paper) for group in groups]
    blocks: list[Block] = [Table(header, rows, _caption(groups, claims, paper), bands=bands, sticky=True)]
    blocks += [
        Text(f"<b>{esc(run.name)}</b> is unfinished: {run.done:,} of {run.planned:,} steps.", "warning")
        for group in groups
        for run in group.runs
        if not run.finished
    ]
    if claims:
        blocks.append(_claims_table(groups))
    return Part("results", "Results", blocks, [_headline_sheet(groups)])


def _caption(groups: Sequence[Group], claims: bool, paper: bool) -> str:
    text = "WER is of the final model, over all words. ε is at δ of the run and rounded up; RDP and PLD are two upper "
    text += "bounds on the same thing, and PLD is the tighter; <em>none</em>: no guarantee. "
    if any(len(group.counted) > 1 for group in groups):
        text += "Where a row has several seeds: the mean, and below it the least and the most. "
    if claims:
        text += (
            "<em>Extrapolated</em>: the same σ<sub>DP</sub> at another S and K, where nobody trained; the WER in the "
            "line was measured at its own S and K, not there. "
        )
    if paper:
        text += "The paper's numbers are of its own data and models: they are here for the order of rows, not to match."
    return text.strip()


def _row(group: Group, *, claims: bool, paper: bool) -> list[str | Cell]:
    run = group.first
    cells: list[str | Cell] = [_name(group), *_mechanism(run)]
    cells += [Cell(_wer(group.wers(which)), kind="ours") for which in SETS]
    cells += _spent(run)
    if claims:
        cells.append(Cell("<br>".join(map(_claim, run.row.get("claims") or [])) or NONE, kind="claim"))
    if paper:
        cells += [Cell(_printed(run.row.get("paper") or {}, which), kind="paper") for which in SETS]
    return cells


def _claim(claim: Mapping[str, Any]) -> str:
    found, sizes = claimed_epsilon(claim), [count(claim.get("cohort_size")), count(claim.get("population"))]
    return f"{epsilon(found)} at {' of '.join(sizes)}"


def _wer(values: Sequence[float]) -> str:
    """Return a WER in percent; of several runs the mean and, below it, from the least to the most."""
    if not values:
        return NONE
    ends = f'<span class="small">{percent(min(values))} to {percent(max(values))}</span>' if len(values) > 1 else ""
    return f"{percent(math.fsum(values) / len(values))}{ends}"


def _claims_table(groups: Sequence[Group]) -> Block:
    header = ["claim for", "S", "K", "WER % dev", "WER % test", "S", "K", "T", "RDP", "PLD"]
    bands = [("", 1, "text"), ("measured at", 4, "ours"), ("ε extrapolated to", 5, "claim")]
    rows: list[list[str | Cell]] = []
    for group in groups:
        run = group.first
        for claim in run.row.get("claims") or []:
            sizes_here = [count(run.cohort_size), count(run.population)]
            measured = [*sizes_here, *(_wer(group.wers(which)) for which in SETS)]
            sizes = [count(claim.get(name)) for name in ("cohort_size", "population", "central_steps")]
            spent = [epsilon(claim.get("epsilon_rdp")), epsilon(claim.get("epsilon_pld"))]
            rows.append([esc(group.name), *measured, *(Cell(text, kind="claim") for text in (*sizes, *spent))])
    caption = (
        "Claims, in full. Nobody trained at the sizes on the right: a claim takes it that with as much noise on the "
        "average of more users the model would be no worse (<code>sotto privacy claim</code> says it in words)."
    )
    return Table(header, rows, caption, bands=bands, sticky=True)


def _name(group: Group) -> str:
    seeds = f' <span class="muted">n = {len(group.counted)}</span>' if len(group.runs) > 1 else ""
    unfinished = "" if all(run.finished for run in group.runs) else ' <span class="mark">unfinished</span>'
    return f"{esc(group.name)}{seeds}{unfinished}"


def _mechanism(run: Record) -> list[str]:
    if run.kind == "central":
        return ['<span class="muted">central</span>', NONE, NONE, NONE, _steps(run)]
    clipped = run.setting("privacy.clipping") or "none"
    rule = run.setting("privacy.rule")
    clipping = f"{clipped}, {rule}" if rule not in (None, "clip") else str(clipped)
    sigma, norm = run.setting("privacy.sigma_dp"), run.setting("privacy.clip_norm")
    sizes = f"{count(run.cohort_size)} of {count(run.population)}"
    return [esc(clipping), number(sigma), number(norm) if clipped != "none" else NONE, sizes, _steps(run)]


def _steps(run: Record) -> str:
    return f"{run.done:,}" if run.finished else f"{run.done:,} of {run.planned:,}"


def _spent(run: Record) -> list[str]:
    if run.kind == "central":
        return [NONE, NONE]
    if run.epsilon("rdp") is None:
        return ['<span class="muted">none</span>', '<span class="muted">none</span>']
    return [epsilon(run.epsilon("rdp")), epsilon(run.epsilon("pld"))]


def _printed(paper: Mapping[str, float], which: Which) -> str:
    """Return what the paper prints: of dev or test, or of sets whose names begin so, such as dev-clean."""
    found = {name: value for name, value in paper.items() if name == which or name.startswith(f"{which}-")}
    if set(found) == {which}:
        return f"{found[which]:g}"
    return "<br>".join(f"{esc(name.removeprefix(f'{which}-'))} {value:g}" for name, value in found.items()) or NONE


def _headline_sheet(groups: Sequence[Group]) -> Sheet:
    header = ["run", "row", "seed", "kind", "finished", "clipping", "sigma_dp", "C", "S", "K", "T"]
    header += ["wer_dev", "wer_test", "epsilon_rdp", "epsilon_pld", "guarantee"]
    header += ["claimed_S", "claimed_K", "claimed_T", "claimed_epsilon_rdp", "claimed_epsilon_pld"]
    header += ["paper_wer_dev_percent", "paper_wer_test_percent"]
    rows: list[list[Value]] = []
    for run in (run for group in groups for run in group.runs):
        federated = run.kind == "federated"
        keys = ("privacy.clipping", "privacy.sigma_dp", "privacy.clip_norm")
        mechanism = [run.setting(key) if federated else None for key in keys]
        sizes = [run.cohort_size, run.population] if federated else [None, None]
        own: list[Value] = [run.name, run.row.get("row"), run.row.get("seed", run.setting("seed")), run.kind]
        own += [str(run.finished).lower(), *mechanism, *sizes, run.done, run.wer("dev"), run.wer("test")]
        own += [run.epsilon("rdp"), run.epsilon("pld"), run.guarantee]
        paper = run.row.get("paper") or {}
        for claim in run.row.get("claims") or [{}]:
            names = ("cohort_size", "population", "central_steps", "epsilon_rdp", "epsilon_pld")
            rows.append([*own, *(claim.get(name) for name in names), paper.get("dev"), paper.get("test")])
    return Sheet("results", header, rows)
