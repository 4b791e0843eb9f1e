"""Training one run of a benchmark, and what its folder tells of it. Killed at any moment, it can be resumed.

OUT/runs/KEY/               a run as `runs/folder.py` describes it, with evaluation.json of its parts, and
                            best_evaluation.json where the best model on dev is not the last one
OUT/runs/KEY/row.json       the row it was last used for
OUT/runs/KEY/done.json      written last: the run is trained and evaluated
"""

import time
from collections.abc import Mapping

from sottovoce.bench.plan import Job
from sottovoce.central.central_training import train_central
from sottovoce.distributed import Group
from sottovoce.federated.federated_training import train_federated
from sottovoce.model.recogniser import load_recogniser
from sottovoce.runs.display import MakeDisplay
from sottovoce.runs.documents import BestEvaluations, Checkpoint, Done, Evaluation, Evaluations
from sottovoce.runs.evaluations import record_evaluations
from sottovoce.runs.folder import BEST, LAST, Run
from sottovoce.runs.stop import Stop


def is_trained(job: Job) -> bool:
    """Return whether a run is trained, so that others can start from its model."""
    return (job.folder / Done.FILE).exists()


def is_done(job: Job) -> bool:
    """Return whether a run is trained, and evaluated on all parts that the row asks for."""
    wanted = set(job.evaluated)
    return is_trained(job) and wanted <= evaluations_of(job).keys() and wanted <= best_evaluations_of(job).keys()


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


def run_one(group: Group, job: Job, make_display: MakeDisplay, stop: Stop) -> None:
    """Train a run, unless that is done, and evaluate it. The caller holds its lock; a signal may stop it early."""
    train = train_central if job.kind == "central" else train_federated
    if not group.from_leader(is_trained(job)):
        train(group, job.resolved, job.folder, make_display, stop)
    if stop.interrupted:
        return
    began = time.monotonic()
    steps = _evaluate(group, job, LAST, Evaluations)
    if group.from_leader(Run(job.folder).best_checkpoint is not None):
        _evaluate(group, job, BEST, BestEvaluations)
    if group.leads:
        before = Done.find(job.folder)  # evaluated on further parts, it took no longer to train
        trained = Run(job.folder).log.elapsed_seconds()  # 0 where that is private: it depends on the users
        seconds = trained + time.monotonic() - began if trained > 0 else None
        done = Done(key=job.key, kind=job.kind, steps=steps, seconds=seconds, processes=group.size)
        (before or done).write(job.folder)


def _evaluate(group: Group, job: Job, which: str, keep: type[Evaluations]) -> int:
    """Evaluate the last or the best model on all parts of a row, and return after how many steps it was saved."""
    recogniser = load_recogniser(job.folder / which, job.resolved.config.hardware.open())
    steps = Checkpoint.read(job.folder / which).step
    populations = {part: job.selections[part].open() for part in job.evaluated}
    record_evaluations(job.folder, steps, recogniser, populations, group, keep)
    return steps
