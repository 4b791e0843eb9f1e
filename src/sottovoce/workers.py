"""Running one function on several processes of this machine: starting the workers, stopping them, their errors.

Guarantees: workers end with the process that started them. An error in one worker ends all of them and is raised in
that process; the other workers, which only lost their peer, print nothing. That process itself does not load torch.
"""

import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, cast

from sottovoce.errors import ConfigError, SottoError, StoppedError, out_of_memory
from sottovoce.memory import keep_freed_memory
from sottovoce.open_union import import_kinds, kind_modules
from sottovoce.processes import (
    START_BELOW_MAIN,
    UNGUARDED,
    die_with_starter,
    leave,
    leave_if_unguarded,
    start_worker_server,
    under_torchrun,
    worker_context,
)

FINISHING = "Finishing this step and saving. Ctrl-C again stops at once.\n"

_LOST_PEER = 3  # exit code of a worker whose peer has ended; only the peer's message is shown
_GRACE_SECONDS = 5.0  # time for the other workers to end by themselves after a failure

Limit = Callable[[int], int]


def _no_limit(workers: int) -> int:
    return workers


def leads() -> bool:
    """Return whether this process prints messages: it is alone, or rank 0 under torchrun."""
    return not under_torchrun() or os.environ["RANK"] == "0"


def run_workers(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    workers: int,
    threads: int,
    limit: Limit = _no_limit,
) -> None:
    """Run function(group, *arguments) in `workers` processes of this machine, with `threads` threads each.

    Under torchrun, its processes are used instead. With one worker everything runs in this process. Ctrl-C and SIGTERM
    ask the workers to finish their step and save; a second Ctrl-C ends them at once. `limit` returns how many of the
    workers to use: a worker can ask torch for the number of GPUs, and this process need not load it.
    """
    if workers == 1 or under_torchrun():
        import torch  # noqa: PLC0415 - where workers compute, only they load it

        from sottovoce.distributed import joined_group  # noqa: PLC0415 - loads torch

        torch.set_num_threads(threads)
        keep_freed_memory()
        with joined_group() as group:
            function(group, *arguments)
        return
    leave_if_unguarded(workers)
    context = worker_context()
    start_worker_server(workers)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = [
            context.Process(
                target=_run_worker, args=(_Worker(rank, workers, threads, folder, limit), function, arguments)
            )
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
            if requests.stopped:
                raise StoppedError("The work was asked to stop. Run the same command again to resume.") from None
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
        self.interrupted = self.stopped = False  # by Ctrl-C, by SIGTERM
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
        else:
            self.stopped = True
        for process in self._processes:
            process.terminate()


@dataclass(frozen=True)
class _Worker:
    """One worker process. The workers meet, and leave their errors, in `folder`."""

    rank: int
    size: int
    threads: int
    folder: Path
    limit: Limit
    kind_modules: tuple[str, ...] = field(default_factory=kind_modules)  # a worker knows the kinds of its parent


def _run_worker(worker: _Worker, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    die_with_starter()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    import torch  # noqa: PLC0415 - the process that starts workers does not load it

    from sottovoce.distributed import LostPeerError, meeting_group  # noqa: PLC0415 - loads torch

    torch.set_num_threads(worker.threads)
    keep_freed_memory()
    rank, folder = worker.rank, worker.folder
    try:
        import_kinds(worker.kind_modules)
        size = worker.limit(worker.size)
        if rank < size:
            with meeting_group(rank, size, folder / "store") as group:
                function(group, *arguments)
    except LostPeerError as error:
        (folder / f"lost-{rank}").write_bytes(pickle.dumps(error))
        leave(_LOST_PEER)
    except (SottoError, OSError, MemoryError, ImportError, RuntimeError) as error:
        known = error if isinstance(error, SottoError | OSError) else out_of_memory(error)
        if known is None:  # only errors for the user are passed on; any other prints its traceback
            raise
        unfinished = folder / f"unfinished-{rank}"
        unfinished.write_bytes(pickle.dumps(known))
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
