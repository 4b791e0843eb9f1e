"""The results of a benchmark, row by row: WER with the spread over seeds, epsilon, claims, the paper's numbers.

WER is measured at the cohort size and population that were simulated. A claim is the epsilon of the same noise at
another cohort size and population, where nobody trained: both pairs are always shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sottovoce.bench.plan import BenchRun, Job, configure
from sottovoce.bench.preset import Row, RowClaim, Size
from sottovoce.bench.run import evaluations_of, is_done
from sottovoce.config import Config
from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import Spent, account_for
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.mechanism import plain_mechanism
from sottovoce.privacy.target_delta import require_small_delta
from sottovoce.runs.documents import BenchRow, ClaimedEpsilon, TrainingKind
from sottovoce.runs.folder import Run


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


@dataclass(frozen=True, kw_only=True)
class RowResult:
    """One row: its configuration, our numbers where it has run, and the paper's."""

    row: Row
    config: Config
    kind: TrainingKind
    wer: Mapping[str, Spread]  # by dev, test, or the name of another part
    epsilon: Epsilons  # the largest over seeds, each of which is a run of its own
    claims: Sequence[ClaimedEpsilon]
    paper: Mapping[str, float]
    note: str  # a remark on the paper's numbers
    folders: Sequence[Path]


def collect(run: BenchRun) -> list[RowResult]:
    """Return every row with the results of its finished runs."""
    jobs = run.jobs()
    return [_row_result(run, row, _finished(jobs, row)) for row in run.rows]


def _finished(jobs: Iterable[Job], row: Row) -> list[Job]:
    return [job for job in jobs if job.row.name == row.name and is_done(job)]


def _row_result(run: BenchRun, row: Row, jobs: Sequence[Job]) -> RowResult:
    size, bench = run.size, run.bench
    origin = size.origin(row)
    config = configure(size, origin).config
    return RowResult(
        row=row,
        config=config,
        kind=origin.kind,
        wer=_spreads(size, row, jobs),
        epsilon=_largest([result.epsilon for job in jobs if (result := Run(job.folder).result) is not None]),
        claims=[claimed(config, claim) for claim in size.claims if claim.row == row.name],
        paper=bench.paper_values(row),
        note=bench.paper_row(row).note,
        folders=[job.folder for job in jobs],
    )


def _spreads(size: Size, row: Row, jobs: Sequence[Job]) -> dict[str, Spread]:
    """Return the WER of the finished runs, by dev, test and other parts."""
    roles = {role: part for role, part in size.part_of(row).items() if role != "train" and part is not None}
    evaluations = [evaluations_of(job) for job in jobs]
    spreads = {}
    for label, part in {**roles, **{part: part for part in row.also}}.items():
        values = tuple(known[part].wer for known in evaluations if part in known)
        if values:
            spreads[label] = Spread(values)
    return spreads


def _largest(spent: Sequence[Epsilons]) -> Epsilons:
    """Return the largest epsilon of several runs, by each accountant."""
    return Epsilons(
        max((epsilon.rdp for epsilon in spent if epsilon.rdp is not None), default=None),
        max((epsilon.pld for epsilon in spent if epsilon.pld is not None), default=None),
    )


def claimed(config: Config, claim: RowClaim) -> ClaimedEpsilon:
    """Return the epsilon of a row's noise at the sizes of a claim; raise where the row has no guarantee."""
    steps = claim.central_steps or config.federated.central_steps
    spent = _claimed_spent(config, claim, steps)
    delta = config.privacy.target_delta
    epsilons = account_for(spent, delta).epsilons
    return ClaimedEpsilon(
        cohort_size=claim.cohort_size,
        population=claim.population,
        central_steps=steps,
        target_delta=delta,
        epsilon_rdp=epsilons.rdp,
        epsilon_pld=epsilons.pld,
    )


def _claimed_spent(config: Config, claim: RowClaim, steps: int) -> Spent:
    if config.privacy.void is not None:
        raise PrivacyError(f"There is nothing to claim of the row {claim.row!r}: {config.privacy.void}.")
    participation, privacy = config.participation, config.privacy
    if participation.weight != "one" or participation.q_min is not None:
        raise PrivacyError(f"The row {claim.row!r} weighs its users: a claim at other sizes needs their weights too.")
    require_small_delta(privacy.target_delta, claim.population, privacy.accept)
    mechanism = plain_mechanism(
        privacy.sigma_dp, claim.cohort_size, claim.population, participation.sampling, noise=privacy.noise
    )
    return mechanism.spent(steps)


def require_results(run: BenchRun) -> None:
    """Raise, before any work, where a row's claim or the paper's number for it could not be shown."""
    for row in run.rows:
        run.bench.paper_values(row)
        for claim in (claim for claim in run.size.claims if claim.row == row.name):
            _claimed_spent(configure(run.size, row).config, claim, 1)


def describe_runs(run: BenchRun) -> list[Path]:
    """Write row.json into every finished run, so that reports can name its row; return the runs in row order."""
    jobs = run.jobs()
    by_folder: dict[Path, list[Job]] = {}
    for row in run.rows:
        for job in _finished(jobs, row):
            by_folder.setdefault(job.folder, []).append(job)
    for same in by_folder.values():
        _describe(run, same)
    return list(by_folder)


def _describe(run: BenchRun, jobs: Sequence[Job]) -> None:
    """Describe one run; where several rows share it, it is shown once, under all their names."""
    first, names = jobs[0], {job.row.name for job in jobs}
    BenchRow(
        bench=first.bench,
        size=first.size,
        row=first.row.name,
        seed=first.seed,
        label=" = ".join(job.label for job in jobs),
        kind=first.kind,
        dev=first.parts["dev"],
        test=first.parts["test"],
        claims=[claimed(first.resolved.config, claim) for claim in run.size.claims if claim.row in names],
        paper={key: value for job in reversed(jobs) for key, value in run.bench.paper_values(job.row).items()},
    ).write(first.folder)
