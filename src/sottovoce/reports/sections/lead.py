"""The page in words: a first paragraph with the main results, and what else there is to say."""

from collections.abc import Sequence

from sottovoce.privacy.epsilons import NOBODY_PROTECTED, PROTECTS_NOBODY
from sottovoce.privacy.population_notes import population_notes
from sottovoce.privacy.privacy_options import Participation
from sottovoce.reports.drawing.numbers import count, epsilon, number, percent
from sottovoce.reports.reading.layers import FAR_BELOW, delta_norms, imbalance_of
from sottovoce.reports.reading.records import SETS, RunRecord
from sottovoce.reports.reading.run_groups import RunGroup, all_runs, benches_of, headline_set, sets_of


def opening_sentences(groups: Sequence[RunGroup]) -> list[str]:
    """Return the page's first paragraph, sentence by sentence, as plain text: what ran, how well, how privately."""
    runs = all_runs(groups)
    first = [_single_run(runs[0])] if len(runs) == 1 else [_overview(groups, runs), *_range_of_wers(groups)]
    return [*first, *_privacy(runs)]


def further_sentences(groups: Sequence[RunGroup]) -> list[str]:
    """Return what else to say in words, as plain text."""
    runs = all_runs(groups)
    return [*_trained_parameters(runs), *_populations(runs), *_imbalance(groups)]


def _single_run(run: RunRecord) -> str:
    wers = [f"{percent(wer)} % on {name}" for name in SETS if (wer := run.wer(name)) is not None]
    result = f"Its WER is {' and '.join(wers)}." if wers else "It was not evaluated."
    steps = f"{run.steps_done:,}" if run.finished else f"so far {run.steps_done:,} of {run.steps_planned:,}"
    if run.kind == "central":
        return f"A model trained centrally, on all data together: {steps} steps. {result}"
    sizes = f"with about {count(run.cohort_size)} of {count(run.population)} users in each"
    return f"A model trained by federated learning: {steps} central steps, {sizes}. {_clipping(run)} {result}"


def _clipping(run: RunRecord) -> str:
    clipping, norm = run.setting("privacy.clipping") or "none", number(run.setting("privacy.clip_norm"))
    if clipping == "none":
        return "Users' deltas were not clipped."
    how = "as a whole" if clipping == "global" else f"layer by layer ({clipping})"
    return f"Users' deltas were clipped {how} to C = {norm}."


def _overview(groups: Sequence[RunGroup], runs: Sequence[RunRecord]) -> str:
    federated = sum(run.kind == "federated" for run in runs)
    kinds = [f"{federated} federated"] if federated else []
    kinds += [f"{len(runs) - federated} central"] if federated < len(runs) else []
    rows = f" in {len(groups)} rows" if len(groups) < len(runs) else ""
    unfinished = sum(not run.finished for run in runs)
    still = f" Unfinished: {unfinished}." if unfinished else ""
    benches = [bench for bench in benches_of(groups) if bench is not None]
    of = f" of {len(benches)} benchmarks" if len(benches) > 1 else ""
    return f"{len(runs)} runs{of}{rows}: {' and '.join(kinds)}.{still}"


def _range_of_wers(groups: Sequence[RunGroup]) -> list[str]:
    set_name = headline_set(groups)
    sets = sets_of(groups, set_name)
    if len(sets) > 1:
        return [f"They were evaluated on {len(sets)} different {set_name} sets: compare WERs within one set."]
    means = {group.name: sum(wers) / len(wers) for group in groups if (wers := group.wers(set_name))}
    if len(means) < 2:
        return []
    best, worst = (pick(means, key=lambda name: means[name]) for pick in (min, max))
    text = (
        f"The WER on {set_name} ranges from {percent(means[best])} % ({best}) to {percent(means[worst])} % ({worst})."
    )
    private = [group.name for group in groups if group.name in means and group.first.epsilons is not None]
    if private and len(private) < len(means):
        name = min(private, key=lambda name: means[name])
        text += f" With a privacy guarantee, the lowest is {percent(means[name])} % ({name})."
    return [text]


def _trained_parameters(runs: Sequence[RunRecord]) -> list[str]:
    """Return a sentence for every selection of parameters that some runs trained; nothing where all were trained."""
    names: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        if run.trainable is not None:
            names.setdefault(run.trainable, []).append(run.name)
    return [
        f"Only these parameters were trained{'' if len(runs) == 1 else f' in {_listed(own)}'}: {', '.join(trainable)}."
        for trainable, own in names.items()
    ]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _privacy(runs: Sequence[RunRecord]) -> list[str]:
    federated = [run for run in runs if run.kind == "federated"]
    private = [run for run in federated if run.epsilons is not None]
    if not federated:
        return []
    if not private:
        return ["There is no privacy guarantee, because noise or clipping is missing."]
    spent = [run.tightest_epsilon or 0.0 for run in private]
    low, high = epsilon(min(spent)), epsilon(max(spent))
    deltas = _listed(list(dict.fromkeys(number(run.setting("privacy.target_delta")) for run in private)))
    ends = f"is epsilon = {low}" if low == high else f"lies between epsilon = {low} and {high}"
    text = f"The privacy spent {ends} at delta = {deltas}, for the cohort size and population of the training."
    if min(spent) > PROTECTS_NOBODY:
        text += f" {NOBODY_PROTECTED}"
    return [text]


def _populations(runs: Sequence[RunRecord]) -> list[str]:
    """Return what the simulation did where a store has another number of users than K."""
    notes: dict[str, list[str]] = {}
    for run in runs:
        if run.users is not None:
            participation = Participation.model_validate(run.setting("participation"))
            for note in population_notes(participation, run.users):
                notes.setdefault(note, []).append(run.name)
    return [note if len(runs) == 1 else f"{_listed(own)}: {note}" for note, own in notes.items()]


def _times(ratio: float) -> str:
    """Return a ratio in a sentence: 2.47, 24.7, 2,468."""
    return f"{ratio:,.0f}" if 100 <= ratio < 1e6 else number(ratio)


def _imbalance(groups: Sequence[RunGroup]) -> list[str]:
    """Return a sentence about the first group whose imbalance is known."""
    for group in groups:
        imbalance = imbalance_of(delta_norms(group.first), group.first.layer_sizes)
        if imbalance is not None and imbalance.least:
            where = "" if len(groups) == 1 else f" ({group.name})"
            return [
                f"Relative to its size, the layer that moves most in users' deltas moves "
                f"{_times(imbalance.most / imbalance.least)} times as far as the layer that moves least{where}. "
                f"{_far_below(imbalance.share_far_below)}"
            ]
    return []


def _far_below(share: float) -> str:
    if not share:
        return f"No layer has less than {FAR_BELOW:g} of an even share, so per-layer clipping may help little."
    return (
        f"{number(100 * share, 2)} % of the parameters are in layers with less than {FAR_BELOW:g} of an even share. "
        "The higher this percentage, the more per-layer clipping may help."
    )
