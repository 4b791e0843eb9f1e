"""The frameworks as processes that take their steps in turn, each in an environment of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from measuring import Measured, Turns

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
STEP_TIMEOUT = 1800.0  # seconds


@dataclass(frozen=True)
class Runner:
    """A framework with a number of processes."""

    name: str
    processes: int
    script: str
    options: tuple[str, ...] = ()
    environment: str | None = None  # the file with its requirements; None: ours
    about: str = ""

    @property
    def key(self) -> str:
        """Its name in the figures."""
        return f"{self.name} x{self.processes}"

    def command(self, python: Path, folder: Path, out: Path) -> list[str]:
        """Return the command that runs an item."""
        start = [str(python)]
        if self.environment == "pfl" and self.processes > 1:
            start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.processes)]
        return [*start, str(HERE / self.script), str(folder), str(out), *self.options]

    def python(self, build: Path) -> Path:
        """Return the interpreter of its environment, which is made where it is missing."""
        if self.environment is None:
            return Path(sys.executable)
        folder, requirements = build / self.environment, HERE / f"{self.environment}.txt"
        wanted, done = requirements.read_text(), folder / "installed.txt"
        if not done.exists() or done.read_text() != wanted:
            print(f"Installing {wanted.split()[0]} into {folder} ...", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            words = ["install", "--quiet", "--requirement", str(requirements)]
            subprocess.run([str(folder / "bin" / "python"), "-m", "pip", *words], check=True)
            done.write_text(wanted)
        return folder / "bin" / "python"


OURS = Runner(
    "Sottovoce", 1, "run_sottovoce.py", ("1",), about="clipping by layer, exact sums, noise drawn by a thread"
)
OURS_IN_TWO = Runner("Sottovoce", 2, "run_sottovoce.py", ("2",), about="as above")
ALONE = (
    Runner("bare loop", 1, "run_bare.py", about="plain PyTorch, no clipping, no noise: the floor"),
    Runner("authors' padding", 1, "run_bare.py", ("pad",), about="the bare loop, padded to 8 utterances and 5 s"),
    Runner("pfl", 1, "run_pfl.py", environment="pfl", about="SimulatedBackend, Gaussian mechanism, no local metrics"),
)
IN_TWO = (
    Runner("pfl", 2, "run_pfl.py", environment="pfl", about="torchrun, users sorted by their amount of audio"),
    Runner("Flower", 2, "run_flower.py", environment="flower", about="simulation engine (Ray), one actor per core"),
)
# Those that take their steps in turn, ours first. Together the large ones in two processes would not fit into memory.
GROUPS = ((OURS, *ALONE), *((OURS_IN_TWO, rival) for rival in IN_TWO))
RUNNERS = (OURS, *ALONE, OURS_IN_TWO, *IN_TWO)


@dataclass(frozen=True)
class Outcome:
    """The run of a runner: its first step, and the steps that it took in turn with others."""

    measured: Measured
    first_step: float  # seconds from the start of the process
    memory: float  # GB, the largest sum over all its processes


class Running:
    """A runner's process on one item. It waits after every step."""

    def __init__(self, runner: Runner, build: Path, folder: Path) -> None:
        """Start it; its output goes to a log."""
        self.runner = runner
        turns = folder / "turns" / str(os.getpid())
        turns.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(dir=turns))
        self._turns, self._out = Turns(place), place / "measured.json"
        self._log = build / f"{folder.name}-{runner.key.replace(' ', '-')}.log"
        variables = {**os.environ, "PYTHONPATH": f"{HERE}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
        variables |= {"RAY_DEDUP_LOGS": "0", Turns.VARIABLE: str(place)}
        command = runner.command(runner.python(build), folder, self._out)
        self._began, self._memory = time.time(), 0.0
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def take(self, step: int) -> None:
        """Have it take a step, and wait for its end; it begins the first one by itself."""
        if step:
            self._turns.begin(step)
        memory = Memory(self._process.pid)
        end = time.monotonic() + STEP_TIMEOUT
        while not self._turns.has_ended(step):
            time.sleep(0.05)
            if self._process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{self.runner.key} failed in step {step}: see {self._log}.")
        self._memory = max(self._memory, memory.stop())

    def end(self, steps: int) -> Outcome:
        """Let it write its figures after the last step, and return them."""
        self._turns.begin(steps + 1)
        if self._process.wait(STEP_TIMEOUT) != 0 or not self._out.exists():
            raise SystemExit(f"{self.runner.key} failed after its last step: see {self._log}.")
        measured = Measured(**json.loads(self._out.read_text()))
        return Outcome(measured, measured.ends[0] - self._began, self._memory)

    def kill(self) -> None:
        """Leave no process behind: neither those that it has started, nor those of its session that are orphans."""
        for pid in _family(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Memory:
    """Watches the memory of a process and of all that it starts: proportional, so that shared pages count once."""

    def __init__(self, pid: int) -> None:
        """Begin to watch."""
        self._pid, self._peak, self._stopped = pid, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Return the largest amount seen, in GB."""
        self._stopped.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        while not self._stopped.wait(0.5):
            self._peak = max(self._peak, sum(map(_proportional, _family(self._pid))) / 1e6)


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in _family(int(child)))]


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
