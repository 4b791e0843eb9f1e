"""Sottovoce beside what a user would pick instead: the same federated work, in one run, as ratios with their spread.

    python benchmarks/peers/compare.py --json FIGURES [--page PAGE] [--items speech crowd] [--repetitions 5] [--resume]

With --resume, repetitions in the file are kept and only what is missing is measured. With `--resume --repetitions 0`
the page is written from the file alone.

Every repetition runs each framework once, one after another, in processes of their own, so that a slow minute of the
machine meets all of them. A ratio compares runs of the same repetition. pfl and Flower are installed, pinned, into
environments of their own below `build/peers`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from export import export
from items import FRAMES_PER_SECOND, ITEMS, Item
from measuring import Measured

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TIMEOUT_SECONDS = 3600


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


RUNNERS = (
    Runner(
        "Sottovoce",
        1,
        "run_sottovoce.py",
        ("1",),
        about="clipping by layer, exact sums, noise drawn by a thread",
    ),
    Runner("bare loop", 1, "run_bare.py", about="plain PyTorch, no clipping, no noise: the floor"),
    Runner("authors' padding", 1, "run_bare.py", ("pad",), about="the bare loop, padded to 8 utterances and 5 s"),
    Runner("pfl", 1, "run_pfl.py", environment="pfl", about="SimulatedBackend, Gaussian mechanism, no local metrics"),
    Runner("Sottovoce", 2, "run_sottovoce.py", ("2",), about="as above"),
    Runner("pfl", 2, "run_pfl.py", environment="pfl", about="torchrun, users sorted by their amount of audio"),
    Runner("Flower", 2, "run_flower.py", environment="flower", about="simulation engine (Ray), one actor per core"),
)


@dataclass(frozen=True)
class Outcome:
    """One run of a runner."""

    measured: Measured
    first_step: float  # seconds from the start of the process
    memory: float  # GB, the largest sum over all its processes

    @property
    def seconds(self) -> float:
        """The time of all timed steps."""
        return sum(self.measured.steps)

    @property
    def users_per_second(self) -> float:
        """The pace."""
        return self.measured.users / self.seconds

    @property
    def audio_per_second(self) -> float:
        """Seconds of audio trained on in a second."""
        return self.measured.frames / FRAMES_PER_SECOND / self.seconds


def python_of(environment: str | None, build: Path) -> Path:
    """Return the interpreter of an environment, which is made where it is missing."""
    if environment is None:
        return Path(sys.executable)
    folder, wanted = build / environment, (HERE / f"{environment}.txt").read_text()
    done = folder / "installed.txt"
    if not done.exists() or done.read_text() != wanted:
        print(f"Installing {wanted.split()[0]} into {folder} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        words = ["install", "--quiet", "--requirement", str(HERE / f"{environment}.txt")]
        subprocess.run([str(folder / "bin" / "python"), "-m", "pip", *words], check=True)
        done.write_text(wanted)
    return folder / "bin" / "python"


def run(runner: Runner, python: Path, folder: Path, log: Path) -> Outcome:
    """Run an item once; raise where it fails, with its output in `log`."""
    out = folder / "measured.json"
    out.unlink(missing_ok=True)
    variables = {**os.environ, "PYTHONPATH": f"{HERE}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
    began = time.time()
    with log.open("wb") as output:
        process = subprocess.Popen(
            runner.command(python, folder, out), env=variables, stdout=output, stderr=subprocess.STDOUT
        )
        memory = Memory(process.pid)
        code = process.wait(TIMEOUT_SECONDS)
    peak = memory.stop()
    if code != 0 or not out.exists():
        raise SystemExit(f"{runner.name} with {runner.processes} failed on {folder.name}: see {log}.")
    measured = Measured(**json.loads(out.read_text()))
    return Outcome(measured, measured.ends[0] - began, peak)


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


def require_same_work(item: Item, outcomes: Iterable[Outcome]) -> None:
    """Raise where a framework trained on other audio or another number of parameters."""
    done = {(outcome.measured.frames, outcome.measured.users, outcome.measured.parameters) for outcome in outcomes}
    if len(done) > 1:
        raise SystemExit(f"{item.name}: the frameworks did not do the same work (frames, users, parameters): {done}")


def spread(values: Sequence[float]) -> str:
    """Return the median and the range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


Outcomes = dict[Runner, list[Outcome]]  # of the repetitions


def section(item: Item, outcomes: Outcomes) -> str:
    """Return the table of an item in Markdown."""
    first = next(iter(outcomes.values()))[0].measured
    audio = first.frames / FRAMES_PER_SECOND / first.users
    lines = [
        f"## {item.name}: {item.about}",
        "",
        f"{first.parameters / 1e6:.2f}M parameters, cohorts of {item.cohort}, {item.local_steps} local steps, "
        f"batches of {item.batch_seconds:g} s; {audio:.2f} s of audio for each user, in every framework. "
        f"Repetitions: {len(next(iter(outcomes.values())))}.",
        "",
        "| framework | processes | users/s | audio s/s | Sottovoce is faster by "
        "| forward and backward | GB | first step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for runner, runs in outcomes.items():
        ours = next(
            own for other, own in outcomes.items() if other.name == "Sottovoce" and other.processes == runner.processes
        )
        ratios = [mine.users_per_second / its.users_per_second for mine, its in zip(ours, runs, strict=True)]
        share = statistics.median(run.measured.learning / run.seconds / runner.processes for run in runs)
        lines.append(
            f"| {runner.name} | {runner.processes} | {spread([run.users_per_second for run in runs])} "
            f"| {statistics.median(run.audio_per_second for run in runs):.0f} "
            f"| {'1' if runs is ours else spread(ratios)} | {100 * share:.0f} % "
            f"| {statistics.median(run.memory for run in runs):.2f} "
            f"| {statistics.median(run.first_step for run in runs):.1f} s |"
        )
    return "\n".join(lines) + "\n"


def page(figures: dict[str, Outcomes]) -> str:
    """Return the page of all items."""
    sections = [section(item, figures[item.name]) for item in ITEMS.values() if item.name in figures]
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    settings = "\n".join(f"- {runner.name}, {runner.processes} process(es): {runner.about}." for runner in RUNNERS)
    return f"""# Speed beside other frameworks

`make bench-peers` writes this page. Everyone trains the same network on the same utterances in the same local batches;
the benchmark stops where the audio or the number of parameters differs. Each number is the median of its
repetitions with the range. The frameworks take turns within a repetition, and a ratio compares runs of one repetition.
A ratio above 1 means that Sottovoce is faster.

Machine: {model}, {os.cpu_count()} cores, no GPU; PyTorch 2.13.0, one thread per process. Settings:

{settings}

The share of forward and backward is that of all processes' time. Memory is the largest sum over all processes, shared
pages counted once. The first step is counted from the start of the command.

{chr(10).join(sections)}
{(HERE / "notes.md").read_text()}"""


def main() -> None:
    """Measure, print and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", nargs="*", choices=list(ITEMS), default=list(ITEMS))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "peers", help="environments, speech and logs")
    parser.add_argument("--json", type=Path, required=True, help="the figures, written after every repetition")
    parser.add_argument("--resume", action="store_true", help="go on with the figures in the file")
    parser.add_argument("--page", type=Path, help="the page to write, such as docs/performance.md")
    arguments = parser.parse_args()
    figures = read_figures(arguments.json) if arguments.resume and arguments.json.exists() else {}
    pythons = {}
    if arguments.repetitions:
        for name in arguments.items:
            export(ITEMS[name], arguments.build / "work" / name, os.cpu_count() or 1)
        pythons = {runner: python_of(runner.environment, arguments.build) for runner in RUNNERS}
    for repetition in range(arguments.repetitions):
        for name in arguments.items:
            outcomes = figures.setdefault(name, {runner: [] for runner in RUNNERS})
            if len(outcomes[RUNNERS[0]]) <= repetition:
                for runner, outcome in repeat(ITEMS[name], pythons, arguments.build).items():
                    outcomes[runner].append(outcome)
                write_figures(figures, arguments.json)
    print(page(figures))
    if arguments.page is not None:
        arguments.page.write_text(page(figures))


def repeat(item: Item, pythons: dict[Runner, Path], build: Path) -> dict[Runner, Outcome]:
    """Let each framework do an item's work once, in turn."""
    outcomes = {}
    for runner in RUNNERS:
        log = build / f"{item.name}-{runner.name}-{runner.processes}.log"
        outcomes[runner] = run(runner, pythons[runner], build / "work" / item.name, log)
        print(f"{item.name}: {runner.key} {outcomes[runner].users_per_second:.2f} users/s", file=sys.stderr)
    require_same_work(item, outcomes.values())
    return outcomes


def write_figures(figures: dict[str, Outcomes], path: Path) -> None:
    """Write all figures as JSON: by item and runner, a list of repetitions."""
    rows = {
        name: {runner.key: [asdict(run) for run in runs] for runner, runs in outcomes.items()}
        for name, outcomes in figures.items()
    }
    path.write_text(json.dumps(rows, indent=1) + "\n")


def read_figures(path: Path) -> dict[str, Outcomes]:
    """Return the figures that `write_figures` wrote."""
    return {
        name: {
            runner: [Outcome(Measured(**run.pop("measured")), **run) for run in rows[runner.key]] for runner in RUNNERS
        }
        for name, rows in json.loads(path.read_text()).items()
    }


if __name__ == "__main__":
    main()
