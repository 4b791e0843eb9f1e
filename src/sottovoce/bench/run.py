"""Training the runs of a benchmark, one after another on the same workers. Killed at any moment, it can be resumed.

OUT/runs/KEY/               a run as `runs/folder.py` describes it, with evaluation.json of its parts, and
                            best_evaluation.json where the best model on dev is not the last one
OUT/runs/KEY/row.json       the row it was last used for
OUT/runs/KEY/done.json      written last: the run is trained and evaluated
"""

from collections.abc import Callable, Mapping, Sequence

from sottovoce.bench.plan import Job
from sottovoce.central.central_training import train_central
from sottovoce.distributed import Group
from sottovoce.federated.federated_training import train_federated
from sottovoce.model.recogniser import load_recogniser
from sottovoce.runs.display import MakeDisplay, NoDisplay
from sottovoce.runs.documents import BestEvaluations, Checkpoint, Done, Evaluation, Evaluations
from sottovoce.runs.evaluations import record_evaluations
from sottovoce.runs.folder import BEST, LAST, Run
from sottovoce.runs.stop import Stop
from sottovoce.workers import run_workers

# Makes the display of one run, from its place among the runs, their number and its label.
Announce = Callable[[int, int, str], MakeDisplay]


def no_display(_place: int, _total: int, _label: str) -> MakeDisplay:
    """Show nothing of any run."""
    return NoDisplay


def is_done(job: Job) -> bool:
    """Return whether a run is trained, and evaluated on all parts that the row asks for."""
    wanted = set(job.evaluated)
    evaluated = wanted <= evaluations_of(job).keys() and wanted <= best_evaluations_of(job).keys()
    return (job.folder / Done.FILE).exists() and evaluated


def evaluations_of(job: Job) -> Mapping[str, Evaluation]:
    """Return the evaluations of the last model by part; those on other populations than the row's are left out."""
    return _on_its_parts(job, Run(job.folder).evaluations)


def best_evaluations_of(job: Job) -> Mapping[str, Evaluation]:
    """Return the evaluations of the best model on dev by part: those of the last one, where that is the best."""
    best = Run(job.folder).best_checkpoint
    if best is None:
        return evaluations_of(job)
    known = BestEvaluations.find(job.folder)
    of_best = {} if known is None else {part: one for part, one in known.root.items() if one.steps == best.step}
    return _on_its_parts(job, of_best)


def _on_its_parts(job: Job, known: Mapping[str, Evaluation]) -> dict[str, Evaluation]:
    return {part: known[part] for part in job.evaluated if part in known and known[part].population == job.hashes[part]}


def run_jobs(jobs: Sequence[Job], workers: int, announce: Announce = no_display) -> bool:
    """Train the unfinished runs; return whether all are done now (a signal may stop them early)."""
    left = [job for job in jobs if not is_done(job)]
    if left:  # the same on every process of torchrun: nothing is written before all have looked
        hardware = left[0].resolved.config.hardware
        run_workers(_run_all, (left, announce), workers, hardware.threads_per_worker, hardware.processes)
    return all(is_done(job) for job in jobs)


def _run_all(group: Group, jobs: Sequence[Job], announce: Announce) -> None:
    stop = Stop()
    stop.listen()
    try:
        for place, job in enumerate(jobs, 1):
            _run_one(group, job, announce(place, len(jobs), job.label), stop)
            stop.deadline = None  # of the run that has just ended
            if stop.agreed(group):
                return
    finally:
        stop.release()


def _run_one(group: Group, job: Job, make_display: MakeDisplay, stop: Stop) -> None:
    train = train_central if job.kind == "central" else train_federated
    if not group.from_leader((job.folder / Done.FILE).exists()):
        train(group, job.resolved, job.folder, make_display, stop)
    if stop.interrupted:
        return
    steps = _evaluate(group, job, LAST, Evaluations)
    if group.from_leader(Run(job.folder).best_checkpoint is not None):
        _evaluate(group, job, BEST, BestEvaluations)
    if group.leads:
        Done(key=job.key, kind=job.kind, steps=steps).write(job.folder)


def _evaluate(group: Group, job: Job, which: str, keep: type[Evaluations]) -> int:
    """Evaluate the last or the best model on all parts of a row, and return after how many steps it was saved."""
    recogniser = load_recogniser(job.folder / which, job.resolved.config.hardware.open())
    steps = Checkpoint.read(job.folder / which).step
    populations = {part: job.selections[part].open() for part in job.evaluated}
    record_evaluations(job.folder, steps, recogniser, populations, group, keep)
    return steps
