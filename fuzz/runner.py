"""Running one case after another in a fork of a process that has loaded everything, and judging each.

**Confinement.** A case runs in a folder of its own below one temporary folder, as an unprivileged user and without a
network where the fuzzer is root, with limits on memory, file sizes and processor time. Every path that it is given lies
inside that folder. So nothing that a command does by mistake reaches anything else.
"""

import contextlib
import ctypes
import gc
import itertools
import os
import resource
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

from fuzz.chosen import Chosen
from fuzz.command_lines import LONG, OUTPUTS, commands, good, hostile, possible
from fuzz.damage import companions, damage

NOBODY = 65534
CPU_SECONDS, WALL_SECONDS, GRACE_SECONDS = 60, 240, 30
LARGEST_FILE = 1 << 28
MEMORY = 16 << 30
_CLONE_NEWNET = 0x40000000
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
        for place in (self._kept, folder):
            place.mkdir()
            _lay_out(chosen.inputs, place)
        self._state = _state(folder)
        self._lines = possible(folder / "out", quick=chosen.quick, only=chosen.only)

    def run(self, number: int) -> Outcome:
        """Run a case: its seed and its number decide everything."""
        random = Random(f"{self._seed} {number}")
        words, done, damaged, fault = self._plan(random)
        outcome = Outcome(number, words, done)
        before = self._state | {place: _state_of(self.folder / place) for place in damaged}
        began = time.monotonic()
        pid = self._start(words, fault)
        outcome.code, hung = self._wait(pid, words, fault, random)
        outcome.seconds = time.monotonic() - began
        if fault == "read-only":
            (self.folder / "out").chmod(0o755)
        after = _state(self.folder)
        outcome.findings = self._judge(words, outcome.code, hung, fault, before, after)
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

    def _plan(self, random: Random) -> tuple[list[str], list[str], list[str], str]:
        """Return the words, what was done, the files that were damaged, and the fault to inject."""
        words = good(random, self._known, self._lines)
        how, done, fault = random.random(), [], ""
        damaged: list[Path] = []
        if how < 0.40:
            words = hostile(words, random, self._known)
        elif how < 0.92:
            for path in random.sample(files := self._read_by(words), min(len(files), random.choice((1, 1, 1, 2)))):
                damaged += [path, *companions(path)]
                done.append(damage(path, random))
        else:
            fault = random.choice(("small files", "memory", "term", "read-only"))
            if fault == "read-only":
                done.append("out is read-only")
            done.append(f"fault: {fault}")
        if os.geteuid() == 0:
            for path in damaged:
                with contextlib.suppress(FileNotFoundError):
                    os.lchown(path, NOBODY, NOBODY)
        return words, done, [os.path.relpath(path, self.folder) for path in damaged], fault

    def _read_by(self, words: list[str]) -> list[Path]:
        """Return the files that a command line names, and those in folders that it names."""
        found: list[Path] = []
        for word in words:
            for part in word.split("@"):
                path = self.folder / "out" / part
                if ("/" in part or part in COPIED) and path.exists() and len(part) < 200:
                    found += [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        return sorted({file.resolve() for file in found if not file.is_symlink()})

    def _start(self, words: list[str], fault: str) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 99
        try:
            self._confine(fault)
            from sottovoce.cli.main import run

            sys.argv = ["sotto", *words]
            run()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code & 0xFF)

    def _confine(self, fault: str) -> None:
        """Give up what a case must not have. Runs in its process."""
        os.setsid()
        out = self.folder / "out"
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
        sys.stderr = os.fdopen(2, "w", encoding="utf-8")
        _reopen_consoles()
        os.environ.update(HOME=str(out), TMPDIR=str(out), COLUMNS="120")
        os.chdir(out)
        if fault == "read-only":
            out.chmod(0o555)
        for limit, value in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, CPU_SECONDS),
            (resource.RLIMIT_FSIZE, 2_000 if fault == "small files" else LARGEST_FILE),
            (resource.RLIMIT_AS, _memory_in_use() + (60 << 20) if fault == "memory" else MEMORY),
        ):
            resource.setrlimit(limit, (value, value))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python has it
        if os.geteuid() == 0:
            ctypes.CDLL(None).unshare(_CLONE_NEWNET)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)

    def _wait(self, pid: int, words: list[str], fault: str, random: Random) -> tuple[int, bool]:
        """Wait for a case; return its code, negative for a signal, and whether it had to be ended."""
        descriptor = os.pidfd_open(pid)
        try:
            if fault == "term" and not select.select([descriptor], [], [], random.uniform(0.01, 0.5))[0]:
                os.kill(pid, signal.SIGTERM)
            hung = not _ends(descriptor, WALL_SECONDS)
            if hung and any(word in LONG for word in words[:3]):  # it was at work: asked to end, it must
                os.kill(pid, signal.SIGTERM)
                hung = not _ends(descriptor, GRACE_SECONDS)
            if hung:
                os.killpg(pid, signal.SIGKILL)
        finally:
            os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # workers that were left behind
        return os.waitstatus_to_exitcode(status), hung

    def _judge(
        self, words: list[str], code: int, hung: bool, fault: str, before: dict[str, str], after: dict[str, str]
    ) -> list[Finding]:
        findings = []
        printed = {
            name: (self.folder / name).read_bytes() for name in ("stdout", "stderr") if (self.folder / name).exists()
        }
        if hung or -code == signal.SIGXCPU:
            findings.append(Finding("hang", "no end"))
        elif code < 0 and not (fault == "term" and -code == signal.SIGTERM):
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
                elif place not in before and not inside and place not in expected:
                    findings.append(Finding("stray file", place))
        for place in before.keys() - after.keys():
            if before[place] and place.startswith("in/") and not place.endswith(".lock"):
                findings.append(Finding("removed input", place))
        return findings

    def _expected(self, words: list[str]) -> set[str]:
        """Return the outputs that a command line names."""
        return {word for option, word in itertools.pairwise(words) if option.lstrip("-") in OUTPUTS}


_FOLDER = f"{stat.S_IFDIR}"


def _ends(descriptor: int, seconds: int) -> bool:
    """Return whether a process ends in time. Time in which everything was stopped does not count."""
    return any(select.select([descriptor], [], [], 1.0)[0] for _ in range(seconds))


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


def _memory_in_use() -> int:
    """Return the address space of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _reopen_consoles() -> None:
    """Let rich print to the new streams, and take them for what they are: files."""
    from sottovoce.cli import console

    for one in (console.stdout, console.stderr):
        one._file = None


_QUICK = ("sottovoce.cli", "sottovoce.data", "sottovoce.config")
_LATER = (
    *(
        "torch.utils.tensorboard",
        "tensorboard.compat",
        "matplotlib.backends.backend_agg",
        "matplotlib.backends.backend_svg",
    ),
    *(
        "PIL.PngImagePlugin",
        "rich.markdown",
        "rich.traceback",
        "yaml",
        "jiwer",
        "soxr",
        "num2words",
        "unidecode",
        "gzip",
    ),
    *("safetensors.torch", "dp_accounting.pld", "opacus.accountants.analysis", "scipy.optimize", "scipy.special"),
)


def load_everything(*, quick: bool) -> None:
    """Import what any command imports, or any quick one, so that no case has to."""
    import encodings
    import pkgutil
    from importlib import import_module

    import sottovoce

    for module in pkgutil.walk_packages(sottovoce.__path__, "sottovoce."):
        if not module.name.endswith("__main__") and (not quick or module.name.startswith(_QUICK)):
            with contextlib.suppress(ImportError):
                import_module(module.name)
    if not quick:
        for bench in import_module("sottovoce.bench.preset").bench_names():  # kept once they are read
            import_module("sottovoce.bench.preset").load_bench(bench)
    # The unprivileged user may not be able to read the interpreter's own modules later.
    others = [f"encodings.{module.name}" for module in pkgutil.iter_modules(encodings.__path__)]
    for name in (*others, *(() if quick else _LATER)):
        with contextlib.suppress(ImportError, LookupError):
            import_module(name)
    gc.freeze()  # forks then share more memory
