"""Which run this command trains next, while other commands on one or many machines train others in the same folder.

A run is taken by its lock (`locks.py`). A command goes through its runs in order and trains the first one that is not
done, that nobody holds, and whose seed model is trained. Where there is none, it waits: a holder may be killed, and its
run is then free and resumes here. Promises: nobody trains a run that is done or held; a row starts only after the model
it starts from. Killed at any moment, a command can be started again.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from sottovoce.bench.locks import WAIT_SECONDS, Say, lock_path, look_anew, silent
from sottovoce.bench.plan import Job
from sottovoce.bench.planned import lineage
from sottovoce.bench.run import is_done, is_trained, run_one
from sottovoce.distributed import Group, LostPeerError
from sottovoce.errors import ConfigError, DataError, SottoError, StoppedError
from sottovoce.files import holder_of, taken
from sottovoce.processes import under_torchrun
from sottovoce.runs.display import MakeDisplay, NoDisplay
from sottovoce.runs.stop import Stop
from sottovoce.workers import leads, run_workers

# Makes the display of one run, from its place among the runs, their number and its label.
Announce = Callable[[int, int, str], MakeDisplay]


def no_display(_place: int, _total: int, _label: str) -> MakeDisplay:
    """Show nothing of any run."""
    return NoDisplay


class RowFailedError(DataError):
    """A run ended with an error; others may still be trained."""

    def __init__(self, key: str, message: str) -> None:
        """Name the run by its key, and say what happened."""
        super().__init__(key, message)
        self.key, self.message = key, message

    def __str__(self) -> str:
        """Return the message."""
        return self.message


def train_jobs(
    jobs: Sequence[Job], workers: int, *, announce: Announce = no_display, wait: bool = True, say: Say = silent
) -> bool:
    """Train the runs that are not done; return whether all are done now (without `wait`, others may train some still).

    A run that fails does not keep others from being trained; its error is raised in the end. Raise StoppedError where a
    signal stopped it early.
    """
    failed: dict[str, str] = {}
    _require_like_processes(jobs)
    while True:
        left = [job for job in jobs if not failed.keys() & lineage(job)]
        # Under torchrun the leading process decides: another command may end a run while its processes look at it.
        if not left or (all(map(is_done, left)) and not under_torchrun()):
            break
        hardware = left[0].resolved.config.hardware
        try:
            arguments = (left, announce, wait, say)
            run_workers(_train_all, arguments, workers, hardware.threads_per_worker, hardware.processes)
            break
        except RowFailedError as error:
            if under_torchrun():
                raise
            failed[error.key] = str(error)
            say(str(error))
    if failed:
        raise DataError(f"{len(failed)} of the runs failed, the others were trained. {next(iter(failed.values()))}")
    return all(map(is_done, jobs)) or not leads()


def _require_like_processes(jobs: Sequence[Job]) -> None:
    """Raise where rows want different processes: those of a command are started once, for all rows."""
    wanted: dict[tuple[str, int], Job] = {}
    for job in jobs:
        hardware = job.resolved.config.hardware
        wanted.setdefault((hardware.device, hardware.threads_per_worker), job)
    if len(wanted) > 1:
        first, second = list(wanted.values())[:2]
        raise ConfigError(
            f"The rows {first.row.name!r} and {second.row.name!r} differ in hardware.device or "
            "hardware.threads_per_worker. Give all rows the same, with --set."
        )


def _train_all(group: Group, jobs: Sequence[Job], announce: Announce, wait: bool, say: Say) -> None:
    stop, said = Stop(), False
    stop.listen()
    queue = Queue(jobs) if group.leads else None
    try:
        while True:
            stopping = stop.agreed(group)
            with contextlib.ExitStack() as holding:
                turn = group.from_leader(Turn() if queue is None else queue.take(holding, wait=wait))
                if turn.number is None and not turn.waiting:
                    return
                if stopping:
                    _leave(stop)
                if turn.number is not None:
                    job = jobs[turn.number]
                    _train_one(group, job, announce(turn.place, turn.total, job.label), stop)
                    stop.deadline = None  # of the run that has just ended
                    continue
            if group.leads and not said:
                say(f"Waiting for runs that other commands train, such as {turn.waiting}.")
                said = True
            time.sleep(WAIT_SECONDS)
    finally:
        stop.release()


def _leave(stop: Stop) -> None:
    if stop.by_keyboard:
        raise KeyboardInterrupt
    raise StoppedError("The benchmark was stopped before the end. Run the same command again to resume.")


def _train_one(group: Group, job: Job, make_display: MakeDisplay, stop: Stop) -> None:
    try:
        run_one(group, job, make_display, stop)
    except LostPeerError:  # another process has the error
        raise
    except (SottoError, OSError) as error:
        raise RowFailedError(job.key, f"{job.bench}, {job.label}: {error}") from None
    except (torch.OutOfMemoryError, MemoryError):  # another row may be smaller
        memory = "Out of memory. Use a larger machine, fewer --workers on it, or smaller batches."
        raise RowFailedError(job.key, f"{job.bench}, {job.label}: {memory}") from None


@dataclass(frozen=True)
class Turn:
    """What to do next: train a run, wait for others, or end."""

    number: int | None = None  # of the run to train
    place: int = 0  # among the runs that were left in the beginning
    total: int = 0
    waiting: str = ""  # for whom; empty: nothing is left to do


class Queue:
    """The runs that are left, as the leading process sees them."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        """Look at all runs."""
        self._left = {number: job for number, job in enumerate(jobs) if not is_done(job)}
        self._total = len(self._left)

    def take(self, holding: contextlib.ExitStack, *, wait: bool) -> Turn:
        """Choose what to do next; the lock of a run to train is held until `holding` ends.

        Without `wait`, there is nothing left to do once other commands hold all runs that are left. A run whose seed
        model somebody else is training is waited for in any case.
        """
        self._left = {number: job for number, job in self._left.items() if not is_done(job)}
        waiting, blocked = "", False
        for number, job in self._left.items():
            if job.base is not None and not is_trained(job.base):
                blocked = True
                continue
            lock = lock_path(job.folder.parent.parent, job.folder.name)
            with contextlib.ExitStack() as trying:  # a lock that is not needed ends here: rows may share a run
                if not trying.enter_context(taken(lock)):
                    waiting = waiting or f"{job.label} ({holder_of(lock)})"
                    continue
                look_anew(job.folder.parent, job.folder)
                if not is_done(job):
                    holding.enter_context(trying.pop_all())
                    return Turn(number, self._total - len(self._left) + 1, self._total)
        if not waiting or not (wait or blocked):
            return Turn()
        return Turn(waiting=waiting)
