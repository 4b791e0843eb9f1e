"""Sottovoce beside what a user would pick instead: the same federated work, in one run, as ratios with their spread.

    python benchmarks/peers/compare.py --json FIGURES [--page PAGE] [--items speech crowd] [--resume | --show]

All frameworks with one process are started, then ours and each of the others with two. They take their central steps in
turn, beginning with another one each time, so that a slow minute of the machine meets all of them; a ratio compares the
same step. Every step is a repetition. pfl and Flower are installed, pinned, into environments of their own below
`build/peers`.

With --resume, items in the file are kept and only what is missing is measured; with --show nothing is measured.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from export import export
from items import ITEMS, Item
from measuring import Measured
from page import Figures, Group, page
from runners import GROUPS, ROOT, RUNNERS, Outcome, Runner, Running


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
    for stop in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(stop, lambda *_: sys.exit("Stopped. Run it again with --resume."))  # its runners end, too
    if arguments.show and not arguments.json.exists():
        raise SystemExit(f"There is no {arguments.json} to show.")
    figures = read_figures(arguments.json) if arguments.resume or arguments.show else {}
    missing = [] if arguments.show else [name for name in arguments.items if len(figures.get(name, ())) < len(GROUPS)]
    for runner in RUNNERS if missing else ():
        runner.python(arguments.build)
    for name in missing:
        folder = arguments.build / "work" / name
        export(ITEMS[name], folder, os.cpu_count() or 1)
        groups = figures.setdefault(name, [])
        for group in GROUPS[len(groups) :]:
            groups.append(in_turn(ITEMS[name], group, arguments.build, folder))
            require_same_work(ITEMS[name], groups)
            write_figures(figures, arguments.json)
    text = page(figures)
    print(text)
    if arguments.page is not None:
        arguments.page.write_text(text)


def in_turn(item: Item, runners: Sequence[Runner], build: Path, folder: Path) -> Group:
    """Start the runners one after another, let them take their steps in turn, and return what they measured."""
    running: list[Running] = []
    try:
        for runner in reversed(runners):  # Ray takes what it may use from what is free at its start
            running.append(Running(runner, build, folder))
            take(running[-1], item, 0)
        for step in range(1, item.steps + 1):
            first = step % len(running)
            for one in running[first:] + running[:first]:
                take(one, item, step)
        return {one.runner: one.end(item.steps) for one in reversed(running)}
    finally:
        for one in running:
            one.kill()


def take(one: Running, item: Item, step: int) -> None:
    """Have a runner take a step, and say how long it took."""
    began = time.monotonic()
    one.take(step)
    seconds = time.monotonic() - began
    print(f"{item.name}, step {step} of {item.steps}: {one.runner.key} {seconds:.1f} s", file=sys.stderr)


def require_same_work(item: Item, groups: Iterable[Group]) -> None:
    """Raise where a framework trained on other audio or another number of parameters."""
    measured = [outcome.measured for group in groups for outcome in group.values()]
    done = {(one.frames, one.users, one.parameters) for one in measured}
    if len(done) > 1:
        raise SystemExit(f"{item.name}: the frameworks did not do the same work (frames, users, parameters): {done}")


def write_figures(figures: Figures, path: Path) -> None:
    """Write all figures as JSON: by item, group and runner."""
    rows = {
        name: [{runner.key: asdict(outcome) for runner, outcome in group.items()} for group in groups]
        for name, groups in figures.items()
    }
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(rows, indent=1) + "\n")
    new.replace(path)


def read_figures(path: Path) -> Figures:
    """Return the figures that `write_figures` wrote; none where there is no file."""
    rows = json.loads(path.read_text()) if path.exists() else {}
    if any(not isinstance(groups, list) for groups in rows.values()):
        raise SystemExit(f"{path} was written by another version of this script. Give --json another file.")
    return {
        name: [
            {runner: _outcome(**group[runner.key]) for runner in runners}
            for runners, group in zip(GROUPS, groups, strict=False)
        ]
        for name, groups in rows.items()
    }


def _outcome(measured: dict[str, object], **rest: float) -> Outcome:
    return Outcome(Measured(**measured), **rest)


if __name__ == "__main__":
    main()
