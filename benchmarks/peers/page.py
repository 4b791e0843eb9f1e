"""The page of the comparison: docs/performance.md."""

import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from items import FRAMES_PER_SECOND, ITEMS, Item
from runners import HERE, OURS, RUNNERS, Outcome, Runner

Group = dict[Runner, Outcome]  # of those that took their steps in turn, ours first
Figures = dict[str, list[Group]]  # by item

TARGETS = (  # item, rival, how many times its pace ours should be
    ("speech", "pfl", 1.5),
    ("speech", "Flower", 3.0),
    ("identical", "bare loop", 0.97),
    ("identical", "pfl", 1.0),
    ("identical", "Flower", 3.0),
    ("crowd", "pfl", 2.0),
    ("crowd", "Flower", 3.0),
    ("large", "pfl", 1.2),
    ("large", "Flower", 10.0),
)
OUTSIDE = 0.04  # of a step: what may be outside forward and backward


def page(figures: Figures) -> str:
    """Return the page of all items."""
    shown = {name: figures[name] for name in ITEMS if name in figures}
    settings = "\n".join(f"- {runner.name}, {_processes(runner)}: {runner.about}." for runner in RUNNERS)
    return f"""# Speed beside other frameworks

`make bench-peers` writes this page. Everyone trains the same network on the same utterances in the same local batches;
the benchmark stops where the audio or the number of parameters differs. The frameworks take their central steps in
turn, and a ratio compares the same step under both. Numbers are medians over the steps, with the range.
A ratio above 1 means that Sottovoce is faster.

Machine: {_processor()}, {os.cpu_count()} cores, no GPU; PyTorch {version("torch").split("+")[0]}, one thread per \
process. Settings:

{settings}

The share of forward and backward is that of all processes' time. Memory is the largest sum over all processes of a
framework. A page of a file that several processes have in memory is divided among them, also where they belong to
frameworks that wait for their turn. The first step is counted from the start of the command.

## Targets

A target is reached where the median reaches it. The range shows how far single steps were from that.

| work | beside | processes | wanted | measured | |
|---|---|---|---|---|---|
{chr(10).join(_targets(shown))}

{chr(10).join(_section(ITEMS[name], groups) for name, groups in shown.items())}
{(HERE / "notes.md").read_text()}"""


def _targets(figures: Figures) -> Iterator[str]:
    """Yield the rows of the table of targets."""
    for name, rival, wanted in TARGETS:
        for group in figures.get(name, []):
            for runner, outcome in group.items():
                if runner.name == rival:
                    ratios = _ratios(_ours(group), outcome)
                    met = "reached" if statistics.median(ratios) >= wanted else "missed"
                    yield f"| {name} | {rival} | {runner.processes} | {wanted:g} | {_spread(ratios)} | {met} |"
    for name, groups in figures.items():
        for runner, outcome in _once(groups):
            if runner.name == OURS.name:
                outside = 1 - _learning(runner, outcome)
                met = "reached" if outside <= OUTSIDE else "missed"
                yield (
                    f"| {name} | outside forward and backward | {runner.processes} | at most {OUTSIDE:.0%} "
                    f"| {outside:.0%} | {met} |"
                )


def _section(item: Item, groups: list[Group]) -> str:
    """Return the table of an item in Markdown."""
    first = _ours(groups[0]).measured
    audio = first.frames / FRAMES_PER_SECOND / first.users
    lines = [
        f"## {item.name}: {item.about}",
        "",
        f"{first.parameters / 1e6:.2f}M parameters, cohorts of {item.cohort}, {item.local_steps} local "
        f"{'step' if item.local_steps == 1 else 'steps'}, batches of {item.batch_seconds:g} s; {audio:.2f} s of audio "
        f"for each user, in every framework. {len(first.steps)} central steps.",
        "",
        "| framework | processes | users/s | audio s/s | Sottovoce is faster by "
        "| forward and backward | GB | first step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for runner, outcome in _once(groups):
        measured = outcome.measured
        ours = next(_ours(group) for group in groups if outcome in group.values())
        lines.append(
            f"| {runner.name} | {runner.processes} | {_spread([item.cohort / seconds for seconds in measured.steps])} "
            f"| {measured.frames / FRAMES_PER_SECOND / sum(measured.steps):.0f} "
            f"| {'1' if outcome is ours else _spread(_ratios(ours, outcome))} "
            f"| {_learning(runner, outcome):.0%} | {outcome.memory:.2f} | {outcome.first_step:.1f} s |"
        )
    return "\n".join(lines) + "\n"


def _ours(group: Group) -> Outcome:
    """Return our own outcome, which comes first."""
    return next(iter(group.values()))


def _once(groups: list[Group]) -> Iterator[tuple[Runner, Outcome]]:
    """Yield every runner with its outcome; ours in two processes, which ran beside each rival, the first time only."""
    shown: set[Runner] = set()
    for group in groups:
        for runner, outcome in group.items():
            if runner not in shown:
                shown.add(runner)
                yield runner, outcome


def _ratios(ours: Outcome, rival: Outcome) -> list[float]:
    """Return how many times the rival's pace ours is, step by step."""
    return [its / own for own, its in zip(ours.measured.steps, rival.measured.steps, strict=True)]


def _learning(runner: Runner, outcome: Outcome) -> float:
    """Return the share of forward and backward passes in the time of all processes."""
    return outcome.measured.learning / sum(outcome.measured.steps) / runner.processes


def _spread(values: Sequence[float]) -> str:
    """Return the median and the range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _processes(runner: Runner) -> str:
    return "1 process" if runner.processes == 1 else f"{runner.processes} processes"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.processor())
