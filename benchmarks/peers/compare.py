"""Sottovoce beside what a user would pick instead: the same federated work, in one run, as ratios with their spread.

    python benchmarks/peers/compare.py --json FIGURES [--page PAGE] [--items speech crowd] [--resume | --show]

All frameworks with one process are started, then those with two. They take their central steps in turn, beginning with
another one each time, so that a slow minute of the machine meets all of them; a ratio compares the same step. Every
step is a repetition. pfl and Flower are installed, pinned, into environments of their own below `build/peers`.

With --resume, items in the file are kept and only what is missing is measured; with --show nothing is measured.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from export import export
from items import ITEMS, Item
from measuring import Measured
from page import Figures, page
from runners import ROOT, RUNNERS, Outcome, Runner, Running


def main() -> None:
    """Measure, print and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", nargs="*", choices=list(ITEMS), default=list(ITEMS))
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "peers", help="environments, speech and logs")
    parser.add_argument("--json", type=Path, required=True, help="the figures, written after every item")
    parser.add_argument("--resume", action="store_true", help="go on with the figures in the file")
    parser.add_argument("--show", action="store_true", help="measure nothing; the page shows the figures in the file")
    parser.add_argument("--page", type=Path, help="the page to write, such as docs/performance.md")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))  # and its runners with it
    if arguments.show and not arguments.json.exists():
        raise SystemExit(f"There is no {arguments.json} to show.")
    figures = read_figures(arguments.json) if arguments.resume or arguments.show else {}
    missing = [] if arguments.show else [name for name in arguments.items if name not in figures]
    for runner in RUNNERS if missing else ():
        runner.python(arguments.build)
    for name in missing:
        figures[name] = compare(ITEMS[name], arguments.build)
        write_figures(figures, arguments.json)
    text = page(figures)
    print(text)
    if arguments.page is not None:
        arguments.page.write_text(text)


def compare(item: Item, build: Path) -> dict[Runner, Outcome]:
    """Let all frameworks do an item's work."""
    folder = build / "work" / item.name
    export(item, folder, os.cpu_count() or 1)
    outcomes: dict[Runner, Outcome] = {}
    for processes in (1, 2):
        outcomes |= in_turn(item, [runner for runner in RUNNERS if runner.processes == processes], build, folder)
    require_same_work(item, outcomes.values())
    return {runner: outcomes[runner] for runner in RUNNERS}


def in_turn(item: Item, runners: list[Runner], build: Path, folder: Path) -> dict[Runner, Outcome]:
    """Start the runners one after another, let them take their steps in turn, and return what they measured."""
    running: list[Running] = []
    try:
        for runner in reversed(runners):  # Flower first: Ray takes what it may use from what is free at its start
            running.append(Running(runner, build, folder))
            take(running[-1], item, 0)
        for step in range(1, item.steps + 1):
            first = step % len(running)
            for one in running[first:] + running[:first]:
                take(one, item, step)
        return {one.runner: one.end(item.steps) for one in running}
    finally:
        for one in running:
            one.kill()


def take(one: Running, item: Item, step: int) -> None:
    """Have a runner take a step, and say how long it took."""
    began = time.monotonic()
    one.take(step)
    seconds = time.monotonic() - began
    print(f"{item.name}, step {step} of {item.steps}: {one.runner.key} {seconds:.1f} s", file=sys.stderr)


def require_same_work(item: Item, outcomes: Iterable[Outcome]) -> None:
    """Raise where a framework trained on other audio or another number of parameters."""
    done = {(outcome.measured.frames, outcome.measured.users, outcome.measured.parameters) for outcome in outcomes}
    if len(done) > 1:
        raise SystemExit(f"{item.name}: the frameworks did not do the same work (frames, users, parameters): {done}")


def write_figures(figures: Figures, path: Path) -> None:
    """Write all figures as JSON, by item and runner."""
    rows = {
        name: {runner.key: asdict(outcome) for runner, outcome in outcomes.items()}
        for name, outcomes in figures.items()
    }
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(rows, indent=1) + "\n")
    new.replace(path)


def read_figures(path: Path) -> Figures:
    """Return the figures that `write_figures` wrote; none where there is no file."""
    rows = json.loads(path.read_text()) if path.exists() else {}
    if any(not isinstance(outcome, dict) for outcomes in rows.values() for outcome in outcomes.values()):
        raise SystemExit(f"{path} was written by another version of this script. Give --json another file.")
    return {name: {runner: _outcome(**outcomes[runner.key]) for runner in RUNNERS} for name, outcomes in rows.items()}


def _outcome(measured: dict[str, object], **rest: float) -> Outcome:
    return Outcome(Measured(**measured), **rest)


if __name__ == "__main__":
    main()
