"""Running a benchmark: its rows one after another on the same workers. Killed at any moment, it goes on.

OUT/runs/KEY/               a run as `runs.py` has it, with evaluation.json of its parts
OUT/runs/KEY/row.json       for which row it was last used
OUT/runs/KEY/done.json      written last: the run is finished, trained and evaluated
"""

from collections.abc import Callable, Sequence
from typing import Any

from sottovoce.bench.plan import Job
from sottovoce.central.central_training import train_central
from sottovoce.distributed import Group, run_workers
from sottovoce.federated.federated_training import RESULT_FILE, train_federated
from sottovoce.files import write_json
from sottovoce.model.recogniser import load_recogniser
from sottovoce.runs.evaluations import read_evaluations, record
from sottovoce.runs.folder import LAST, read_json
from sottovoce.runs.training import MakeDisplay, Stop

DONE_FILE = "done.json"
ROW_FILE = "row.json"

# Makes the display of one run, from its place, the number of runs and its label.
Announce = Callable[[int, int, str], MakeDisplay]


def is_done(job: Job) -> bool:
    """Return whether a run is finished and evaluated on all parts that the row asks for."""
    return (job.folder / DONE_FILE).exists() and set(job.evaluated) <= _evaluations(job).keys()


def _evaluations(job: Job) -> dict[str, Any]:
    """Return the evaluations on the very populations that the row asks for, by part."""
    found = read_evaluations(job.folder)
    return {part: found[part] for part in job.evaluated if _of(found.get(part)) == job.hashes[part]}


def _of(document: Any) -> str | None:
    return document.get("population") if isinstance(document, dict) and "wer" in document else None


def run_jobs(jobs: Sequence[Job], workers: int, announce: Announce) -> bool:
    """Run what is not done yet; return whether everything is done (a signal may stop it early)."""
    left = [job for job in jobs if not is_done(job)]
    if left:  # the same on every process of torchrun: nothing is written before all have looked
        hardware = left[0].resolved.config.hardware
        run_workers(_run_all, (left, announce), hardware.processes(workers), hardware.threads_per_worker)
    return all(is_done(job) for job in jobs)


def _run_all(group: Group, jobs: Sequence[Job], announce: Announce) -> None:
    stop = Stop()
    stop.listen()
    for place, job in enumerate(jobs, 1):
        _run_one(group, job, announce(place, len(jobs), job.label), stop)
        stop.deadline = None  # of the run that has just ended
        if stop.agreed(group):
            return


def _run_one(group: Group, job: Job, make_display: MakeDisplay, stop: Stop) -> None:
    train = train_central if job.kind == "central" else train_federated
    if not group.from_leader((job.folder / DONE_FILE).exists()):
        train(group, job.resolved, job.folder, make_display, stop)
    if stop.interrupted:
        return
    recogniser = load_recogniser(job.folder / LAST, job.resolved.config.hardware.open())
    steps = read_json(job.folder / LAST / "checkpoint.json")["step"]
    populations = {part: job.selections[part].open() for part in job.evaluated}
    record(job.folder, steps, recogniser, populations, group)
    if group.leads:
        write_json(job.folder / DONE_FILE, {"key": job.key, "kind": job.kind, "steps": steps})


def describe(job: Job, label: str, claims: Sequence[dict[str, Any]], paper: dict[str, float]) -> None:
    """Note beside a run for which row it was used, so that a report can say so."""
    document = {
        "bench": job.bench,
        "size": job.size,
        "row": job.row.name,
        "seed": job.seed,
        "label": label,
        "kind": job.kind,
        "dev": job.parts["dev"],
        "test": job.parts["test"],
        "claims": list(claims),
        "paper": paper,
    }
    write_json(job.folder / ROW_FILE, document)


def result_of(job: Job) -> dict[str, Any]:
    """Return what a finished run has shown: WER by part, and the privacy spent."""
    result_file = job.folder / RESULT_FILE
    return {
        "wer": {part: document["wer"] for part, document in _evaluations(job).items()},
        "spent": read_json(result_file) if result_file.exists() else {},
    }
