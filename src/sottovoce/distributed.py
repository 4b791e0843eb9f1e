"""Several processes as one: the same code on one process, on N workers of this machine, or under torchrun.

`Group` is what a process knows of the others. Guarantees: every rank gets the same bits from `sum_`; workers that were
started here die with their parent, however it dies; an error in one worker ends all of them and is raised in the
parent, and the others, who only lost their peer, are silent.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from sottovoce.errors import SottoError
from sottovoce.processes import die_with_parent, leave, under_torchrun

Result = TypeVar("Result")

_LOST_PEER = 3  # the exit code of a worker whose peer has ended: the peer's own message is the one to show
_GRACE_SECONDS = 5.0  # for the other workers to end by themselves after one has failed


FINISHING = "Finishing this step and saving. Ctrl-C again stops at once.\n"


class LostPeerError(SottoError):
    """Another process of the group has ended in the middle of the work."""


@contextlib.contextmanager
def _together() -> Iterator[None]:
    """Run a collective; what breaks it is a peer that has ended."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise LostPeerError(f"Another process of this run has ended ({reason}). Run the same command again.") from None


@dataclass(frozen=True)
class Group:
    """One process among `size`; rank 0 writes files and talks."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes."""
        if self.size > 1:
            with _together():
                dist.all_reduce(tensor)
        return tensor

    def sum_to_leader_(self, tensor: Tensor) -> None:
        """Replace the leader's tensor by the sum over all processes; the others' are void afterwards."""
        if self.size > 1:
            with _together():
                dist.reduce(tensor, dst=0)

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by the leader's."""
        if self.size > 1:
            with _together():
                dist.broadcast(tensor, src=0)
        return tensor

    def gather_rows(self, vector: Tensor) -> Tensor:
        """Return the vectors of all processes, which have one length and lie on the CPU, as rows in order of rank."""
        if self.size == 1:
            return vector[None]
        rows = [torch.empty_like(vector) for _ in range(self.size)]
        with _together():
            dist.all_gather(rows, vector)
        return torch.stack(rows)

    def gather(self, item: Result) -> list[Result]:
        """Return every process' item, in the order of ranks."""
        if self.size == 1:
            return [item]
        items: list[Any] = [None] * self.size
        with _together():
            dist.all_gather_object(items, item)
        return items

    def from_leader(self, item: Result) -> Result:
        """Return the item of rank 0."""
        return self.gather(item)[0]

    def barrier(self) -> None:
        """Wait for everyone."""
        if self.size > 1:
            with _together():
                dist.barrier()


@contextlib.contextmanager
def joined_group() -> Iterator[Group]:
    """Join the processes that torchrun started; without torchrun, be alone."""
    if not under_torchrun():
        yield Group()
        return
    die_with_parent(os.getppid())
    _choose_gpu(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(_backend())
    group = Group(dist.get_rank(), dist.get_world_size())
    yield group
    group.barrier()


def _backend() -> str:
    """Return what carries tensors: flags and figures live on the CPU, parameters perhaps on a GPU."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _choose_gpu(local_rank: int) -> None:
    """Give each process of a machine a GPU of its own, where there are any."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank % torch.cuda.device_count())


def leads() -> bool:
    """Return whether this process talks: alone, or rank 0 under torchrun."""
    return not under_torchrun() or os.environ["RANK"] == "0"


def run_workers(function: Callable[..., None], arguments: tuple[Any, ...], workers: int, threads: int) -> None:
    """Run function(group, *arguments) in `workers` processes of this machine, with `threads` threads each.

    Under torchrun, its processes are used instead. With one worker everything happens in this process.
    """
    if workers == 1 or under_torchrun():
        torch.set_num_threads(threads)
        with joined_group() as group:
            function(group, *arguments)
        return
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder)
        started = [
            context.Process(target=_worker, args=(function, arguments, rank, workers, threads, meeting, os.getpid()))
            for rank in range(workers)
        ]
        for process in started:
            process.start()
        interrupted = False
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def ask(number: int, _frame: FrameType | None) -> None:
            """Ask the workers to finish the step and save; Ctrl-C a second time does not wait for them."""
            nonlocal interrupted
            if number == signal.SIGINT:
                interrupted = True
                signal.signal(signal.SIGINT, before[signal.SIGINT])
                sys.stderr.write(FINISHING)
            for process in started:
                process.terminate()

        signal.signal(signal.SIGTERM, ask)
        if before[signal.SIGINT] is signal.default_int_handler:
            signal.signal(signal.SIGINT, ask)
        try:
            _wait(started, meeting)
        except SottoError:
            if interrupted:  # before the workers listened, the wish was their end
                raise KeyboardInterrupt from None
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for process in started:
                if process.is_alive():
                    process.kill()
                process.join()
        if interrupted:
            raise KeyboardInterrupt


def _worker(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    rank: int,
    size: int,
    threads: int,
    meeting: Path,
    parent: int,
) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(threads)
    try:
        _choose_gpu(rank)
        dist.init_process_group(_backend(), init_method=f"file://{meeting / 'store'}", rank=rank, world_size=size)
        group = Group(rank, size)
        function(group, *arguments)
        group.barrier()
    except LostPeerError as error:
        (meeting / f"lost-{rank}").write_bytes(pickle.dumps(error))
        leave(_LOST_PEER)
    except (SottoError, OSError) as error:  # what a user can meet; anything else prints its traceback
        unfinished = meeting / f"unfinished-{rank}"
        unfinished.write_bytes(pickle.dumps(error))
        unfinished.rename(meeting / f"error-{rank}")
        leave(1)
    leave(0)


def _wait(processes: list[Any], meeting: Path) -> None:
    """Wait until all have ended; raise what ended one of them early."""
    running = {process.sentinel: process for process in processes}
    deadline: float | None = None  # once one has failed
    while running and (deadline is None or time.monotonic() < deadline):
        for ready in multiprocessing.connection.wait(list(running), timeout=1.0):
            process = running.pop(ready)
            process.join()
            if process.exitcode != 0 and deadline is None:
                deadline = time.monotonic() + _GRACE_SECONDS
    if deadline is None:
        return
    for file in sorted(meeting.glob("error-*")):
        raise pickle.loads(file.read_bytes())  # noqa: S301 - written by our own worker
    codes = [process.exitcode for process in processes if process.exitcode not in (None, 0, _LOST_PEER)]
    if codes:
        raise SottoError(f"A worker process ended with code {min(codes)}. Run the same command again to go on.")
    raise pickle.loads(min(meeting.glob("lost-*")).read_bytes())  # noqa: S301 - written by our own worker
