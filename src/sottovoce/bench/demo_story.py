"""The demo: a benchmark on synthetic voices, and its results in words that follow from its own intervals.

Each sentence is about one effect of the paper, whether or not the demo shows it: domain shift, which is a difference
between two sets of the row `seed`, and the effects of the benchmark. The words are those of `verdicts.py`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from sottovoce.bench.effects import Effect
from sottovoce.bench.plan import BenchRun
from sottovoce.bench.preset import load_bench
from sottovoce.bench.result_tables import effect_paper, effect_value, percent, points
from sottovoce.bench.results import RowResult
from sottovoce.bench.verdicts import effect_results, in_words
from sottovoce.evaluation.intervals import estimate

DEMO = "demo"
_OWN_DOMAIN = "clean/test"  # the part that is like the seed model's training data
_OPTIONAL = "uniform"  # the row that is trained on request only
_ON = "test"


def demo_run(*, out: Path, seeds: int = 1, uniform: bool = False) -> BenchRun:
    """Return the benchmark that the demo runs; `uniform` adds the row with that kind of clipping."""
    rows = [row.name for row in load_bench(DEMO).size("mini").rows if uniform or row.name != _OPTIONAL]
    return BenchRun.choose(DEMO, rows=rows, seeds=seeds, out=out)


def story(results: Sequence[RowResult], effects: Iterable[Effect], own_domain: str = _OWN_DOMAIN) -> list[str]:
    """Return a sentence for every effect whose rows have run."""
    seed = next((result for result in results if result.row.name == "seed"), None)
    told = [] if seed is None else _shift(seed, own_domain)
    for one in effect_results(effects, results):
        if one.ours is not None:
            paper = "" if one.paper is None else f", the paper's {effect_paper(one)}"
            told.append(f"{_sentence_case(one.effect.name)} ({one.words}): ours {effect_value(one)}{paper}.")
    return told


def _shift(seed: RowResult, own_domain: str) -> list[str]:
    users, home = seed.wer.get(_ON), seed.wer.get(own_domain)
    difference = estimate([(1.0, seed.counts(_ON)), (-1.0, seed.counts(own_domain))])
    if users is None or home is None or difference is None:
        return []
    return [
        f"A seed model is poor on speech from another domain ({in_words(difference)}): {percent(users)} % WER on the "
        f"users' speech and {percent(home)} % on speech like its own, {points(difference)}."
    ]


def _sentence_case(name: str) -> str:
    return f"{name[:1].upper()}{name[1:]}"
