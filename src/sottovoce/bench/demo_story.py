"""The demo: a benchmark on synthetic voices, and its results in words that follow from its own numbers.

Each sentence is about one effect of the paper, whether or not the demo shows it. They are about the rows `seed`,
`central`, `federated` (no noise), `global` and `dim` (the same noise, two kinds of clipping).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sottovoce.bench.plan import BenchRun
from sottovoce.bench.preset import load_bench
from sottovoce.bench.results import RowResult, Spread

DEMO = "demo"
_OWN_DOMAIN = "clean/test"  # the part that is like the seed model's training data
_OPTIONAL = "uniform"  # the row that is trained on request only
_ON = "test"
_LEAST = 0.02  # the smallest difference in WER that is worth mentioning: a test set has some thousand words


def demo_run(*, out: Path, seeds: int = 1, uniform: bool = False) -> BenchRun:
    """Return the benchmark that the demo runs; `uniform` adds the row with that kind of clipping."""
    rows = [row.name for row in load_bench(DEMO).size("mini").rows if uniform or row.name != _OPTIONAL]
    return BenchRun.choose(DEMO, rows=rows, seeds=seeds, out=out)


def story(results: Sequence[RowResult], own_domain: str = _OWN_DOMAIN) -> list[str]:
    """Return a sentence for every effect whose rows have run."""
    wer = {result.row.name: result.wer[_ON] for result in results if _ON in result.wer}
    at_home = next((result.wer.get(own_domain) for result in results if result.row.name == "seed"), None)
    sentences = [_shift(wer, at_home), _recovery(wer), _noise(wer)]
    return [sentence for sentence in sentences if sentence]


def _shift(wer: Mapping[str, Spread], at_home: Spread | None) -> str:
    if "seed" not in wer or at_home is None:
        return ""
    users, home = 100 * wer["seed"].mean, 100 * at_home.mean
    if users <= 1.5 * home:
        return (
            f"No domain shift is visible: the seed model has {home:.1f} % WER on speech like its own and {users:.1f} % "
            "on the users'."
        )
    return f"Domain shift: the seed model has {home:.1f} % WER on speech like its own and {users:.1f} % on the users'."


def _recovery(wer: Mapping[str, Spread]) -> str:
    if not {"seed", "central", "federated"} <= wer.keys():
        return ""
    seed, central, federated = (wer[name].mean for name in ("seed", "central", "federated"))
    if seed - central < _LEAST:
        gap = 100 * (seed - central)
        return f"Central training improves on the seed model by {gap:.1f} points: too little to recover."
    share = (seed - federated) / (seed - central)
    verdict = "most of" if share > 0.5 else "only a part of" if share > 0 else "none of"
    return (
        f"Federated learning without noise recovers {verdict} the gap to central training: {100 * share:.0f} % "
        f"({100 * seed:.1f} to {100 * federated:.1f}; central {100 * central:.1f})."
    )


def _noise(wer: Mapping[str, Spread]) -> str:
    if not {"federated", "global", "dim"} <= wer.keys():
        return ""
    base, whole, layers = wer["federated"], wer["global"], wer["dim"]
    points = f"{_points(whole, base)} points with global clipping and {_points(layers, base)} with dim"
    costs = f"clipping and noise cost {points}"
    if min(whole.mean, layers.mean) < base.mean:
        return f"The cost of noise is smaller than other differences between the runs: {costs}."
    differences = [global_wer - dim_wer for global_wer, dim_wer in zip(whole.values, layers.values, strict=True)]
    better = sum(difference > 0 for difference in differences)
    seeds = f"dim is better with {better} of {len(differences)} seeds"
    if len(differences) == 1:
        seeds = "one seed proves little: --seeds 3 shows the spread"
    mean = sum(differences) / len(differences)
    if abs(mean) < _LEAST or 0 < better < len(differences):
        return f"No clear difference between the clippings, unlike in the paper: {costs} ({seeds})."
    if len(differences) == 1:
        order = "the order of the paper" if mean > 0 else "not the order of the paper"
        return f"With this seed {costs}: {order} ({seeds})."
    if mean > 0:
        return f"As in the paper, {costs} ({seeds})."
    return f"Unlike in the paper, {costs}: clipping layer by layer does not help here ({seeds})."


def _points(spread: Spread, base: Spread) -> str:
    return f"{100 * (spread.mean - base.mean):.1f}"
