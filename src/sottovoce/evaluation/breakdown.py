"""The figures of an evaluation: the corpus, its speakers, its groups."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from sottovoce.data.store import Store
from sottovoce.evaluation.evaluate import Heard, score

Item = TypeVar("Item")

# Columns of an index that tell groups of people or conditions apart, where a corpus has them.
GROUP_COLUMNS = ("sex", "gender", "age", "accent", "accents", "domain", "language", "subset")
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_WORST = 5


def report(store: Store, heard: Sequence[Heard], columns: Sequence[str]) -> dict[str, Any]:
    """Return the figures as one document."""
    index = store.index(list(dict.fromkeys(["speaker", *columns]))).take([one.row for one in heard])
    speakers = index["speaker"].to_pylist()
    by_speaker = _grouped(speakers, heard)
    rates = {speaker: score(mine).wer for speaker, mine in by_speaker.items()}
    worst = sorted(rates, key=lambda speaker: (-rates[speaker], speaker))[:_WORST]
    values = np.array(list(rates.values()))
    return {
        "store": str(store.path),
        **asdict(score(heard)),
        "speakers": {
            "count": len(rates),
            "mean_wer": float(values.mean()),
            "wer_quantiles": {f"{quantile:g}": float(np.quantile(values, quantile)) for quantile in _QUANTILES},
            "wer": rates,
            "worst": [{"speaker": speaker, **asdict(score(by_speaker[speaker]))} for speaker in worst],
        },
        "groups": {column: _group_figures(index[column].to_pylist(), speakers, heard) for column in columns},
    }


def default_columns(store: Store) -> list[str]:
    """Return the columns of a store that tell groups apart."""
    there = store.index_columns()
    return [column for column in GROUP_COLUMNS if column in there]


def _group_figures(values: Sequence[Any], speakers: Sequence[str], heard: Sequence[Heard]) -> dict[str, dict[str, Any]]:
    people = _grouped(values, speakers)
    return {
        str(value): asdict(score(mine)) | {"speakers": len(set(people[value]))}
        for value, mine in _grouped(values, heard).items()
    }


def _grouped(keys: Sequence[Any], items: Sequence[Item]) -> dict[Any, list[Item]]:
    groups: dict[Any, list[Item]] = defaultdict(list)
    for key, item in zip(keys, items, strict=True):
        groups[key].append(item)
    return dict(groups)
