"""What a benchmark has shown: ours beside the paper's, with the spread over seeds, and epsilon where it is claimed.

WER is measured at the cohort size and population that were simulated. A claim is the epsilon of the same noise at
another cohort size and population, where nobody trained: both pairs are always shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sottovoce.bench.plan import Job, configure, plan
from sottovoce.bench.preset import Bench, Claim, Row, Size
from sottovoce.bench.run import describe, is_done, result_of
from sottovoce.config import Config
from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import Spent, pld, rdp, rounded_up
from sottovoce.privacy.mechanism import plain_mechanism
from sottovoce.privacy.paper import PaperRow, paper_rows


@dataclass(frozen=True)
class Spread:
    """A figure over several seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return sum(self.values) / len(self.values)

    def percent(self) -> str:
        """Return it in percent, with the smallest and the largest where there are several."""
        if len(self.values) == 1:
            return f"{100 * self.mean:.1f}"
        return f"{100 * self.mean:.1f} ({100 * min(self.values):.1f} to {100 * max(self.values):.1f})"


@dataclass(frozen=True)
class Shown:
    """One row: what it was trained with, what came out, what the paper prints."""

    row: Row
    config: Config
    kind: str
    wer: Mapping[str, Spread]  # by dev, test, or the name of another part
    epsilon_rdp: float | None
    epsilon_pld: float | None
    claims: Sequence[Mapping[str, Any]]
    paper: Mapping[str, float]
    note: str  # what must be known of the paper's numbers
    folders: Sequence[Path]


def collect(name: str, bench: Bench, size_name: str, seeds: int, out: Path, rows: Sequence[Row]) -> list[Shown]:
    """Return all rows with whatever has run for them."""
    size = bench.size(size_name)
    jobs = plan(name, bench, size_name, rows, range(seeds), out)
    return [
        _shown(bench, size, row, [job for job in jobs if job.row.name == row.name and is_done(job)]) for row in rows
    ]


def _shown(bench: Bench, size: Size, row: Row, jobs: Sequence[Job]) -> Shown:
    origin = row if row.same is None else size.row(row.same)
    config = configure(size, origin).config
    results = [result_of(job) for job in jobs]
    wer: dict[str, Spread] = {}
    for label, part in (*size.part_of(row).items(), *((part, part) for part in row.also)):
        values = tuple(result["wer"][part] for result in results if part in result["wer"])
        if values and label != "train":
            wer[label] = Spread(values)
    spent = [result["spent"] for result in results]
    return Shown(
        row,
        config,
        origin.kind,
        wer,
        _largest(spent, "epsilon_rdp"),
        _largest(spent, "epsilon_pld"),
        [claimed(config, claim) for claim in size.claims if claim.row == row.name],
        bench.paper_values(row),
        bench.paper_row(row).note,
        [job.folder for job in jobs],
    )


def _largest(spent: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the largest epsilon over seeds: each is a run of its own."""
    return max((one[name] for one in spent if one.get(name) is not None), default=None)


def claimed(config: Config, claim: Claim) -> dict[str, Any]:
    """Return the epsilon of a row's noise at the sizes of a claim; raise where the row has no guarantee to speak of."""
    steps = claim.central_steps or config.federated.central_steps
    spent = _claimed_spent(config, claim, steps)
    delta = config.privacy.target_delta
    return {
        "cohort_size": claim.cohort_size,
        "population": claim.population,
        "central_steps": steps,
        "target_delta": delta,
        "epsilon_rdp": rdp(spent, delta).epsilon,
        "epsilon_pld": pld(spent, delta).epsilon,
    }


def _claimed_spent(config: Config, claim: Claim, steps: int) -> Spent:
    if config.privacy.void is not None:
        raise PrivacyError(f"There is nothing to claim of the row {claim.row!r}: {config.privacy.void}.")
    participation, privacy = config.participation, config.privacy
    if participation.weight != "one" or participation.q_min is not None:
        raise PrivacyError(f"The row {claim.row!r} weighs its users: a claim at other sizes needs their weights too.")
    mechanism = plain_mechanism(
        privacy.sigma_dp, claim.cohort_size, claim.population, participation.sampling, noise=privacy.noise
    )
    return mechanism.spent(steps)


def require_results(bench: Bench, size_name: str, rows: Sequence[Row]) -> None:
    """Raise where a row's claim or what the paper prints for it could not be shown; nothing needs to have run."""
    size = bench.size(size_name)
    for row in rows:
        bench.paper_values(row)
        for claim in (claim for claim in size.claims if claim.row == row.name):
            _claimed_spent(configure(size, row).config, claim, 1)


def note_rows(name: str, bench: Bench, size_name: str, seeds: int, out: Path, rows: Sequence[Row]) -> list[Path]:
    """Note in every finished run for which row it was used; return the runs in the order of the rows."""
    size = bench.size(size_name)
    jobs = plan(name, bench, size_name, rows, range(seeds), out)
    found: dict[Path, list[Job]] = {}
    for row in rows:
        for job in (job for job in jobs if job.row.name == row.name and is_done(job)):
            found.setdefault(job.folder, []).append(job)
    for same in found.values():  # two rows may be one run: it is shown once, with both names and what is said of either
        names = {job.row.name for job in same}
        claims = [claimed(same[0].resolved.config, claim) for claim in size.claims if claim.row in names]
        paper = {key: value for job in reversed(same) for key, value in bench.paper_values(job.row).items()}
        describe(same[0], " = ".join(job.label for job in same), claims, paper)
    return list(found)


HEADER = ("row", "ours: dev", "ours: test", "S of K", "epsilon there", "epsilon claimed", "paper: dev", "paper: test")


def table(shown: Iterable[Shown]) -> list[list[str]]:
    """Return the rows of a table with the columns of HEADER."""
    return [_line(one) for one in shown]


def _line(one: Shown) -> list[str]:
    federated = one.kind == "federated"
    sizes = _sizes(one.config) if federated else "central"
    spent = "" if one.epsilon_rdp is None else rounded_up(min(one.epsilon_rdp, one.epsilon_pld or one.epsilon_rdp))
    paper = dict(one.paper)
    return [
        one.row.name,
        *(one.wer[key].percent() if key in one.wer else "-" for key in ("dev", "test")),
        sizes,
        spent or ("none" if federated and one.wer else "-"),
        "; ".join(map(_claim_text, one.claims)) or "-",
        *(_printed(paper[key]) if key in paper else "-" for key in ("dev", "test")),
    ]


def _printed(percent: float) -> str:
    return f"{percent:.1f}" if percent == round(percent, 1) else f"{percent:g}"


def elsewhere(shown: Iterable[Shown]) -> list[str]:
    """Return what rows have on other parts than dev and test, and what the paper's numbers need to be read, by line."""
    lines = []
    for one in shown:
        for part in one.row.also:
            ours = f"ours {one.wer[part].percent()}" if part in one.wer else ""
            paper = f"paper {_printed(one.paper[part])}" if part in one.paper else ""
            if ours or paper:
                lines.append(f"{one.row.name}, on {part}: {'; '.join(text for text in (ours, paper) if text)}")
        if one.note:
            lines.append(f"{one.row.name}, the paper's: {one.note}")
    return lines


EPSILON_NOTE = (
    "Epsilon is for all audio of one user, at privacy.target_delta (1e-9 unless set), of each seed alone, beyond what "
    "the seed model reveals; the noise is seeded: a simulation. An epsilon far above 10 protects nobody. Claimed: the "
    "same noise at other sizes, where nobody trained."
)


def _sizes(config: Config) -> str:
    population = config.participation.population
    return f"{config.participation.cohort_size:,g} of {population:,}" if population else "-"


def _claim_text(claim: Mapping[str, Any]) -> str:
    epsilon = rounded_up(min(claim["epsilon_rdp"], claim["epsilon_pld"]))
    return f"{epsilon} at {claim['cohort_size']:,g} of {claim['population']:,}"


def printed_claims(size: Size) -> list[PaperRow]:
    """Return the epsilons that the paper prints for a benchmark: accounting, apart from what was trained."""
    return [row for row in paper_rows() if row.table == size.paper_claims]


def document(bench: Bench, size: Size, shown: Iterable[Shown]) -> dict[str, Any]:
    """Return everything as one JSON document."""
    rows = [
        {
            "row": one.row.name,
            "kind": one.kind,
            "ours": {label: {"mean": spread.mean, "values": list(spread.values)} for label, spread in one.wer.items()},
            "simulated": {
                "cohort_size": one.config.participation.cohort_size,
                "population": one.config.participation.population,
                "central_steps": one.config.federated.central_steps,
                "epsilon_rdp": one.epsilon_rdp,
                "epsilon_pld": one.epsilon_pld,
            }
            if one.kind == "federated"
            else None,
            "claims": [dict(claim) for claim in one.claims],
            "paper": dict(one.paper),
            "unstated": sorted(size.unstated_in(one.row)),
            "note": one.note,
            "runs": [str(folder) for folder in one.folders],
        }
        for one in shown
    ]
    printed = [asdict(row) for row in printed_claims(size)]
    about = {"about": bench.about, "source": bench.source, "finding": bench.finding, "note": size.note}
    return {**about, "rows": rows, "paper_claims": printed}


def markdown(shown: Iterable[Shown]) -> str:
    """Return the table in Markdown."""
    lines = ["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table(shown)]
    return "\n".join(lines)
