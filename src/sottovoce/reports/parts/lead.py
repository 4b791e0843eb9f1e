"""What a page shows, in a few words with its own numbers."""

from collections.abc import Sequence

from sottovoce.reports.drawing.numbers import PROTECTS_NOBODY, count, epsilon, number, percent
from sottovoce.reports.reading.groups import Group
from sottovoce.reports.reading.layers import FAR_BELOW, delta_norms, imbalance_of
from sottovoce.reports.reading.records import Record, Which, tightest

_SETS: tuple[Which, ...] = ("dev", "test")


def sentences(groups: Sequence[Group]) -> list[str]:
    """Return some sentences, as plain text."""
    runs = [run for group in groups for run in group.runs]
    told = [_one(runs[0])] if len(runs) == 1 else [_several(groups, runs), *_best(groups)]
    told += _privacy(runs)
    told += _balance(groups)
    told += _scales(runs)
    return told


def _one(run: Record) -> str:
    steps = f"{run.done:,} steps" if run.finished else f"{run.done:,} of {run.planned:,} steps so far"
    wers = [f"{percent(wer)} % on {name}" for name in _SETS if (wer := run.wer(name)) is not None]
    found = f" Its model has a WER of {' and '.join(wers)}." if wers else " It was not evaluated."
    if run.kind == "central":
        return f"A model trained on all data together, in {steps}.{found}"
    clipping = run.setting("privacy.clipping") or "none"
    clipped = (
        "without clipping"
        if clipping == "none"
        else f"{clipping} clipping to C = {number(run.setting('privacy.clip_norm'))}"
    )
    sizes = f"about {count(run.cohort_size)} of {count(run.population)} users in each"
    return f"A model trained on users who keep their audio, in {steps} with {sizes}, {clipped}.{found}"


def _several(groups: Sequence[Group], runs: Sequence[Record]) -> str:
    federated = sum(run.kind == "federated" for run in runs)
    kinds = [f"{federated} federated"] if federated else []
    kinds += [f"{len(runs) - federated} central"] if federated < len(runs) else []
    rows = f" in {len(groups)} rows" if len(groups) < len(runs) else ""
    unfinished = sum(not run.finished for run in runs)
    still = f" {unfinished} of them unfinished." if unfinished else ""
    return f"{len(runs)} runs{rows}: {' and '.join(kinds)}.{still}"


def _best(groups: Sequence[Group]) -> list[str]:
    which: Which = "test" if all(group.wers("test") for group in groups) else "dev"
    ranked = {group.name: sum(wers) / len(wers) for group in groups if (wers := group.wers(which))}
    if len(ranked) < 2:
        return []
    best, worst = (pick(ranked, key=lambda name: ranked[name]) for pick in (min, max))
    told = f"On {which}, WER lies between {percent(ranked[best])} % ({best}) and {percent(ranked[worst])} % ({worst})."
    private = {group.name: ranked[group.name] for group in groups if group.name in ranked and _guaranteed(group.first)}
    if private and len(private) < len(ranked):
        name = min(private, key=lambda one: private[one])
        told += f" The best with a guarantee is {name}, {percent(private[name])} %."
    return [told]


def _guaranteed(run: Record) -> bool:
    return run.epsilon("rdp") is not None


def _privacy(runs: Sequence[Record]) -> list[str]:
    federated = [run for run in runs if run.kind == "federated"]
    spent = [found for run in federated if (found := tightest(run)) is not None]
    if not federated:
        return []
    if not spent:
        return ["None of it has a privacy guarantee: noise or clipping is missing."]
    low, high = epsilon(min(spent)), epsilon(max(spent))
    delta = number(federated[0].setting("privacy.target_delta"))
    told = f"Epsilon spent is {low}" if low == high else f"Epsilon spent lies between {low} and {high}"
    told += f", at delta {delta} and at the sizes that were trained."
    if min(spent) > PROTECTS_NOBODY:
        told += " That protects nobody: it is what so little noise is worth in so small a population."
    return [told]


def _balance(groups: Sequence[Group]) -> list[str]:
    for group in groups:
        found = imbalance_of(delta_norms(group.first), group.first.layer_sizes)
        if found is not None and found.least:
            whose = "" if len(groups) == 1 else f" ({group.name})"
            factor, drowned = f"{found.most / found.least:,.0f}", f"{100 * found.drowned:.0f} %"
            return [
                f"For their sizes, the layers of users' deltas differ by a factor of up to {factor}{whose}, and "
                f"{drowned} of the parameters lie in layers with less than {FAR_BELOW:g} of an even share: the more, "
                "the more may be won by clipping layer by layer."
            ]
    return []


def _scales(runs: Sequence[Record]) -> list[str]:
    found = sorted({float(scale) for run in runs if (scale := run.setting("model.norm_scale") or 1) != 1})
    if not found:
        return []
    scales = " and ".join(number(scale) for scale in found)
    return [
        f"Set by hand (model.norm_scale): LayerNorms started at {scales} of their usual scale. It is the same "
        "function, but their share of users' deltas is larger for it."
    ]
