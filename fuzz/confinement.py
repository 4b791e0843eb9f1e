"""What a case can reach: its folder, and nothing else.

A case runs in a folder of its own below one temporary folder, with limits on memory, file sizes and processor time, and
every path that it is given lies inside that folder. Where the fuzzer is root, it also runs as an unprivileged user
without a network, and where the kernel allows, in a view of the file system in which all but the temporary folder is
read-only. So nothing that a command does by mistake reaches anything else.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import sottovoce

NOBODY = 65534
CPU_SECONDS = 60
LARGEST_FILE = 1 << 28
MEMORY = 16 << 30
SMALL_FILE = 2_000
LITTLE_MEMORY = 60 << 20  # beyond what a fork has already

_CLONE_NEWNET, _CLONE_NEWNS = 0x40000000, 0x00020000
_MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = 0x1000, 0x2000, 0x4000, 0x40000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _RDONLY = 442, -100, 0x8000, 1
SOURCES = Path(sottovoce.__file__).parents[1]


def enter_room(folder: Path) -> None:
    """Let this process and its children see all but a folder read-only; as root only, and where the kernel allows.

    The interpreter stays visible to the unprivileged user even where it lies in somebody's home.
    """
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        _call("unshare", _CLONE_NEWNS)
        _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
        _mount(str(folder), str(folder), "", _MS_BIND)
        _show_interpreter(folder / "interpreter")
        _set_read_only("/", inside=True, value=True)
        _set_read_only(str(folder), inside=False, value=False)
        _mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777")  # noqa: S108 - in this view alone


def _show_interpreter(stage: Path) -> None:
    """Cover folders that others may not enter by empty ones, in which the interpreter and the package appear again."""
    needed = {Path(place).resolve() for place in (sys.prefix, sys.base_prefix, SOURCES)}
    closed = {place: _closed_folder(place) for place in sorted(needed) if not needed.intersection(place.parents)}
    kept = {place: stage / str(number) for number, place in enumerate(closed) if closed[place] is not None}
    for place, here in kept.items():
        here.mkdir(parents=True, exist_ok=True)
        _mount(str(place), str(here), "", _MS_BIND | _MS_REC)
    for folder in {closed[place] for place in kept}:
        _mount("tmpfs", str(folder), "tmpfs", 0, "mode=755")
    for place, here in kept.items():
        place.mkdir(parents=True)
        _mount(str(here), str(place), "", _MS_MOVE)


def _closed_folder(place: Path) -> Path | None:
    """Return the outermost folder around a place that others may not enter."""
    return next((folder for folder in reversed(place.parents) if not folder.stat().st_mode & 0o001), None)


def confine(folder: Path, fault: str, memory: int) -> None:
    """Give up what a case must not have. Runs in its process, which works in the folder `out` of its own folder."""
    os.setsid()
    out = folder / "out"
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(HOME=str(out), TMPDIR=str(out), COLUMNS="120")
    os.chdir(out)
    if fault == "read-only":
        out.chmod(0o555)
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, SMALL_FILE if fault == "small files" else LARGEST_FILE),
        (resource.RLIMIT_AS, memory),
    ):
        resource.setrlimit(limit, (value, value))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python has it
    give_up_rights()


def give_up_rights() -> None:
    """Become an unprivileged user without a network, where this process is root."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).unshare(_CLONE_NEWNET)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def fresh_processes_start() -> bool:
    """Return whether a case can start an interpreter of its own: the unprivileged user must be able to read it."""
    child = os.fork()
    if not child:
        give_up_rights()
        readable = os.access(Path(sys.executable).resolve(), os.X_OK) and os.access(sys.prefix, os.R_OK | os.X_OK)
        os._exit(0 if readable and os.access(SOURCES / "sottovoce" / "__main__.py", os.R_OK) else 1)
    return os.waitpid(child, 0)[1] == 0


def ends(descriptor: int, session: int, idle: int, work: int | None = None) -> bool:
    """Return whether a process ends before its session was idle for some seconds, or has worked for so many.

    Seconds in which one of its processes could work do not count as idle, whether or not the machine let it.
    """
    while idle > 0:
        if select.select([descriptor], [], [], 1.0)[0]:
            return True
        states = list(_states(session))
        if work is not None and max((seconds for _, seconds in states), default=0.0) > work:
            return False
        idle -= not any(state in "RD" for state, _ in states)
    return False


def _states(session: int) -> Iterator[tuple[str, float]]:
    """Yield the state of every process of a session, and the seconds that it has worked for."""
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = place.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                yield fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_in_use() -> int:
    """Return the address space of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _call(name: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = (os.fsencode(word) for word in (source, target, kind))
    _call("mount", *words, ctypes.c_ulong(flags), os.fsencode(options))


def _set_read_only(place: str, *, inside: bool, value: bool) -> None:
    """Make a mounted place read-only or writable, with the places mounted inside it or alone."""
    attributes = struct.pack("QQQQ", _RDONLY * value, _RDONLY * (not value), 0, 0)  # to set, to clear, 0, 0
    flags = _AT_RECURSIVE if inside else 0
    _call("syscall", _MOUNT_SETATTR, _AT_FDCWD, os.fsencode(place), flags, attributes, len(attributes))
