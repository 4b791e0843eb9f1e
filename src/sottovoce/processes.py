"""Worker processes: how they start and end, and mapping over data in order with bounded memory."""

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
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Generic, NoReturn, TypeVar

from sottovoce.errors import ConfigError, SottoError

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]  # name of the work, done so far, total (0: unknown)

UNGUARDED = 4  # exit code of a worker that has run the script up to the call that starts workers
START_BELOW_MAIN = "In a script, work with several workers starts below `if __name__ == '__main__':`. Add that line."

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # options of mallopt
_KEPT_BYTES, _LARGEST_KEPT = 128 << 20, 32 << 20
_PRELOADED = ["torch", "torch.distributed"]
_TASKS_PER_WORKER = 3  # in flight: one in work, one waiting, one being written


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Ignore the progress."""


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends for any reason (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the request
            os._exit(1)


def keep_freed_memory() -> None:
    """Let this process keep up to 128 MB that it has freed, for its next arrays (Linux with glibc only).

    The C library gives arrays of more than 128 kB back to the system, which clears every page that is taken anew. For
    work on arrays of megabytes this takes longer than the arithmetic.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        set_option(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def die_with_starter() -> None:
    """Kill this worker of `worker_context` when the process that started it ends for any reason.

    A thread watches for it: the worker's parent is the server that forked it, and the server lives as long as a worker.
    """
    if (starter := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_die_after, args=(starter.sentinel,), daemon=True).start()


def _die_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


def worker_context() -> ForkServerContext | SpawnContext:
    """Return how to start workers that need torch: forked from a server that has loaded it once, where there is one.

    The server starts once in the life of a process. Workers have the environment variables and the standard output
    that this process had then; PYTHONPATH is its import path.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def start_worker_server(workers: int, *modules: str) -> None:
    """Let the server of `worker_context` load these modules and torch, which all workers then have, in the background.

    The server imports from the same places as this process.
    """
    context = worker_context()
    if workers == 1 or under_torchrun() or not isinstance(context, ForkServerContext):
        return
    context.set_forkserver_preload([*modules, *_PRELOADED])
    with _ignoring_interrupts(), _import_path_in_environment():
        forkserver.ensure_running()


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Let a process that is started here ignore Ctrl-C, which must not stop the server while it loads."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may change handlers
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _import_path_in_environment() -> Iterator[None]:
    """Give a process that is started here the import path of this one, and nothing before it."""
    given = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def under_torchrun() -> bool:
    """Return whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def leave(code: int) -> NoReturn:
    """End this process at once, without the interpreter's shutdown.

    Threads of torch.distributed may still hold tensors after a collective has returned. Freeing them during the
    shutdown of the interpreter would abort the process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def leave_if_unguarded(workers: int) -> None:
    """End this process if it is a worker that is still starting and is about to start workers of its own.

    A worker runs the script before its own work. Without a guard around the call that starts workers, it arrives there.
    """
    if workers > 1 and getattr(multiprocessing.current_process(), "_inheriting", False):
        leave(UNGUARDED)


def _start_worker(parent: int | None) -> None:
    """Begin a worker; without a parent's number, its parent is the server that forked it."""
    if parent is None:
        die_with_starter()
    else:
        die_with_parent(parent)
        keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    # Decoders print messages about unusual files; relevant ones are raised as errors of the task.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives interrupts
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
    """Yield the items; a thread produces up to `depth` of them in advance. An error in the thread is raised here."""
    ready: queue.Queue[Task | BaseException | None] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: Task | BaseException | None) -> bool:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return True
        return False

    def produce() -> None:
        try:
            if all(put(item) for item in items):
                put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()


class Background(Generic[Result]):
    """Work that a thread does, step by step: it begins at once, `result` waits for it, and `stop` ends it early."""

    def __init__(self, work: Generator[object, None, Result]) -> None:
        """Begin; the work's return value is the result."""
        self._work = work
        self._outcome: list[Result] = []
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                next(self._work)
        except StopIteration as end:
            self._outcome.append(end.value)
        except BaseException as error:
            self._error = error

    def result(self) -> Result:
        """Wait for the work and return its result; raise its error, or RuntimeError where it was stopped."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        if not self._outcome:
            raise RuntimeError("The work was stopped before its end.")
        return self._outcome[0]

    def stop(self) -> None:
        """End the work after its current step, if it is not done, and wait for that."""
        self._stopped.set()
        self._thread.join()


def map_ordered(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int, *, torch: bool = False
) -> Iterator[Result]:
    """Yield function(task) for every task, in the order of the tasks, computed by `workers` processes.

    Workers that need `torch` are forked from a server that has loaded it once (`worker_context`).

    Guarantees: only a few tasks per worker are in flight, so memory does not grow with the number of tasks; an error in
    a task is raised here; the workers end with this process. With one worker everything runs in this process.

    Example:
        for features in map_ordered(extract, chunks, workers=4): ...
    """
    if workers == 1:
        yield from map(function, tasks)
        return
    leave_if_unguarded(workers)
    context = worker_context() if torch else multiprocessing.get_context("spawn")
    forked = isinstance(context, ForkServerContext)
    executor = ProcessPoolExecutor(
        workers, context, initializer=_start_worker, initargs=(None if forked else os.getpid(),)
    )
    remaining = iter(tasks)
    pending: deque[Future[Result]] = deque()
    others, started = set(multiprocessing.active_children()), set[BaseProcess]()
    try:
        with _interrupts_held():  # the first tasks start the workers; an interrupted start prints a traceback
            for task in itertools.islice(remaining, _TASKS_PER_WORKER * workers):
                pending.append(executor.submit(function, task))
                started |= set(multiprocessing.active_children()) - others
        while pending:
            result = pending.popleft().result()
            for task in itertools.islice(remaining, 1):
                pending.append(executor.submit(function, task))
            yield result
    except BrokenProcessPool:
        executor.shutdown(wait=True)
        if any(process.exitcode == UNGUARDED for process in started):
            raise ConfigError(START_BELOW_MAIN) from None
        raise SottoError(
            "A worker process ended early. It may have run out of memory: run the same command again with fewer "
            "--workers."
        ) from None
    except BaseException:  # a worker that is still starting would print an error about the closed connection
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
