"""How long commands take before they do something: CPU seconds of --version and --help, and the first central step.

    python benchmarks/startup.py [--json] [--repeat 5]

Every figure is a median. The first step is that of `sotto train federated quick` in a new folder with its corpus in it.
"""

import argparse
import functools
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import print_report

SOTTO = (sys.executable, "-m", "sottovoce")
COMMANDS = ("--version", "--help", "config --help", "data --help", "train --help", "privacy --help", "bench --help")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(words: list[str]) -> tuple[float]:
    """Run a command and return the CPU time of it and of the processes that it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*SOTTO, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,)


def cpu_of_tree(root: int) -> float:
    """Return the CPU time so far of a process and all its descendants that are alive (Linux)."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has just ended
            continue
        parents[int(path.parent.name)] = int(fields[1])
        seconds[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / TICKS
    family = {root}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(seconds.get(process, 0.0) for process in family)


def first_step(corpus: Path, folder: Path) -> tuple[float, float]:
    """Train in a new folder; return wall and CPU seconds until the first central step begins."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(corpus, run / "corpus")
    began = time.perf_counter()
    command = [*SOTTO, "train", "federated", "quick", "--run", str(run)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    metrics = run / "metrics.jsonl"  # its first line states the guarantee and is written just before the first step
    while not (metrics.exists() and metrics.stat().st_size):
        if process.poll() is not None:
            raise SystemExit(process.communicate()[1].decode())
        time.sleep(0.005)
    result = time.perf_counter() - began, cpu_of_tree(process.pid)
    process.terminate()
    process.communicate()
    return result


def medians(measure: Callable[[], tuple[float, ...]], repeat: int) -> tuple[float, ...]:
    """Measure several times, after once to fill the file cache."""
    measure()
    return tuple(map(statistics.median, zip(*(measure() for _ in range(repeat)), strict=True)))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    report: dict[str, float] = {}
    for command in COMMANDS:
        measure = functools.partial(cpu_seconds, command.split())
        (report[f"CPU seconds of sotto {command}"],) = medians(measure, arguments.repeat)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare = [*SOTTO, "data", "prepare", "preset", "quick", "--out", str(folder / "corpus")]
        subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)
        wall, cpu = medians(functools.partial(first_step, folder / "corpus", folder), arguments.repeat)
    report["seconds to the first step of train federated quick"] = wall
    report["CPU seconds to that step, all processes"] = cpu
    print_report(report, as_json=arguments.json)


if __name__ == "__main__":
    main()
