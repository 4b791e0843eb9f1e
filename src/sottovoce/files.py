"""Files that appear only when they are complete, folders with a single writer, and checks of disk space.

**What is written is a regular file.** Every output of this package is opened here. A target that exists and is a
folder, a link (to whatever, or to nothing), a device, a pipe or a socket is a DataError, and stays as it is: a link
could lead out of the folder that was named, and what is written to a device is lost or worse.
"""

import contextlib
import csv
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import TypeAdapter

from sottovoce.errors import DataError
from sottovoce.reading import open_regular, read_bounded

_Row = TypeVar("_Row")
OWNER_ONLY, OWNER_ONLY_FOLDER = 0o600, 0o700
_OWNER_WRITES, OWNER_WRITES_FOLDER = 0o644, 0o755
_SHOWN_NAME = 40  # letters of a file's name in that of its temporary file, so that it is never too long


def gigabytes(size: float) -> str:
    """Return a number of bytes with a unit: B, kB, MB, GB or TB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


@contextlib.contextmanager
def written_whole(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for writing that gets its name only when it is complete and on disk.

    If the block raises an error, nothing is left behind and an existing file stays as it is. Only its owner can write
    the file, whatever the umask is. A private file is one that only its owner can read, from its first byte on.

    Example:
        with written_whole(Path("model.json")) as file:
            file.write(b"{}")
    """
    require_target(path)
    # Nobody can guess the name and put a link there; processes of several machines may write the same file.
    temporary = path.with_name(f".{path.name[:_SHOWN_NAME]}.{secrets.token_hex(16)}.tmp")
    try:
        with open_private(temporary, "xb") if private else open_shared(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_to_disk(path.parent)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # the temporary name means nothing to the user
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system that names no file, as when a disk is full, name this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def require_target(path: Path, *, ending: str | None = None) -> None:
    """Raise DataError unless a file can get this name: nothing is there yet, or a regular file that is replaced.

    Long commands call this before they start working. With an ending, a file of another kind is never replaced.
    """
    if ending is not None and path.suffix.lower() != ending:
        raise DataError(f"{path} does not end in {ending}. Give the name of such a file.")
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):  # the latter is for the system to report when the file is opened
        return
    except OSError as error:
        raise DataError(f"{str(path)[:200]} cannot be written: {error.strerror}. Choose another name.") from None
    if not stat.S_ISREG(mode):
        raise DataError(f"{path} is {_kind_of(mode)}, not a regular file. Give the name of a file.")


def _kind_of(mode: int) -> str:
    """Return what something is that is not a regular file."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def open_descriptor(path: Path, flags: int, permissions: int = OWNER_ONLY) -> int:
    """Open a regular file as `os.open` does; a link or anything else than a regular file is a DataError."""
    try:
        # A pipe without a reader or writer would block.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, permissions)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            require_target(path)
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise DataError(f"{path} is {_kind_of(mode)}, not a regular file. Give the name of a file.")
    return descriptor


def _opened(path: Path, mode: str, permissions: int) -> IO[Any]:
    return open(path, mode, opener=lambda name, flags: open_descriptor(Path(name), flags, permissions))


def open_private(path: Path, mode: str) -> IO[Any]:
    """Open a file for appending ("ab"), or to change ("r+b"), that only its owner can read, whatever the umask is."""
    file = _opened(path, mode, OWNER_ONLY)
    os.fchmod(file.fileno(), OWNER_ONLY)  # it may exist, with another mode
    return file


def open_shared(path: Path, mode: str) -> IO[Any]:
    """Open a file for appending ("ab"), or to change ("r+b"), that only its owner can write, whatever the umask is.

    A file that exists keeps its mode.
    """
    return _opened(path, mode, _OWNER_WRITES)


def keep_private(path: Path) -> None:
    """Let nobody but its owner read a file or enter a folder; nothing happens where it does not exist."""
    if path.is_symlink() or not path.exists():
        return
    try:
        path.chmod(OWNER_ONLY_FOLDER if path.is_dir() else OWNER_ONLY)
    except PermissionError:
        raise DataError(f"{path} is private, but belongs to another user. Copy the run, or become its owner.") from None


# How a text begins that a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "|", "%", '"')


def as_cell(value: object) -> object:
    """Return a value for a cell of CSV or TSV: a text that a spreadsheet would compute gets a quote before it."""
    if not isinstance(value, str) or not value.lstrip(" \ufeff").startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def as_json(document: Any) -> bytes:
    """Return a document as indented JSON; equal documents give equal bytes."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, document: Any, *, private: bool = False) -> None:
    """Write a JSON document, complete or not at all; a private one for its owner only."""
    with written_whole(path, private=private) as file:
        file.write(as_json(document))


def flush_to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's entries (renames, new files), are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Lock a folder for one writer; the lock ends with the block, and also with the process.

    A second writer gets a DataError. The lock is an empty file beside the folder, so the folder may be renamed in the
    block. A file there that holds something is not ours: it stays as it is, and is a DataError.
    """
    folder = folder.absolute()
    path = lock_of(folder)
    while True:
        with _opened(path, "ab", OWNER_ONLY) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(f"Another process is writing {folder}. Wait for it or choose another folder.") from None
            if not _is_same_file(path, lock.fileno()):
                continue  # the previous holder removed the file before we locked it
            if os.fstat(lock.fileno()).st_size:
                raise DataError(f"{path} is a file of yours, where the lock of {folder} belongs. Rename it.")
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def lock_of(folder: Path) -> Path:
    """Return the lock of a folder's only writer; a writer that was killed leaves the file behind, without its lock."""
    folder = folder.absolute()
    return folder.parent / (folder.name + ".lock")


def is_being_written(folder: Path) -> bool:
    """Return whether a process holds a folder as its only writer. Nothing is created."""
    try:
        descriptor = os.open(lock_of(folder), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # nobody has made it, or may read it
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)  # which also gives back the lock
    return False


@contextlib.contextmanager
def taken(path: Path) -> Iterator[bool]:
    """Try to take a lock for the block; yield whether it was free. It ends with the block, and also with the process.

    The lock is on an open file (flock), which stays when the lock ends and names the last holder for people. So a
    holder that is killed leaves nothing to clean up, and no time has to pass. Between machines this needs a file system
    whose locks all of them see; one without locks is a DataError.
    """
    with open_shared(path, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            raise DataError(
                f"The file system of {path.parent} has no locks ({error.strerror}). Use one that has, or give every "
                "command a folder of its own."
            ) from None
        lock.truncate(0)
        lock.write(f"{socket.gethostname()}, process {os.getpid()}, since {time.strftime('%F %T')}\n".encode())
        lock.flush()
        yield True


def holder_of(path: Path) -> str:
    """Return who last took a lock, for people."""
    try:
        return read_bounded(path).decode(errors="replace").strip() or "another process"
    except (OSError, DataError):
        return "another process"


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def existing_parent(path: Path) -> Path:
    """Return the path if it exists, else its nearest existing parent."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def require_place(path: Path, *endings: str) -> None:
    """Raise DataError if a file cannot be written at `path`, before the work that makes it.

    A file that exists there is replaced only if its name has one of the endings: one of another kind may be an input.
    """
    require_target(path)
    if path.exists() and path.suffix.lower() not in endings:
        raise DataError(f"{path} exists, and its name does not end in {' or '.join(endings)}. Choose another name.")
    folder = path.parent
    if not folder.is_dir():
        raise DataError(f"{path} cannot be written: there is no folder {folder}. Make it, or choose another place.")
    if not os.access(folder, os.W_OK):
        raise DataError(f"{path} cannot be written: {folder} is not writable. Choose another place.")


def require_free(path: Path, needed: float) -> None:
    """Raise DataError if the disk of `path` has less than `needed` bytes free; the path need not exist."""
    free = shutil.disk_usage(existing_parent(path)).free
    if needed > free:
        raise DataError(
            f"{path} needs about {gigabytes(needed)} but its disk has {gigabytes(free)} free. "
            "Free some space or choose another place."
        )


def folder_bytes(path: Path) -> int:
    """Return the total size of the files in a folder; 0 if it does not exist."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else 0


@contextlib.contextmanager
def folder_if_used(path: Path) -> Iterator[None]:
    """Create a folder and its parents, and remove those that are still empty when the block ends."""
    made = [folder for folder in (path.absolute(), *path.absolute().parents) if not folder.exists()]
    make_folder(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the first one that holds something, and all of its parents, stay
            for folder in made:
                folder.rmdir()


def make_folder(path: Path) -> None:
    """Create a folder and its parents; raise DataError if that fails or the folder is not writable.

    Only its owner can write into a new folder, whatever the umask is.
    """
    try:
        for folder in (*reversed(path.parents), path):
            folder.mkdir(OWNER_WRITES_FOLDER, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except (OSError, FileExistsError) as error:
        raise DataError(
            f"Cannot write to {path}: {error.strerror}. Choose another folder or change its permissions."
        ) from None


def read_packaged_table(kind: type[_Row], place: str) -> list[_Row]:
    """Return the rows of a CSV file of this package; its columns are the fields of the dataclass `kind`."""
    text = (resources.files("sottovoce") / place).read_text(encoding="utf-8")
    return TypeAdapter(list[kind]).validate_python(list(csv.DictReader(text.splitlines())))  # type: ignore[valid-type] # a type at run time
