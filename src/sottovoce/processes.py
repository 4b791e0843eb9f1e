"""Worker processes for data work: ordered results, bounded memory, no orphans."""

import contextlib
import ctypes
import itertools
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NoReturn, TypeVar

from sottovoce.errors import SottoError

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]  # what is being done, how much is done, of how much (0: not known yet)

_PR_SET_PDEATHSIG = 1
_TASKS_PER_WORKER = 3  # in flight: one at work, one waiting, one being written


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Show nothing."""


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies, however it dies (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)


def under_torchrun() -> bool:
    """Return whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def leave(code: int) -> NoReturn:
    """End this process now, without taking the interpreter down.

    The threads of torch.distributed may still hold tensors when a collective has returned; freed while Python is being
    taken down, they abort the process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _start_worker(parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    # Decoders print their own notes about odd files; what matters comes back as an error of the task.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait until the block has ended."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is ever interrupted
        yield
        return
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        signal.raise_signal(signal.SIGINT)


def ahead(items: Iterable[Task], depth: int) -> Iterator[Task]:
    """Yield the items, of which up to `depth` are made ahead of time in a thread; an error in making one is raised."""
    made: queue.Queue[Task | BaseException | None] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: Task | BaseException | None) -> bool:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                made.put(item, timeout=0.1)
                return True
        return False

    def make() -> None:
        try:
            if all(put(item) for item in items):
                put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        while (item := made.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()


def map_ordered(function: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """Yield function(task) for every task, in the order of the tasks, computed by `workers` processes.

    Guarantees: at most a few tasks per worker are in flight, so memory does not grow with their number; an error in
    a task is raised here; workers die with this process. With one worker everything runs in this process.
    """
    if workers == 1:
        yield from map(function, tasks)
        return
    executor = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(os.getpid(),)
    )
    remaining = iter(tasks)
    pending: deque[Future[Result]] = deque()
    others = set(multiprocessing.active_children())
    try:
        with _interrupts_held():  # the first tasks start the workers, and a half-started worker prints a traceback
            for task in itertools.islice(remaining, _TASKS_PER_WORKER * workers):
                pending.append(executor.submit(function, task))
        while pending:
            result = pending.popleft().result()
            for task in itertools.islice(remaining, 1):
                pending.append(executor.submit(function, task))
            yield result
    except BrokenProcessPool:
        raise SottoError(
            "A worker process ended early: killed, perhaps for lack of memory (run the same command again, with fewer "
            "--workers), or, in a script of your own, started without `if __name__ == '__main__':`."
        ) from None
    except BaseException:  # a worker that is still starting would complain that its parent has stopped talking
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
