"""Whether our results show the paper's effects: words that follow from intervals alone.

    agrees                     the whole 95 % interval lies in the paper's direction, over two seeds or more
    disagrees                  the whole interval lies against it, over two seeds or more
    cannot tell at this size   the interval holds both
    one seed: ...              what an interval over speakers alone says: other seeds could say otherwise

Where the paper finds no difference (`within`), the interval agrees inside the margin and disagrees outside it; where it
finds no gain (`least`), the interval agrees above that value and disagrees below it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sottovoce.bench.effects import Effect
from sottovoce.bench.layer_norms import norm_of
from sottovoce.bench.results import RowResult
from sottovoce.evaluation.intervals import MeanOverSeeds, estimate, over_seeds_alone

Verdict = Literal["agrees", "disagrees", "cannot tell", "one seed", "not run"]
Reproduced = Literal["yes", "no", "cannot tell", "not run", "no effects stated"]

_POSITIVE = (0.0, math.inf)
RULE = (
    "Reproduced: what the first effect of a benchmark says, which is the main finding there, the paper's or, beyond "
    "the paper, what was to be shown: yes, if it agrees; no, if it disagrees; else cannot tell. "
    "One seed decides nothing."
)


@dataclass(frozen=True)
class EffectResult:
    """One effect: ours with its interval, on the set that decides and on others; the paper's; the verdict."""

    effect: Effect
    ours: MeanOverSeeds | None  # None: not all rows have run
    elsewhere: dict[str, MeanOverSeeds]  # on dev or test, where that does not decide
    paper: float | None  # None: it does not print all numbers

    @property
    def verdict(self) -> Verdict:
        """The verdict as one word."""
        if self.ours is None:
            return "not run"
        return "one seed" if len(self.ours.seeds) == 1 else interval_says(self.ours, self.effect.range)

    @property
    def words(self) -> str:
        """The verdict as people read it."""
        return "not run" if self.ours is None else in_words(self.ours, self.effect.range)


def in_words(ours: MeanOverSeeds, wanted: tuple[float, float] = _POSITIVE) -> str:
    """Return the verdict of an interval as people read it."""
    said = interval_says(ours, wanted)
    if ours.interval is None and ours.scale == "times":
        return "one seed: cannot tell"
    if len(ours.seeds) > 1:
        return "cannot tell at this size" if said == "cannot tell" else said
    return f"one seed: {'cannot tell' if said == 'cannot tell' else said} over speakers alone"


def interval_says(
    ours: MeanOverSeeds, wanted: tuple[float, float] = _POSITIVE
) -> Literal["agrees", "disagrees", "cannot tell"]:
    """Return what an interval says of an effect whose values agree in a range, whether or not it covers seeds."""
    if ours.interval is None:
        return "cannot tell"
    (low, high), (least, most) = ours.interval, wanted
    if least < low and high < most:
        return "agrees"
    return "disagrees" if low > most or high < least else "cannot tell"


def effect_results(effects: Iterable[Effect], results: Sequence[RowResult]) -> list[EffectResult]:
    """Return every effect with its verdict; those of rows that are not among the results are not run."""
    rows = {result.row.name: result for result in results}
    return [
        _effect_result(effect, rows) if effect.contrast.keys() <= rows.keys() else EffectResult(effect, None, {}, None)
        for effect in effects
    ]


def _effect_result(effect: Effect, rows: dict[str, RowResult]) -> EffectResult:
    if effect.norms:
        return EffectResult(effect, over_seeds_alone(_ratios(effect, rows)), {}, None)
    printed = {name: rows[name].paper[effect.on] for name in effect.contrast if effect.on in rows[name].paper}
    estimates = {
        label: estimate([(weight, rows[name].counts(label)) for name, weight in effect.contrast.items()], effect.scale)
        for label in dict.fromkeys([effect.on, "dev", "test"])
    }
    ours = estimates.pop(effect.on)
    elsewhere = {label: found for label, found in estimates.items() if found is not None}
    return EffectResult(effect, ours, elsewhere, effect.of(printed))


def _ratios(effect: Effect, rows: dict[str, RowResult]) -> dict[int, float]:
    """Return the logarithm of an effect's ratio of norms by seed; seeds without one of its norms are left out."""
    by_row = {name: {run.seed: run.norms for run in rows[name].runs} for name in effect.contrast}
    ratios = {}
    for seed in sorted(set.intersection(*(set(runs) for runs in by_row.values()))):
        terms = [
            (weight * share, norm_of(by_row[name][seed], kind))
            for name, weight in effect.contrast.items()
            for kind, share in effect.norms.items()
        ]
        known = [(weight, norm) for weight, norm in terms if norm is not None]
        if len(known) == len(terms):
            ratios[seed] = math.fsum(weight * math.log(norm) for weight, norm in known)
    return ratios


def reproduced(effects: Sequence[EffectResult]) -> Reproduced:
    """Return whether a benchmark shows the paper's result, by RULE."""
    if not effects:
        return "no effects stated"
    words: dict[Verdict, Reproduced] = {"agrees": "yes", "disagrees": "no", "not run": "not run"}
    return words.get(effects[0].verdict, "cannot tell")
