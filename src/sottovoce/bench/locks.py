"""The locks of a benchmark's folder, so that several commands on one or many machines may use it at the same time.

OUT/locks/NAME     the lock of a run or of a corpus; it holds for people who last took it

A command that is killed loses its locks at once, or when a server of files notices that its machine is gone. The files
stay: removing a lock that somebody else is about to take would leave two holders.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sottovoce.files import holder_of, make_folder, taken

Say = Callable[[str], None]

WAIT_SECONDS = 2.0  # between two looks at a lock that somebody else holds


def silent(_message: str) -> None:
    """Say nothing."""


def lock_path(out: Path, name: str) -> Path:
    """Return the file of a lock; its folder exists then."""
    make_folder(out / "locks")
    return out / "locks" / name


@contextlib.contextmanager
def waiting_for(lock: Path, what: str, say: Say) -> Iterator[None]:
    """Take a lock, as soon as it is free."""
    said = False
    while True:
        with taken(lock) as mine:
            if mine:
                yield
                return
        if not said:
            say(f"Waiting for {what}: {holder_of(lock)}.")
            said = True
        time.sleep(WAIT_SECONDS)


def look_anew(*folders: Path) -> None:
    """Read folders again: a shared file system may remember for a while that a file is missing."""
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            list(folder.iterdir())
