"""One program on several processes: alone, on N workers of this machine, or under torchrun.

A `Group` is a process's view of the others. Guarantees: every rank gets the same bits from `sum_`. Workers that were
started here end with their parent. An error in one worker ends all of them and is raised in the parent; the other
workers, which only lost their peer, print nothing.
"""

import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from sottovoce.errors import ConfigError, SottoError
from sottovoce.open_union import import_kinds, kind_modules
from sottovoce.processes import (
    START_BELOW_MAIN,
    UNGUARDED,
    die_with_parent,
    die_with_starter,
    leave,
    leave_if_unguarded,
    start_worker_server,
    under_torchrun,
    worker_context,
)

Result = TypeVar("Result")

_LOST_PEER = 3  # exit code of a worker whose peer has ended; only the peer's message is shown
_GRACE_SECONDS = 5.0  # time for the other workers to end by themselves after a failure


FINISHING = "Finishing this step and saving. Ctrl-C again stops at once.\n"


class LostPeerError(SottoError):
    """Another process of the group has ended before the work was done."""


@contextlib.contextmanager
def _together() -> Iterator[None]:
    """Run a collective; if it fails, a peer has ended."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise LostPeerError(f"Another process of this run has ended ({reason}). Run the same command again.") from None


@dataclass(frozen=True)
class Group:
    """One process among `size`; only rank 0 writes files and prints messages."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and prints messages."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes."""
        if self.size > 1:
            with _together():
                dist.all_reduce(tensor)
        return tensor

    def sum_to_leader_(self, tensor: Tensor) -> None:
        """Replace the leader's int64 tensor by the sum over all processes; the others' are void afterwards.

        A reduction leaves finished parts of the sum on other processes, too. So the leader hides its own part behind
        uniform random bits, modulo 2^64, and takes them away at the end: nobody else can read anything of the sum.
        """
        if self.size == 1:
            return
        mask = None
        if self.leads:
            bits = bytearray(os.urandom(tensor.numel() * tensor.element_size()))
            mask = torch.frombuffer(bits, dtype=tensor.dtype).to(tensor.device).view(tensor.shape)
            tensor.add_(mask)
        with _together():
            dist.reduce(tensor, dst=0)
        if mask is not None:
            tensor.sub_(mask)

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

    def parts_to_leader_(self, vector: Tensor, cuts: Sequence[int], tag: int) -> int:
        """Fill the leader's vector from cut r to cut r + 1 with the vector of process r; return how much was filled.

        The vectors lie on the CPU. The leader's own part is left as it is. A thread may call this beside other
        collectives: messages find each other by their `tag`, a number that no other message has at that time.
        """
        received = 0
        for rank, (start, stop) in enumerate(itertools.pairwise(cuts)):
            if rank == 0 or start == stop or self.rank not in (0, rank):
                continue
            with _together():
                if self.leads:
                    dist.recv(vector[start:stop], src=rank, tag=tag)
                    received += stop - start
                else:
                    dist.send(vector, dst=0, tag=tag)
        return received

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
        """Wait for all processes."""
        if self.size > 1:
            with _together():
                dist.barrier()


@contextlib.contextmanager
def joined_group() -> Iterator[Group]:
    """Yield the group of the processes that torchrun started; without torchrun, a group of one."""
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
    """Return the backend: gloo for tensors on the CPU, such as flags, and NCCL for tensors on a GPU."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _choose_gpu(local_rank: int) -> None:
    """Give every process of a machine its own GPU, if the machine has GPUs."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank % torch.cuda.device_count())


def leads() -> bool:
    """Return whether this process prints messages: it is alone, or rank 0 under torchrun."""
    return not under_torchrun() or os.environ["RANK"] == "0"


def run_workers(function: Callable[..., None], arguments: tuple[Any, ...], workers: int, threads: int) -> None:
    """Run function(group, *arguments) in `workers` processes of this machine, with `threads` threads each.

    Under torchrun, its processes are used instead. With one worker everything runs in this process. Ctrl-C and SIGTERM
    ask the workers to finish their step and save; a second Ctrl-C ends them at once.
    """
    if workers == 1 or under_torchrun():
        torch.set_num_threads(threads)
        with joined_group() as group:
            function(group, *arguments)
        return
    leave_if_unguarded(workers)
    context = worker_context()
    start_worker_server(workers)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = [
            context.Process(target=_run_worker, args=(_Worker(rank, workers, threads, folder), function, arguments))
            for rank in range(workers)
        ]
        for process in processes:
            process.start()
        requests = _StopRequests(processes)
        try:
            with requests:
                _wait(processes, folder)
        except SottoError:
            if requests.interrupted:  # the signal ended workers that had not installed their handlers yet
                raise KeyboardInterrupt from None
            raise
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()
        if requests.interrupted:
            raise KeyboardInterrupt


class _StopRequests:
    """Forwards SIGTERM and the first Ctrl-C to the workers, as a request to finish the step and save.

    In a thread other than the main one this does nothing: Python delivers signals to the main thread alone.
    """

    def __init__(self, processes: Sequence[BaseProcess]) -> None:
        self.interrupted = False
        self._processes = processes
        numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
        self._before = {number: signal.getsignal(number) for number in numbers}

    def __enter__(self) -> None:
        if not self._before:
            return
        signal.signal(signal.SIGTERM, self._forward)
        if self._before[signal.SIGINT] is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._forward)

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self.interrupted = True
            signal.signal(signal.SIGINT, self._before[signal.SIGINT])  # a second Ctrl-C does not wait
            sys.stderr.write(FINISHING)
        for process in self._processes:
            process.terminate()


@dataclass(frozen=True)
class _Worker:
    """One worker process. The workers meet, and leave their errors, in `folder`."""

    rank: int
    size: int
    threads: int
    folder: Path
    kind_modules: tuple[str, ...] = field(default_factory=kind_modules)  # a worker knows the kinds of its parent


def _run_worker(worker: _Worker, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    die_with_starter()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    torch.set_num_threads(worker.threads)
    rank, folder = worker.rank, worker.folder
    try:
        import_kinds(worker.kind_modules)
        _choose_gpu(rank)
        meeting = f"file://{folder / 'store'}"
        dist.init_process_group(_backend(), init_method=meeting, rank=rank, world_size=worker.size)
        group = Group(rank, worker.size)
        function(group, *arguments)
        group.barrier()
    except LostPeerError as error:
        (folder / f"lost-{rank}").write_bytes(pickle.dumps(error))
        leave(_LOST_PEER)
    except (SottoError, OSError) as error:  # errors for the user; any other error prints its traceback
        unfinished = folder / f"unfinished-{rank}"
        unfinished.write_bytes(pickle.dumps(error))
        unfinished.rename(folder / f"error-{rank}")
        leave(1)
    leave(0)


def _wait(processes: Sequence[BaseProcess], folder: Path) -> None:
    """Wait until all processes have ended; raise the error of one that failed."""
    running = {process.sentinel: process for process in processes}
    deadline: float | None = None  # set when a process has failed
    while running and (deadline is None or time.monotonic() < deadline):
        for ready in multiprocessing.connection.wait(list(running), timeout=1.0):
            process = running.pop(cast(int, ready))
            process.join()
            if process.exitcode != 0 and deadline is None:
                deadline = time.monotonic() + _GRACE_SECONDS
    if deadline is None:
        return
    for file in sorted(folder.glob("error-*")):
        raise pickle.loads(file.read_bytes())  # noqa: S301 - written by our own worker
    codes = [process.exitcode for process in processes if process.exitcode not in (None, 0, _LOST_PEER)]
    if UNGUARDED in codes:
        raise ConfigError(START_BELOW_MAIN)
    if codes:
        raise SottoError(f"A worker process ended with code {min(codes)}. Run the same command again to resume.")
    raise pickle.loads(min(folder.glob("lost-*")).read_bytes())  # noqa: S301 - written by our own worker
