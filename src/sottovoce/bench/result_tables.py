"""The results of a benchmark as people and programs read them: a table, Markdown, a JSON document."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from sottovoce.bench.machine_notes import machine_notes, machines_of_row
from sottovoce.bench.plan import BenchRun
from sottovoce.bench.preset import Size
from sottovoce.bench.results import RowResult
from sottovoce.config import Config
from sottovoce.privacy.accounting import rounded_up, short_exponents
from sottovoce.privacy.epsilons import PROTECTS_NOBODY
from sottovoce.privacy.paper import PaperRow, paper_rows
from sottovoce.runs.documents import ClaimedEpsilon

HEADER = ("row", "ours: dev", "ours: test", "S of K", "epsilon there", "epsilon claimed", "paper: dev", "paper: test")


def table(results: Iterable[RowResult]) -> list[list[str]]:
    """Return the rows of a table with the columns of HEADER."""
    return [_line(result) for result in results]


def _line(result: RowResult) -> list[str]:
    federated, spent = result.kind == "federated", result.epsilon.tightest
    no_epsilon = "none" if federated and result.wer else "-"
    return [
        result.row.name,
        *(result.wer[key].percent() if key in result.wer else "-" for key in ("dev", "test")),
        _sizes(result.config) if federated else "central",
        no_epsilon if spent is None else short_exponents(rounded_up(spent)),
        "; ".join(map(_claim_text, result.claims)) or "-",
        *(_printed(result.paper[key]) if key in result.paper else "-" for key in ("dev", "test")),
    ]


def _printed(percent: float) -> str:
    return f"{percent:.1f}" if percent == round(percent, 1) else f"{percent:g}"


def _sizes(config: Config) -> str:
    population = config.participation.population
    return f"{config.participation.cohort_size:,g} of {population:,}" if population else "-"


def _claim_text(claim: ClaimedEpsilon) -> str:
    epsilon = claim.epsilon.tightest
    shown = "none" if epsilon is None else short_exponents(rounded_up(epsilon))
    return f"{shown} at {claim.cohort_size:,g} of {claim.population:,}"


def footnotes(results: Sequence[RowResult]) -> list[str]:
    """Return a line for every WER on another part than dev and test, for every remark, and for different machines."""
    lines = []
    for result in results:
        for part in result.row.also:
            ours = f"ours {result.wer[part].percent()}" if part in result.wer else ""
            paper = f"paper {_printed(result.paper[part])}" if part in result.paper else ""
            if ours or paper:
                lines.append(f"{result.row.name}, on {part}: {'; '.join(text for text in (ours, paper) if text)}")
        if result.note:
            lines.append(f"{result.row.name}, the paper's: {result.note}")
    return [*lines, *machine_notes(results)]


EPSILON_NOTE = (
    "Epsilon is for all audio of one user, at privacy.target_delta (1e-9 unless set), of each seed alone, beyond what "
    f"the seed model reveals; the noise is seeded: a simulation. An epsilon above {PROTECTS_NOBODY:g} protects nobody. "
    "Claimed: the same noise at other sizes, at which nothing was trained."
)


def printed_claims(size: Size) -> list[PaperRow]:
    """Return the epsilons that the paper prints for a benchmark: accounting alone, nothing was trained."""
    return [row for row in paper_rows() if row.table == size.paper_claims]


def document(run: BenchRun, results: Iterable[RowResult]) -> dict[str, Any]:
    """Return everything as one JSON document."""
    bench, size = run.bench, run.size
    about = {"about": bench.about, "source": bench.source, "finding": bench.finding, "note": size.note}
    rows = [_row_document(size, result) for result in results]
    return {
        **about,
        "settings": list(run.settings),
        "rows": rows,
        "paper_claims": [asdict(row) for row in printed_claims(size)],
    }


def _row_document(size: Size, result: RowResult) -> dict[str, Any]:
    participation, epsilon = result.config.participation, result.epsilon
    simulated = {
        "cohort_size": participation.cohort_size,
        "population": participation.population,
        "central_steps": result.config.federated.central_steps,
        "epsilon_rdp": epsilon.rdp,
        "epsilon_pld": epsilon.pld,
    }
    return {
        "row": result.row.name,
        "kind": result.kind,
        "ours": {label: {"mean": spread.mean, "values": list(spread.values)} for label, spread in result.wer.items()},
        "simulated": simulated if result.kind == "federated" else None,
        "claims": [claim.model_dump() for claim in result.claims],
        "paper": dict(result.paper),
        "unstated": sorted(size.unstated_in(result.row)),
        "note": result.note,
        "runs": [str(folder) for folder in result.folders],
        "machines": [machine.model_dump() for machine in machines_of_row(result)],
    }


def markdown(results: Iterable[RowResult]) -> str:
    """Return the table in Markdown."""
    lines = ["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table(results)]
    return "\n".join(lines)


def section(run: BenchRun, results: Sequence[RowResult], command: str) -> str:
    """Return the section of a Markdown file that holds the table, and the command that made it."""
    more = "".join(f"- {line}\n" for line in footnotes(results))
    first = f"{run.bench.about} ({run.bench.source}). `{command}`"
    parts = [first, run.settings_note, markdown(results), more, f"The paper finds: {run.bench.finding}", run.size.note]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"
