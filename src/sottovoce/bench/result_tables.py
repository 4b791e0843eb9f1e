"""The results of a benchmark as people and programs read them: tables of rows and of effects, Markdown, JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from sottovoce.bench.machine_notes import machine_notes
from sottovoce.bench.plan import BenchRun
from sottovoce.bench.preset import Size
from sottovoce.bench.prices import PRICE_HEADER, price_document, price_note, price_rows, price_table
from sottovoce.bench.results import RowResult, Simulated
from sottovoce.bench.verdicts import EffectResult, effect_results, reproduced
from sottovoce.bench.verified_ledgers import ledger_note
from sottovoce.evaluation.intervals import MeanOverSeeds
from sottovoce.privacy.accounting import rounded_up, short_exponents, short_number
from sottovoce.privacy.epsilons import PROTECTS_NOBODY
from sottovoce.privacy.paper import PaperRow, paper_rows
from sottovoce.runs.documents import ClaimedEpsilon

_WORTH_SAYING = 0.5  # points between the last model and the best one on dev

HEADER = ("row", "ours: dev", "ours: test", "S of K", "epsilon there", "epsilon claimed", "paper: dev", "paper: test")


EFFECT_HEADER = ("effect", "ours", "on", "paper", "verdict")


def table(results: Iterable[RowResult]) -> list[list[str]]:
    """Return the rows of a table with the columns of HEADER."""
    return [_line(result) for result in results]


def _line(result: RowResult) -> list[str]:
    federated, spent = result.kind == "federated", result.epsilon.tightest
    no_epsilon = "none" if federated and result.wer else "-"
    return [
        result.row.name,
        *(percent(result.wer[key]) if key in result.wer else "-" for key in ("dev", "test")),
        "central" if result.simulated is None else _sizes(result.simulated),
        no_epsilon if spent is None else short_exponents(rounded_up(spent)),
        "; ".join(map(_claim_text, result.claims)) or "-",
        *(_printed(result.paper[key]) if key in result.paper else "-" for key in ("dev", "test")),
    ]


def _printed(percent: float) -> str:
    return f"{percent:.1f}" if percent == round(percent, 1) else f"{percent:g}"


def percent(estimate: MeanOverSeeds) -> str:
    """Return a WER in percent with the half-width of its interval: 42.1 ± 2.3."""
    return f"{estimate.value:.1f}" if estimate.half is None else f"{estimate.value:.1f} ± {estimate.half:.1f}"


def effect_table(effects: Iterable[EffectResult]) -> list[list[str]]:
    """Return the rows of a table with the columns of EFFECT_HEADER."""
    return [[one.effect.name, *effect_cells(one)] for one in effects]


def effect_cells(effect: EffectResult) -> list[str]:
    """Return an effect's cells in a table: ours, on what, the paper's, the verdict."""
    return [effect_value(effect), effect.effect.measured_on, effect_paper(effect), effect.words]


def effect_value(effect: EffectResult) -> str:
    """Return our value of an effect with its interval: +8.7 ± 2.1 points, +12 % (3 to 22), or 6.5 times (4 to 10)."""
    ours = effect.ours
    if ours is None:
        return "-"
    if effect.effect.scale == "times":
        between = "" if ours.interval is None else " ({} to {})".format(*map(_ratio, ours.interval))
        return f"{_ratio(ours.value)} times{between}"
    if effect.effect.scale == "points":
        return points(ours)
    ends = "" if ours.interval is None else " ({:.0f} to {:.0f})".format(*ours.interval)
    return f"{ours.value:+.0f} %{ends}"


def _ratio(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # not 1.3e+02


def points(estimate: MeanOverSeeds) -> str:
    """Return a difference in points with the half-width of its interval: +8.7 ± 2.1 points."""
    within = "" if estimate.half is None else f" ± {estimate.half:.1f}"
    return f"{estimate.value:+.1f}{within} points"


def effect_paper(effect: EffectResult) -> str:
    """Return the paper's value of an effect, with the margin where it finds no difference or no gain."""
    unit = {"points": "points", "relative": "%", "times": "times"}[effect.effect.scale]
    digits = 1 if effect.effect.scale == "points" else 0
    printed = "-" if effect.paper is None else f"{effect.paper:+.{digits}f} {unit}"
    if effect.effect.within is not None:
        return f"{printed}; within {effect.effect.within:g} {unit}"
    return printed if effect.effect.least is None else f"{printed}; at least {effect.effect.least:g} {unit}"


def _sizes(simulated: Simulated) -> str:
    population = simulated.population
    return f"{simulated.cohort_size:,g} of {population:,}" if population else "-"


def _claim_text(claim: ClaimedEpsilon) -> str:
    epsilon = claim.epsilon.tightest
    shown = "none" if epsilon is None else short_exponents(rounded_up(epsilon))
    return f"{shown} at {claim.cohort_size:,g} of {claim.population:,}"


def footnotes(results: Sequence[RowResult]) -> list[str]:
    """Return a line for every WER on another part than dev and test, every best model on dev that is clearly another
    than the last one, every remark on a row or on the paper's numbers, verified ledgers, and different machines."""
    lines = []
    for result in results:
        for part in result.row.also:
            ours = f"ours {percent(result.wer[part])}" if part in result.wer else ""
            paper = f"paper {_printed(result.paper[part])}" if part in result.paper else ""
            if ours or paper:
                lines.append(f"{result.row.name}, on {part}: {'; '.join(text for text in (ours, paper) if text)}")
        if best := _best(result):
            lines.append(f"{result.row.name}, of the best model on dev instead of the last one: {best}")
        if result.note:
            whose = ", the paper's" if result.row.like or result.row.paper else ""
            lines.append(f"{result.row.name}{whose}: {result.note}")
    return [*lines, *filter(None, [ledger_note(results)]), *machine_notes(results)]


def _best(result: RowResult) -> str:
    """Return the WERs of the best model on dev, where one differs from the last model's by more than a little."""
    both = {label: (result.wer[label], best) for label, best in result.best_wer.items() if label in result.wer}
    if all(abs(last.value - best.value) <= _WORTH_SAYING for last, best in both.values()):
        return ""
    return ", ".join(f"{percent(best)} on {label}" for label, (_, best) in both.items())


def interval_note(results: Sequence[RowResult]) -> str:
    """Return the sentence that explains the intervals; nothing where no row has run."""
    counts = sorted({len(result.runs) for result in results if result.runs})
    if not counts:
        return ""
    if counts == [1]:
        return (
            "WER in %, of the last model, ± the half-width of a 95 % interval over speakers. One seed: other seeds may "
            "differ by more. --seeds 3 shows it."
        )
    return (
        f"WER in %, of the last model: the mean over {counts[-1]} seeds{_fewer_seeds(results, counts[:-1])} ± the "
        "half-width of a 95 % interval, over speakers and seeds. Differences of rows have intervals of their own, "
        "which are narrower: rows share speakers and seeds."
    )


def _fewer_seeds(results: Sequence[RowResult], counts: Sequence[int]) -> str:
    """Return the rows that have one of these numbers of seeds, in brackets; nothing where there is no such number."""
    named = [
        f"{count} for {', '.join(result.row.name for result in results if len(result.runs) == count)}"
        for count in counts
    ]
    return f" ({'; '.join(named)})" if named else ""


def epsilon_note(results: Iterable[RowResult]) -> str:
    """Return what the epsilons of rows are; nothing where there are none."""
    private = [result for result in results if result.epsilon.tightest is not None or result.claims]
    if not private:
        return ""
    secure = all(result.config.randomness.source == "secure" for result in private)
    noise = "cohorts and noise are secure: it was spent" if secure else "the noise is seeded: a simulation"
    deltas = sorted({result.config.privacy.target_delta for result in private})
    return (
        f"Epsilon is for all audio of one user, at delta {' or '.join(map(short_number, deltas))}, of one model alone, "
        f"beyond what its seed model reveals; {noise}. An epsilon above {PROTECTS_NOBODY:g} protects nobody. Claimed: "
        "the same noise at other sizes, at which nothing was trained."
    )


def printed_claims(size: Size) -> list[PaperRow]:
    """Return the epsilons that the paper prints for a benchmark: accounting alone, nothing was trained."""
    return [row for row in paper_rows() if row.table == size.paper_claims]


def document(run: BenchRun, results: Sequence[RowResult]) -> dict[str, Any]:
    """Return everything as one JSON document."""
    bench, size = run.bench, run.size
    about = {"about": bench.about, "source": bench.source, "finding": bench.finding, "note": size.note}
    effects = effect_results(size.effects, results)
    return {
        **about,
        "settings": list(run.settings),
        "rows": [_row_document(size, result) for result in results],
        "effects": [effect_document(effect) for effect in effects],
        "reproduced": reproduced(effects),
        "prices": [price_document(price) for price in price_rows(size.prices, results)],
        "paper_claims": [asdict(row) for row in printed_claims(size)],
    }


def _row_document(size: Size, result: RowResult) -> dict[str, Any]:
    epsilon, sizes = result.epsilon, result.simulated
    spent = {"epsilon_rdp": epsilon.rdp, "epsilon_pld": epsilon.pld}
    return {
        "row": result.row.name,
        "kind": result.kind,
        "ours": {label: _estimate_document(found) for label, found in result.wer.items()},
        "best_on_dev": {label: _estimate_document(found) for label, found in result.best_wer.items()},
        "simulated": None if sizes is None else {**asdict(sizes), **spent},
        "claims": [claim.model_dump() for claim in result.claims],
        "paper": dict(result.paper),
        "unstated": sorted(size.unstated_in(result.row)),
        "note": result.note,
        "runs": [str(folder) for folder in result.folders],
        "machines": [machine.model_dump() for machine in result.machines],
        "ledgers": {str(run.seed): run.ledger.model_dump() for run in result.runs if run.ledger is not None},
    }


def _estimate_document(estimate: MeanOverSeeds) -> dict[str, Any]:
    """Return an estimate in percent or points: the mean over seeds, the ends of its interval, each seed."""
    interval = estimate.interval
    return {
        "mean": estimate.value,
        "interval": None if interval is None else list(interval),
        "over": _over(estimate),
        "seeds": {str(seed): value for seed, value in estimate.by_seed.items()},
    }


def _over(estimate: MeanOverSeeds) -> str:
    if estimate.scale == "times":
        return "seeds"
    return "speakers" if len(estimate.seeds) == 1 else "speakers and seeds"


def effect_document(result: EffectResult) -> dict[str, Any]:
    """Return an effect as JSON, with its contrast, our estimate, the paper's value and the verdict."""
    return {
        **result.effect.model_dump(),
        "ours": None if result.ours is None else _estimate_document(result.ours),
        "elsewhere": {label: _estimate_document(found) for label, found in result.elsewhere.items()},
        "paper_value": result.paper,
        "verdict": result.verdict,
        "words": result.words,
    }


def markdown(results: Iterable[RowResult]) -> str:
    """Return the table of rows in Markdown."""
    return markdown_table(HEADER, table(results))


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def section(run: BenchRun, results: Sequence[RowResult], command: str) -> str:
    """Return the section of a Markdown file that holds both tables, and the command that made them; without notes."""
    more = "".join(f"- {line}\n" for line in footnotes(results))
    first = f"{run.bench.about} ({run.bench.source}). `{command}`"
    effects = effect_results(run.size.effects, results)
    shown = markdown_table(EFFECT_HEADER, effect_table(effects)) if effects else ""
    prices = price_rows(run.size.prices, results)
    priced = markdown_table(PRICE_HEADER, price_table(prices)) if prices else ""
    tables = [markdown(results), more, interval_note(results), shown, price_note(prices), priced]
    parts = [first, run.settings_note, *tables, run.bench.stated_finding]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"
