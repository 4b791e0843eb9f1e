"""Running a benchmark from beginning to end: prepare its corpora, train its unfinished runs, collect the results.

run = BenchRun.choose("dp-results", seeds=3, out=Path("runs/bench"))
for result in run_bench(run, workers=2):
    print(result.row.name, result.wer["test"].value, result.epsilon.tightest)
"""

from collections.abc import Callable

from sottovoce.bench.corpora import find_part, prepare_parts
from sottovoce.bench.plan import BenchRun, wanted_parts
from sottovoce.bench.results import RowResult, collect, require_results
from sottovoce.bench.run import Announce, is_done, no_display, run_jobs
from sottovoce.errors import ConfigError, DataError
from sottovoce.processes import Progress, no_progress, under_torchrun
from sottovoce.workers import leads

Say = Callable[[str], None]


def _silent(_message: str) -> None:
    """Say nothing."""


def run_bench(
    run: BenchRun,
    *,
    workers: int = 1,
    progress: Progress = no_progress,
    announce: Announce = no_display,
    say: Say = _silent,
) -> list[RowResult]:
    """Prepare the corpora, train every run that is not done yet, and return the results of all rows.

    A run that is done with the same configuration, code and data is not repeated, whichever benchmark trained it. Raise
    DataError where a signal stopped it before the end; started again, it resumes.
    """
    prepare_corpora(run, workers=workers, progress=progress)
    train_rows(run, workers=workers, announce=announce, say=say)
    return collect(run)


def prepare_corpora(run: BenchRun, *, workers: int = 1, progress: Progress = no_progress) -> None:
    """Prepare the corpora and parts that the rows need, unless they exist; first check that every row can be shown.

    Under torchrun nothing is prepared: raise ConfigError where something is missing.
    """
    require_results(run)
    parts = wanted_parts(run.size, run.rows)
    if not under_torchrun():
        prepare_parts(run.size, parts, run.out, workers, progress)
    elif any(find_part(run.size, part, run.out) is None for part in parts):
        raise ConfigError("Under torchrun no corpus is prepared. Run this once without torchrun, with --prepare-only.")


def train_rows(run: BenchRun, *, workers: int = 1, announce: Announce = no_display, say: Say = _silent) -> None:
    """Train every run that is not done yet, on corpora that are prepared; raise where a signal stopped it early."""
    jobs = run.jobs()
    left = sum(not is_done(job) for job in jobs)
    if leads():
        say(f"{run.name}: {left} of {len(jobs)} runs are left to train.")
    if not run_jobs(jobs, workers, announce):
        raise DataError(f"{run.name} was stopped before the end. Run the same command again to resume.")
