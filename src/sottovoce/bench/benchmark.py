"""Running a benchmark from beginning to end: prepare its corpora, train its unfinished runs, collect the results.

run = BenchRun.choose("dp-results", seeds=3, out=Path("runs/bench"))
for result in run_bench(run, workers=2):
    print(result.row.name, result.wer["test"].value, result.epsilon.tightest)
"""

from collections.abc import Sequence

from sottovoce.bench.corpora import find_part, prepare_parts
from sottovoce.bench.document_folder import DocumentFolder
from sottovoce.bench.locks import Say, silent
from sottovoce.bench.plan import BenchRun, Job, wanted_parts
from sottovoce.bench.planned import PlanPart
from sottovoce.bench.results import RowResult, collect, require_results
from sottovoce.bench.run import is_done
from sottovoce.bench.scheduling import Announce, no_display, train_jobs
from sottovoce.data.preparation import MAX_REJECTED
from sottovoce.errors import ConfigError
from sottovoce.processes import Progress, no_progress, under_torchrun
from sottovoce.workers import leads


def run_bench(
    run: BenchRun,
    *,
    workers: int = 1,
    progress: Progress = no_progress,
    announce: Announce = no_display,
    say: Say = silent,
) -> list[RowResult]:
    """Prepare the corpora, train every run that is not done yet, and return the results of all rows.

    A run that is done with the same configuration, algorithm and data is not repeated, whichever benchmark trained it.
    Runs that other commands train in the same folder are waited for. Raise DataError where a signal stopped it before
    the end; started again, it resumes.
    """
    prepare_corpora(run, workers=workers, progress=progress, say=say)
    train_rows([run], workers=workers, announce=announce, say=say)
    return collect(run)


def prepare_corpora(
    run: BenchRun,
    *,
    workers: int = 1,
    progress: Progress = no_progress,
    max_rejected: float | None = None,
    say: Say = silent,
) -> None:
    """Prepare the corpora and parts that the rows need, unless they exist; first check that every row can be shown.

    `max_rejected` is that of `prepare`; None is the usual share. Under torchrun nothing is prepared: raise ConfigError
    where something is missing.
    """
    require_results(run)
    parts = wanted_parts(run.size, run.rows)
    if not under_torchrun():
        share = MAX_REJECTED if max_rejected is None else max_rejected
        prepare_parts(run.size, parts, run.out, workers, progress, max_rejected=share, say=say)
    elif any(find_part(run.size, part, run.out) is None for part in parts):
        raise ConfigError("Under torchrun no corpus is prepared. Run this once without torchrun, with --prepare-only.")


def train_rows(
    runs: Sequence[BenchRun],
    *,
    part: PlanPart | None = None,
    published: DocumentFolder | None = None,
    workers: int = 1,
    announce: Announce = no_display,
    wait: bool = True,
    say: Say = silent,
) -> None:
    """Train every run that is not done yet, or a part of them, on corpora that are prepared.

    Runs that published documents have are left out, unless others start from them. Without `wait`, end when all that is
    left is in the hands of other commands.
    """
    jobs: list[Job] = [
        job for run in runs for job in (run.jobs() if published is None else published.left_of(run, run.jobs()))
    ]
    if part is not None:
        jobs = part.of(jobs)
    if leads():
        name = runs[0].name if len(runs) == 1 else f"{len(runs)} benchmarks"
        keys, left = {job.key for job in jobs}, {job.key for job in jobs if not is_done(job)}
        runs_are = "run is" if len(keys) == 1 else "runs are"
        say(f"{name}: {len(left)} of {len(keys)} {runs_are} left to train.")
    if not train_jobs(jobs, workers, announce=announce, wait=wait, say=say):
        say("Other commands train the rest.")
