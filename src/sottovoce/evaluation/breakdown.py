"""The figures of an evaluation: over all utterances, for each speaker, by group."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from sottovoce.data.population import Population
from sottovoce.data.store import Store
from sottovoce.errors import ConfigError
from sottovoce.evaluation.scores import Breakdown, GroupScores, SpeakerScores, SpeakerSummary
from sottovoce.evaluation.scoring import ScoredUtterance, score

Key = TypeVar("Key")
Item = TypeVar("Item")

# Columns of an index that tell groups of people or conditions apart, where a corpus has them.
GROUP_COLUMNS = ("sex", "gender", "age", "accent", "accents", "domain", "language", "subset")
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_WORST = 5


def break_down(store: Store, utterances: Sequence[ScoredUtterance], columns: Sequence[str]) -> Breakdown:
    """Return the figures of scored utterances; `columns` of the store's index are the groups."""
    index = store.index(list(dict.fromkeys(["speaker", *columns]))).take([utterance.row for utterance in utterances])
    speakers = index["speaker"].to_pylist()
    groups = {column: _group_scores(index[column].to_pylist(), speakers, utterances) for column in columns}
    return Breakdown(**dict(score(utterances)), speakers=_summary(speakers, utterances), groups=groups)


def group_columns(population: Population, wanted: Sequence[str] | None) -> list[str]:
    """Return the columns to break down by: the wanted ones, or by default those that tell groups apart.

    Raise ConfigError for a column that the store does not have, or that holds lists.
    """
    if wanted is None:
        return default_columns(population)
    store = population.store
    present = store.index_columns()
    for column in wanted:
        if column not in present:
            raise ConfigError(f"{store.path} has no column {column!r}. It has: {', '.join(present)}.")
        if pa.types.is_nested(store.index_schema().field(column).type):
            raise ConfigError(f"{column!r} holds lists, not single values. Choose another column.")
    return list(wanted)


def default_columns(population: Population) -> list[str]:
    """Return the columns that tell groups of a population apart.

    A column in which none of its utterances has a value is left out: others in the store brought it.
    """
    present = population.store.index_columns()
    index = population.store.index([column for column in GROUP_COLUMNS if column in present])
    own = index.take(population.all_rows())
    return [column for column in own.column_names if own[column].null_count < len(own)]


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
    values: Sequence[object], speakers: Sequence[str], utterances: Sequence[ScoredUtterance]
) -> dict[str, GroupScores]:
    people = _grouped(values, speakers)
    return {
        str(value): GroupScores(**dict(score(own)), speakers=len(set(people[value])))
        for value, own in _grouped(values, utterances).items()
    }


def _grouped(keys: Sequence[Key], items: Sequence[Item]) -> dict[Key, list[Item]]:
    groups: dict[Key, list[Item]] = defaultdict(list)
    for key, item in zip(keys, items, strict=True):
        groups[key].append(item)
    return dict(groups)
