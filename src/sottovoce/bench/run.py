"""Training one run of a benchmark, and what its folder tells of it. Killed at any moment, it can be resumed.

OUT/runs/KEY/               a run as `runs/folder.py` describes it, with evaluation.json of its parts
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
from sottovoce.runs.documents import Checkpoint, Done, Evaluation
from sottovoce.runs.evaluations import record_evaluations
from sottovoce.runs.folder import LAST, Run
from sottovoce.runs.stop import Stop


def is_trained(job: Job) -> bool:
    """Return whether a run is trained, so that others can start from its model."""
    return (job.folder / Done.FILE).exists()


def is_done(job: Job) -> bool:
    """Return whether a run is trained, and evaluated on all parts that the row asks for."""
    return is_trained(job) and set(job.evaluated) <= evaluations_of(job).keys()


def evaluations_of(job: Job) -> Mapping[str, Evaluation]:
    """Return the evaluations by part; those on other populations than the row asks for are left out."""
    known = Run(job.folder).evaluations
    return {part: known[part] for part in job.evaluated if part in known and known[part].population == job.hashes[part]}


def run_one(group: Group, job: Job, make_display: MakeDisplay, stop: Stop) -> None:
    """Train a run, unless that is done, and evaluate it. The caller holds its lock; a signal may stop it early."""
    train = train_central if job.kind == "central" else train_federated
    if not group.from_leader(is_trained(job)):
        train(group, job.resolved, job.folder, make_display, stop)
    if stop.interrupted:
        return
    began = time.monotonic()
    recogniser = load_recogniser(job.folder / LAST, job.resolved.config.hardware.open())
    steps = Checkpoint.read(job.folder / LAST).step
    populations = {part: job.selections[part].open() for part in job.evaluated}
    record_evaluations(job.folder, steps, recogniser, populations, group)
    if group.leads:
        before = Done.find(job.folder)  # evaluated on further parts, it took no longer to train
        seconds = Run(job.folder).log.elapsed_seconds() + time.monotonic() - began
        done = Done(key=job.key, kind=job.kind, steps=steps, seconds=seconds, processes=group.size)
        (before or done).write(job.folder)
