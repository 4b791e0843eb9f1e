"""The figures of an evaluation: over all utterances, for each speaker, by group. Nothing here loads torch."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from sottovoce.data.store import Store
from sottovoce.evaluation.grouping import Grouping
from sottovoce.evaluation.intervals import Counts, wer_estimate
from sottovoce.evaluation.scores import Breakdown, GroupScores, SpeakerScores, SpeakerSummary
from sottovoce.evaluation.utterances import ScoredUtterance, score

Key = TypeVar("Key")
Item = TypeVar("Item")
Interval = tuple[float, float]

_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_WORST = 5


def break_down(store: Store, utterances: Sequence[ScoredUtterance], by: Sequence[Grouping]) -> Breakdown:
    """Return the figures of scored utterances, also by columns of the store's index."""
    speakers, labels = _labelled(store, utterances, by)
    groups = {column: _group_scores(names, order, speakers, utterances) for column, (names, order) in labels.items()}
    return Breakdown(**dict(score(utterances)), speakers=_summary(speakers, utterances), groups=groups)


@dataclass(frozen=True)
class WerIntervals:
    """95 % intervals of WER by a bootstrap over speakers; None where there is a single speaker."""

    total: Interval | None
    groups: Mapping[str, Mapping[str, Interval | None]]  # by column, then by group


def wer_intervals(store: Store, utterances: Sequence[ScoredUtterance], by: Sequence[Grouping]) -> WerIntervals:
    """Return the intervals of the figures of `break_down`."""
    speakers, labels = _labelled(store, utterances, by)
    groups: dict[str, dict[str, Interval | None]] = {}
    for column, (names, order) in labels.items():
        people, said = _grouped(names, speakers), _grouped(names, utterances)
        groups[column] = {name: wer_interval(speaker_counts(people[name], said[name])) for name in order}
    return WerIntervals(wer_interval(speaker_counts(speakers, utterances)), groups)


def wer_interval(counts: Counts) -> Interval | None:
    """Return the 95 % interval of a WER, as shares; None where there is a single speaker."""
    estimate = wer_estimate({0: counts})
    interval = None if estimate is None else estimate.interval
    return None if interval is None else (max(interval[0], 0.0) / 100, interval[1] / 100)


def speaker_counts(speakers: Sequence[str], utterances: Sequence[ScoredUtterance]) -> Counts:
    """Return the word errors by speaker, in the order in which they appear."""
    grouped = _grouped(speakers, utterances).values()
    words, edits = (
        np.array([sum(getattr(one, name) for one in own) for own in grouped], np.int64)
        for name in ("words", "word_edits")
    )
    return Counts("evaluation", words, edits)


def speakers_of(store: Store, utterances: Sequence[ScoredUtterance]) -> list[str]:
    """Return the speaker of every utterance."""
    names: list[str] = store.index(["speaker"]).take([one.row for one in utterances])["speaker"].to_pylist()
    return names


def _labelled(
    store: Store, utterances: Sequence[ScoredUtterance], by: Sequence[Grouping]
) -> tuple[list[str], dict[str, tuple[list[str], list[str]]]]:
    """Return the speaker of every utterance and, by column, its group and all groups in order."""
    columns = list(dict.fromkeys(["speaker", *(grouping.column for grouping in by)]))
    index = store.index(columns).take([utterance.row for utterance in utterances])
    labels = {grouping.column: grouping.labels(index[grouping.column].to_pylist()) for grouping in by}
    return index["speaker"].to_pylist(), labels


def _summary(speakers: Sequence[str], utterances: Sequence[ScoredUtterance]) -> SpeakerSummary:
    grouped = _grouped(speakers, utterances)
    by_speaker = {speaker: score(own) for speaker, own in grouped.items()}
    worst = sorted(by_speaker, key=lambda speaker: (-by_speaker[speaker].wer, speaker))[:_WORST]
    rates = {speaker: scores.wer for speaker, scores in by_speaker.items()}
    values = np.array(list(rates.values()))
    return SpeakerSummary(
        count=len(rates),
        mean_wer=float(values.mean()),
        wer_quantiles={f"{quantile:g}": float(np.quantile(values, quantile)) for quantile in _QUANTILES},
        wer=rates,
        word_edits={speaker: sum(one.word_edits for one in own) for speaker, own in grouped.items()},
        words={speaker: scores.words for speaker, scores in by_speaker.items()},
        worst=[SpeakerScores(speaker=speaker, **dict(by_speaker[speaker])) for speaker in worst],
    )


def _group_scores(
    names: Sequence[str], order: Sequence[str], speakers: Sequence[str], utterances: Sequence[ScoredUtterance]
) -> dict[str, GroupScores]:
    people, own = _grouped(names, speakers), _grouped(names, utterances)
    return {name: GroupScores(**dict(score(own[name])), speakers=len(set(people[name]))) for name in order}


def _grouped(keys: Sequence[Key], items: Sequence[Item]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = defaultdict(list)
    for key, item in zip(keys, items, strict=True):
        groups[key].append(item)
    return dict(groups)
