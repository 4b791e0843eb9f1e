"""All benchmarks in one table: every effect with ours, its interval, the paper's and the verdict."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sottovoce.bench.document_folder import DocumentFolder
from sottovoce.bench.locks import Say, silent
from sottovoce.bench.plan import BenchRun
from sottovoce.bench.preset import SizeName, bench_names, load_bench
from sottovoce.bench.result_tables import effect_cells, effect_document, markdown_table
from sottovoce.bench.results import RowResult, collect
from sottovoce.bench.verdicts import RULE, EffectResult, Reproduced, Verdict, effect_results, reproduced

OVERVIEW_HEADER = ("benchmark", "result of the paper", "in the paper", "reproduced", "effects")
_AT: dict[SizeName, str] = {"mini": "in miniature", "paper": "at the paper's size"}
_CHANCE = (
    "Benchmarks share rows, so the same runs may decide several effects; and an interval of 95 % misses the truth once "
    "in twenty, so a few of so many verdicts are wrong by chance:"
)
HEADER = ("benchmark", "reproduced", "effect", "seeds", "ours", "on", "paper", "verdict")


@dataclass(frozen=True)
class BenchSummary:
    """The effects of one benchmark."""

    run: BenchRun
    results: Sequence[RowResult]
    effects: Sequence[EffectResult]

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return self.run.name

    @property
    def has_run(self) -> bool:
        """Whether a row of it has results."""
        return any(result.runs for result in self.results)

    @property
    def reproduced(self) -> Reproduced:
        """Whether it shows the paper's result, by `verdicts.RULE`."""
        return reproduced(self.effects)


def summarise(
    choose: Callable[[str], BenchRun], size: SizeName, documents: Path | None = None, say: Say = silent
) -> list[BenchSummary]:
    """Return all benchmarks that have this size: from runs, or from a folder of published documents.

    `choose` makes the run of a benchmark from its name: with which seeds, and in which folders. `say` is told which
    rows of documents are left out.
    """
    published = None if documents is None else DocumentFolder(documents)
    summaries = []
    for name in bench_names():
        if size in load_bench(name).sizes:
            run = choose(name)
            if published is None:
                summaries.append(_summary(run, collect(run)))
            else:
                results = published.results(run, say)
                summaries.append(_summary(replace(run, seeds=range(_most_seeds(results, len(run.seeds)))), results))
    return summaries


def _most_seeds(results: Iterable[RowResult], asked: int) -> int:
    """Return how many seeds the results have, at most as many as asked for; where nothing has run, one."""
    return min(asked, max((run.seed + 1 for result in results for run in result.runs), default=1))


def _summary(run: BenchRun, results: Sequence[RowResult]) -> BenchSummary:
    return BenchSummary(run, results, effect_results(run.size.effects, results))


def overview_table(summaries: Iterable[BenchSummary]) -> list[list[str]]:
    """Return the rows of a table with the columns of OVERVIEW_HEADER: one for each benchmark."""
    return [
        [one.name, one.run.bench.about, one.run.bench.source, one.reproduced, _tally(one.effects)] for one in summaries
    ]


def _tally(effects: Sequence[EffectResult]) -> str:
    """Return how many effects agree, disagree and have not run; of all others their verdict is that it cannot tell."""
    counted = Counter(effect.verdict for effect in effects)
    if counted["not run"] == len(effects):
        return "-"
    words: dict[Verdict, str] = {"disagrees": "disagree", "not run": "not run"}
    others = [f"{word}: {counted[verdict]}" for verdict, word in words.items() if counted[verdict]]
    return "; ".join([f"agree: {counted['agrees']} of {len(effects)}", *others])


def summary_table(summaries: Iterable[BenchSummary]) -> list[list[str]]:
    """Return the rows of a table with the columns of HEADER: one for each effect, or for a benchmark without one."""
    lines = []
    for one in summaries:
        lines += [[one.name, one.reproduced, *_effect_cells(effect)] for effect in one.effects] or [
            [one.name, one.reproduced, *["-"] * (len(HEADER) - 2)]
        ]
    return lines


def _effect_cells(effect: EffectResult) -> list[str]:
    seeds = "-" if effect.ours is None else str(len(effect.ours.seeds))
    return [effect.effect.name, seeds, *effect_cells(effect)]


def counts_line(summaries: Sequence[BenchSummary]) -> str:
    """Return how many benchmarks are reproduced: those of the paper, and apart from them those that go beyond it."""
    at = " and ".join(dict.fromkeys(_AT[one.run.size_name] for one in summaries))
    own = [one for one in summaries if not one.run.bench.in_paper]
    ours = f" Beyond the paper, {len(own)} benchmarks: {_counts(own)}." if own else ""
    of_paper = [one for one in summaries if one.run.bench.in_paper]
    return f"{len(of_paper)} benchmarks of the paper's results. Reproduced {at}: {_counts(of_paper)}.{ours}"


def _counts(summaries: Sequence[BenchSummary]) -> str:
    kinds: tuple[Reproduced, ...] = ("yes", "no", "cannot tell", "not run", "no effects stated")
    counted = Counter(one.reproduced for one in summaries)
    return ", ".join(f"{kind}: {counted[kind]}" for kind in kinds if counted[kind])


def summary_document(summaries: Iterable[BenchSummary]) -> dict[str, Any]:
    """Return everything as one JSON document."""
    return {
        "rule": RULE,
        "benchmarks": {
            one.name: {
                "about": one.run.bench.about,
                "reproduced": one.reproduced,
                "effects": [effect_document(effect) for effect in one.effects],
            }
            for one in summaries
        },
    }


def summary_section(summaries: Sequence[BenchSummary], command: str) -> str:
    """Return the section of a Markdown file that holds the table, and the command that made it."""
    ran = [one for one in summaries if one.has_run]
    parts = [
        f"{counts_line(summaries)} {RULE} `{command}`",
        markdown_table(OVERVIEW_HEADER, overview_table(summaries)),
        f"Every effect of the benchmarks that have run. {_CHANCE}" if ran else "",
        markdown_table(HEADER, summary_table(ran)) if ran else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
