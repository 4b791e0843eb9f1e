"""Files that are written whole or not at all, folders with one writer, and disks that are large enough."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from sottovoce.errors import DataError


def gigabytes(size: float) -> str:
    """Return a byte count as people read it."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name only when it is complete and on disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if error.filename == str(temporary):  # people know the file by its own name
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def as_json(document: Any) -> bytes:
    """Return a document as readable JSON, with the same bytes for the same content."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document whole."""
    with written_whole(path) as file:
        file.write(as_json(document))


def sync_folder(folder: Path) -> None:
    """Put a folder's entries (renames, new files) on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold a folder as its only writer; the lock ends with the process, however it ends.

    The lock is a file beside the folder, so that the folder may be renamed meanwhile. It is removed at the end.
    """
    folder = folder.absolute()
    path = folder.with_name(folder.name + ".lock")
    while True:
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(f"Another process is writing {folder}. Wait for it or choose another folder.") from None
            if not _is_same_file(path, lock.fileno()):
                continue  # its last holder removed it between our opening and our locking
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def existing_parent(path: Path) -> Path:
    """Return the nearest folder above (or at) the path that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def require_free(path: Path, needed: float) -> None:
    """Raise DataError where the disk that will hold `path` has less than `needed` bytes free."""
    free = shutil.disk_usage(existing_parent(path)).free
    if needed > free:
        raise DataError(
            f"{path} needs about {gigabytes(needed)} but its disk has {gigabytes(free)} free. "
            "Free some space or choose another --out."
        )


def folder_bytes(path: Path) -> int:
    """Return the size of all files in a folder; 0 where there is none."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else 0


def make_folder(path: Path) -> None:
    """Create a folder and its parents, or say in one line why that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except (OSError, FileExistsError) as error:
        raise DataError(
            f"Cannot write to {path}: {error.strerror}. Choose another place or change its rights."
        ) from None
