"""The results of a benchmark, row by row: WER with its interval, epsilon, claims, the paper's numbers.

WER is measured at the cohort size and population that were simulated. A claim is the epsilon of the same noise at
another cohort size and population, where nobody trained: both pairs are always shown.

The same objects come from runs (`collect`) and from published documents (`published.py`): tables, verdicts and
figures see no difference.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sottovoce.bench.layer_norms import Norms, layer_norms
from sottovoce.bench.plan import BenchRun, Job, configure
from sottovoce.bench.preset import Bench, Row, RowClaim, Size
from sottovoce.bench.run import best_evaluations_of, evaluations_of, is_done
from sottovoce.config import Config
from sottovoce.errors import PrivacyError
from sottovoce.evaluation.intervals import Counts, MeanOverSeeds, wer_estimate
from sottovoce.privacy.accounting import Spent, account_for
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.mechanism import plain_mechanism
from sottovoce.privacy.target_delta import require_small_delta
from sottovoce.runs.documents import BenchRow, ClaimedEpsilon, Evaluation, RunConfig, TrainingKind
from sottovoce.runs.folder import Run
from sottovoce.runs.machine import Machine, machines_of

_LONGEST_GAP = 5  # seeds in a row that have not run


@dataclass(frozen=True)
class Simulated:
    """The sizes at which a federated row was trained."""

    cohort_size: float
    population: int | None
    central_steps: int

    @classmethod
    def of(cls, config: Config) -> "Simulated":
        """Return the sizes of a configuration."""
        participation = config.participation
        return cls(participation.cohort_size, participation.population, config.federated.central_steps)


class StartedFrom(BaseModel):
    """The seed model of a run: two trainings of one key may differ by rounding."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = Field(pattern=r"^[\w.-]{1,200}$", description="of the run that trained it")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of the model file")


class VerifiedLedger(BaseModel):
    """The ledger of a run that spent an epsilon, as it was when it was verified."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    releases: int = Field(ge=1)
    head: str = Field(pattern=r"^[0-9a-f]{64}$", description="the hash of its last line")


@dataclass(frozen=True, kw_only=True, eq=False)
class RunResult:
    """One finished run: the word errors of its last model and of the best one on dev, and the epsilon it spent."""

    seed: int
    key: str
    steps: int
    best_steps: int  # as many as `steps` where the best model is the last one
    last: Mapping[str, Counts]  # by dev, test, or the name of another part
    best: Mapping[str, Counts]
    epsilon: Epsilons
    norms: Norms
    machines: Sequence[Machine] = ()  # that it was trained on; none where that is not known
    started_from: StartedFrom | None = None
    ledger: VerifiedLedger | None = None  # of published runs alone: verifying takes a second or more
    folder: Path | None  # None where the run is elsewhere


@dataclass(frozen=True, kw_only=True, eq=False)
class RowResult:
    """One row: its finished runs, one for each seed, and the paper's numbers."""

    row: Row
    kind: TrainingKind
    simulated: Simulated | None  # None for central training
    runs: Sequence[RunResult]
    config: Config  # of the preset
    claimed_at: Sequence[RowClaim]
    paper: Mapping[str, float]
    note: str  # a remark on the paper's numbers

    @cached_property
    def claims(self) -> Sequence[ClaimedEpsilon]:
        """The epsilons of the row's noise at the sizes of its claims; computed when they are first asked for."""
        return [claimed(self.config, claim) for claim in self.claimed_at]

    @cached_property
    def wer(self) -> Mapping[str, MeanOverSeeds]:
        """The WER of the last model in percent, by dev, test, or the name of another part."""
        return self._estimates(best=False)

    @cached_property
    def best_wer(self) -> Mapping[str, MeanOverSeeds]:
        """The WER of the best model on dev, by the same names."""
        return self._estimates(best=True)

    def counts(self, label: str, *, best: bool = False) -> dict[int, Counts]:
        """Return the word errors on one set by seed; runs that were not evaluated there are left out."""
        sets = {run.seed: run.best if best else run.last for run in self.runs}
        return {seed: known[label] for seed, known in sets.items() if label in known}

    @property
    def epsilon(self) -> Epsilons:
        """The largest epsilon over seeds, each of which is a run of its own, by each accountant."""
        spent = [run.epsilon for run in self.runs]
        return Epsilons(
            max((epsilon.rdp for epsilon in spent if epsilon.rdp is not None), default=None),
            max((epsilon.pld for epsilon in spent if epsilon.pld is not None), default=None),
        )

    @property
    def folders(self) -> list[Path]:
        """The folders of the runs."""
        return [run.folder for run in self.runs if run.folder is not None]

    @property
    def machines(self) -> list[Machine]:
        """The types of machine that the runs were trained on, each once."""
        return list(dict.fromkeys(machine for run in self.runs for machine in run.machines))

    def _estimates(self, *, best: bool) -> dict[str, MeanOverSeeds]:
        estimates = {label: wer_estimate(self.counts(label, best=best)) for label in ("dev", "test", *self.row.also)}
        return {label: found for label, found in estimates.items() if found is not None}


def row_result(
    bench: Bench, size: Size, row: Row, runs: Sequence[RunResult], simulated: Simulated | None = None
) -> RowResult:
    """Return a row with the results of its runs; `simulated` are their sizes, by default those of the preset."""
    origin = size.origin(row)
    config = configure(size, origin).config
    return RowResult(
        row=row,
        kind=origin.kind,
        simulated=None if origin.kind == "central" else simulated or Simulated.of(config),
        runs=runs,
        config=config,
        claimed_at=[claim for claim in size.claims if claim.row == row.name],
        paper=bench.paper_values(row),
        note=bench.paper_row(row).note,
    )


def collect(run: BenchRun) -> list[RowResult]:
    """Return every row with the results of its finished runs."""
    jobs = run.jobs()
    return [row_result(run.bench, run.size, row, list(map(_run_result, _finished(jobs, row)))) for row in run.rows]


def seeds_that_ran(run: BenchRun) -> list[int]:
    """Return the seeds with which a row of the benchmark has run, asked for or not.

    Seeds that were trained elsewhere leave gaps; the search ends after a few seeds without a run.
    """
    seeds: list[int] = []
    while (seed := next(filter(partial(_has_run, run), _next_seeds(seeds)), None)) is not None:
        seeds.append(seed)
    return seeds


def _next_seeds(seeds: Sequence[int]) -> range:
    first = seeds[-1] + 1 if seeds else 0
    return range(first, first + _LONGEST_GAP)


def _has_run(run: BenchRun, seed: int) -> bool:
    return any(job.shown and is_done(job) for job in replace(run, rows=run.size.rows, seeds=[seed]).jobs())


def _finished(jobs: Iterable[Job], row: Row) -> list[Job]:
    return [job for job in jobs if job.row.name == row.name and is_done(job)]


def _run_result(job: Job) -> RunResult:
    run = Run(job.folder)
    last, best, result = evaluations_of(job), best_evaluations_of(job), run.result
    steps = next((evaluation.steps for evaluation in last.values()), 0)
    return RunResult(
        seed=job.seed,
        key=job.key,
        steps=steps,
        best_steps=next((evaluation.steps for evaluation in best.values()), steps),
        last=_counts(job, last),
        best=_counts(job, best),
        epsilon=Epsilons() if result is None else result.epsilon,
        norms=layer_norms(run),
        machines=machines_of(job.folder),
        started_from=_started_from(job.folder),
        folder=job.folder,
    )


def _started_from(folder: Path) -> StartedFrom | None:
    begun = RunConfig.find(folder)
    place, digest = (None, None) if begun is None else (begun.seed_model(folder), begun.data.get("seed_model"))
    return None if place is None or digest is None else StartedFrom(key=place.parent.name, sha256=digest)


def _counts(job: Job, evaluations: Mapping[str, Evaluation]) -> dict[str, Counts]:
    """Return the word errors by dev, test and other parts, with speakers in the order of their names."""
    roles = {role: part for role, part in job.parts.items() if role != "train" and part is not None}
    counts = {}
    for label, part in {**roles, **{part: part for part in job.row.also}}.items():
        if part in evaluations:
            summary = evaluations[part].speakers
            names = sorted(summary.words)
            words, edits = ([by[name] for name in names] for by in (summary.words, summary.word_edits))
            counts[label] = Counts(part, np.array(words, np.int64), np.array(edits, np.int64))
    return counts


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
    rows = rows_of_runs(run)
    for folder, row in rows.items():
        row.write(folder)
    return list(rows)


def rows_of_runs(run: BenchRun) -> dict[Path, BenchRow]:
    """Return every finished run with the row that it is of, in row order; nothing is written."""
    jobs = run.jobs()
    by_folder: dict[Path, list[Job]] = {}
    for row in run.rows:
        for job in _finished(jobs, row):
            by_folder.setdefault(job.folder, []).append(job)
    return {folder: _described(run, same) for folder, same in by_folder.items()}


def _described(run: BenchRun, jobs: Sequence[Job]) -> BenchRow:
    """Return the row of one run; where several rows share it, it is shown once, under all their names."""
    first, names = jobs[0], {job.row.name for job in jobs}
    return BenchRow(
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
    )
