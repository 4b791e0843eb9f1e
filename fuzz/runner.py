"""Running one case after another in a fork of a process that has loaded everything, and judging each.

A fork costs tens of milliseconds where an interpreter of its own would cost seconds. A share of the cases gets one all
the same: what a command does while it starts and ends, and under a memory limit from the start, shows only there.
"""

import contextlib
import itertools
import os
import select
import shutil
import signal
import stat
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NoReturn

from fuzz.chosen import Chosen
from fuzz.command_lines import LONG, OUTPUTS, commands, good, hostile, possible
from fuzz.confinement import (
    CPU_SECONDS,
    LITTLE_MEMORY,
    MEMORY,
    NOBODY,
    SOURCES,
    confine,
    ends,
    enter_room,
    fresh_processes_start,
    memory_in_use,
)
from fuzz.damage import companions, damage

IDLE_SECONDS, GRACE_SECONDS = 120, 30  # without work, after which a case hangs
LONG_SECONDS = 25  # of work, after which a training is asked to end
WAITING_SECONDS = 4  # without work, after which a command that says it waits is asked to end
# How `sotto watch` and `sotto report --follow` say so.
WAITING = ("has not started", "is starting", '"not started"', '"starting"', "Waiting for ")
FRESH, FRESH_FAULTS = 0.02, 0.3  # of all cases, and of faults that matter most while a process starts
LEAST_MEMORY, MOST_MEMORY = 900 << 20, 2200 << 20  # of a fresh process with little memory
# The environments of fresh processes: the usual one, and one whose streams know ASCII alone.
ENVIRONMENTS: tuple[dict[str, str], ...] = ({}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"})
COPIED = ("older", "private", "central")  # inputs that a command may change: it gets copies in its own folder
# What commands add beside their inputs, as documented: a page in a run, the ledger of a store's users, locks.
ADDED = ("report.html", "report_files", ".privacy", "privacy.json", ".lock")


@dataclass(frozen=True)
class Finding:
    """What was wrong with one case."""

    kind: str
    detail: str


@dataclass
class Outcome:
    """A case and its judgement."""

    number: int
    words: list[str]
    done: list[str]
    kind: str = ""
    fresh: bool = False
    code: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    printed: str = ""


class Runner:
    """Runs the cases of one seed in a folder of its own, one after another."""

    def __init__(self, folder: Path, chosen: Chosen) -> None:
        """Lay the inputs out, twice: cases work on one copy, and what they change is restored from the other."""
        self.folder, self._kept, self._seed = folder, folder.with_name(f"{folder.name}-kept"), chosen.seed
        self._known = commands()
        enter_room(folder.parent)
        self._starts_fresh = not chosen.quick and fresh_processes_start()
        for place in (self._kept, folder):
            place.mkdir()
            _lay_out(chosen.inputs, place)
        self._state = _state(folder)
        self._lines = possible(folder / "out", quick=chosen.quick, only=chosen.only)

    def run(self, number: int) -> Outcome:
        """Run a case: its seed and its number decide everything."""
        random = Random(f"{self._seed} {number}")
        outcome, damaged, fault = self._plan(number, random)
        before = self._state | {place: _state_of(self.folder / place) for place in damaged}
        began = time.monotonic()
        pid = self._start(outcome, fault, random)
        ended = self._wait(pid, outcome, fault, random)
        outcome.code, outcome.seconds = ended.code, time.monotonic() - began
        if fault == "read-only":
            (self.folder / "out").chmod(0o755)
        after = _state(self.folder)
        outcome.findings = self._judge(outcome.words, ended, before, after)
        outcome.printed = "".join((self.folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
        self._restore(after)
        return outcome

    def _restore(self, after: dict[str, str]) -> None:
        """Bring back what a case, or its damage, has changed."""
        wrong = {place for place in after.keys() | self._state.keys() if after.get(place) != self._state.get(place)}
        for place in sorted(wrong, key=len, reverse=True):  # what is inside first
            path = self.folder / place
            if path.is_dir() and not path.is_symlink():
                if place not in self._state or self._state[place] != _FOLDER:
                    shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        for place in sorted(wrong & self._state.keys(), key=len):
            source, target = self._kept / place, self.folder / place
            if source.is_symlink() or source.is_file():
                target.parent.mkdir(exist_ok=True, parents=True)
                shutil.copy2(source, target, follow_symlinks=False)
            elif source.is_dir():
                target.mkdir(exist_ok=True)
            else:
                _make_special(target)
            if os.geteuid() == 0:
                os.lchown(target, NOBODY, NOBODY)
            self._state[place] = _state_of(target)

    def _plan(self, number: int, random: Random) -> tuple[Outcome, list[str], str]:
        """Return a case before it runs, the files that were damaged for it, and the fault to inject."""
        words = good(random, self._known, self._lines)
        how, done, kind, fault = random.random(), [], "damaged files", ""
        damaged: list[Path] = []
        if how < 0.40:
            words, kind = hostile(words, random, self._known), "command lines"
        elif how < 0.92:
            for path in random.sample(files := self._read_by(words), min(len(files), random.choice((1, 1, 1, 2)))):
                damaged += [path, *companions(path)]
                done.append(damage(path, random))
        else:
            fault = random.choice(("small files", "memory", "term", "read-only"))
            kind = "faults"
            if fault == "read-only":
                done.append("out is read-only")
            done.append(f"fault: {fault}")
        if os.geteuid() == 0:
            for path in damaged:
                with contextlib.suppress(FileNotFoundError):
                    os.lchown(path, NOBODY, NOBODY)
        share = FRESH_FAULTS if fault in ("memory", "term") else FRESH
        fresh = self._starts_fresh and random.random() < share
        return (
            Outcome(number, words, done, kind, fresh),
            [os.path.relpath(path, self.folder) for path in damaged],
            fault,
        )

    def _read_by(self, words: list[str]) -> list[Path]:
        """Return the files that a command line names, and those in folders that it names."""
        found: list[Path] = []
        for word in words:
            for part in word.split("@"):
                path = self.folder / "out" / part
                if ("/" in part or part in COPIED) and path.exists() and len(part) < 200:
                    found += [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        return sorted({file.resolve() for file in found if not file.is_symlink()})

    def _start(self, outcome: Outcome, fault: str, random: Random) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        little = random.randrange(LEAST_MEMORY, MOST_MEMORY) if outcome.fresh else memory_in_use() + LITTLE_MEMORY
        environment, as_module = random.choice(ENVIRONMENTS), random.random() < 0.5
        pid = os.fork()
        if pid:
            return pid
        code = 99
        try:
            confine(self.folder, fault, little if fault == "memory" else MEMORY)
            if outcome.fresh:
                _start_fresh(outcome.words, environment, as_module=as_module)
            code = _run_here(outcome.words)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code & 0xFF)

    def _wait(self, pid: int, outcome: Outcome, fault: str, random: Random) -> "_Ended":
        """Wait for a case; end it where it does not end."""
        descriptor = os.pidfd_open(pid)
        may_end = fault == "term"
        try:
            seconds = random.uniform(0.01, 3.0 if outcome.fresh else 0.5)
            if fault == "term" and not select.select([descriptor], [], [], seconds)[0]:
                os.kill(pid, signal.SIGTERM)
            hung = not ends(descriptor, pid, WAITING_SECONDS)
            if hung and self._says_it_waits():
                os.kill(pid, signal.SIGTERM)
                may_end, hung = True, not ends(descriptor, pid, GRACE_SECONDS)
            long = any(word in LONG for word in outcome.words[:3])
            hung = hung and not ends(descriptor, pid, IDLE_SECONDS, LONG_SECONDS if long else CPU_SECONDS + 1)
            if hung and long:  # it was at work: asked to end, it must
                os.kill(pid, signal.SIGTERM)
                hung = not ends(descriptor, pid, GRACE_SECONDS)
            if hung:
                os.killpg(pid, signal.SIGKILL)
        finally:
            os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # workers that were left behind
        return _Ended(os.waitstatus_to_exitcode(status), hung, may_end)

    def _says_it_waits(self) -> bool:
        """Return whether the case has said that it waits for something to appear."""
        printed = "".join((self.folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
        return any(word in printed for word in WAITING)

    def _judge(self, words: list[str], ended: "_Ended", before: dict[str, str], after: dict[str, str]) -> list[Finding]:
        findings = []
        code, hung = ended.code, ended.hung
        printed = {
            name: (self.folder / name).read_bytes() for name in ("stdout", "stderr") if (self.folder / name).exists()
        }
        if hung or -code == signal.SIGXCPU:
            findings.append(Finding("hang", "no end"))
        elif code < 0 and not (ended.by_request and -code == signal.SIGTERM):
            findings.append(Finding("signal", signal.Signals(-code).name))
        for name, text in printed.items():
            if b"Traceback (most recent call last)" in text:
                findings.append(Finding("traceback", text.decode(errors="replace")[-6000:]))
            if b"\x1b" in text or b"\x07" in text:
                findings.append(Finding("escape", f"in {name}: {text[max(text.find(bytes([27])) - 60, 0) :][:200]!r}"))
        if code not in (0, 130, 141, 143) and not hung and code >= 0 and not printed["stderr"].strip():
            findings.append(Finding("silent", f"code {code} and no message"))
        expected = self._expected(words)
        for place, state in after.items():
            if place.startswith("in/") or place not in before:
                changed = before.get(place) not in (None, state)
                inside = place.startswith(("out/", "stdout", "stderr")) or any(name in place for name in ADDED)
                if changed and not any(name in place for name in (".privacy/", "privacy.json")):
                    findings.append(Finding("changed input", place))
                elif place not in before and not inside and not any(_is_within(place, one) for one in expected):
                    findings.append(Finding("stray file", place))
        for place in before.keys() - after.keys():
            if before[place] and place.startswith("in/") and not place.endswith(".lock"):
                findings.append(Finding("removed input", place))
        return findings

    def _expected(self, words: list[str]) -> set[str]:
        """Return the outputs that a command line names, by their places in the folder; commands run in `out`."""
        named = (word for option, word in itertools.pairwise(words) if option.lstrip("-") in OUTPUTS)
        return {os.path.normpath(Path("out") / word) for word in named}


@dataclass(frozen=True)
class _Ended:
    """How a case ended."""

    code: int  # negative for a signal
    hung: bool  # it had to be killed
    by_request: bool  # it was sent SIGTERM where that may end it at once


_FOLDER = f"{stat.S_IFDIR}"


def _is_within(place: str, folder: str) -> bool:
    """Return whether a place is another one, lies in it, or is one of the folders that it lies in."""
    return place == folder or place.startswith(folder + os.sep) or folder.startswith(place + os.sep)


def _state(folder: Path) -> dict[str, str]:
    """Return what lies in a folder, by path."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(where) / name
            found[os.path.relpath(path, folder)] = _state_of(path)
    return {place: state for place, state in found.items() if place not in ("stdout", "stderr")}


def _state_of(path: Path) -> str:
    """Return the kind of something, and of a file what changes with its content; empty where there is nothing."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    mode = found.st_mode
    if stat.S_ISREG(found.st_mode):  # no content is changed without one of these
        return f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
    return f"{stat.S_IFMT(mode)}{path.readlink() if stat.S_ISLNK(mode) else ''}"


def _lay_out(inputs: Path, folder: Path) -> None:
    """Copy the inputs, and make the folder in which commands run, with what is no regular file in it."""
    shutil.copytree(inputs, folder / "in", symlinks=True)
    out = folder / "out"
    out.mkdir()
    (out / "link").symlink_to("../in/corpus/index.tsv")
    (out / "dangling").symlink_to("nowhere")
    (out / "folder").mkdir()
    for name in ("pipe", "device"):
        _make_special(out / name)
    for name in COPIED:
        if (folder / "in" / name).exists():
            shutil.copytree(folder / "in" / name, out / name, symlinks=True)
    if os.geteuid() != 0:
        return
    for where, folders, files in os.walk(folder):
        for name in ("", *folders, *files):
            os.lchown(Path(where) / name, NOBODY, NOBODY)


def _make_special(path: Path) -> None:
    """Make a pipe, or a device that does as /dev/null; without the right to make one, a pipe again."""
    if path.name == "device" and os.geteuid() == 0:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.chmod(0o666)
    else:
        os.mkfifo(path)


def _run_here(words: list[str]) -> int:
    """Run a command in this process and return its exit code."""
    from sottovoce.cli.main import run

    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8")
    _reopen_consoles()
    sys.argv = ["sotto", *words]
    try:
        run()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    return 0


def _start_fresh(words: list[str], environment: dict[str, str], *, as_module: bool) -> NoReturn:
    """Become a fresh interpreter that runs a command, by its script or as a module."""
    script = Path(sys.prefix) / "bin" / "sotto"
    first = ["-m", "sottovoce"] if as_module or not os.access(script, os.R_OK) else [str(script)]
    os.environ.update(environment, PYTHONPATH=str(SOURCES))
    os.execv(sys.executable, [sys.executable, *first, *words])  # noqa: S606 - no shell is wanted


def _reopen_consoles() -> None:
    """Let rich print to the new streams, and take them for what they are: files."""
    from sottovoce.cli import console

    for one in (console.stdout, console.stderr):
        one._file = None
