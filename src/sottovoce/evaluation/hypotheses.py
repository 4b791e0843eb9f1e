"""Every recognised text beside its reference, as a table for people and programs: TSV or JSON lines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sottovoce.data.store import Store
from sottovoce.errors import ConfigError
from sottovoce.evaluation.utterances import ScoredUtterance, word_errors
from sottovoce.files import as_cell, written_whole

_COUNTS = ("words", "substitutions", "deletions", "insertions", "loss")
_PARTS = "parts"
_ENDINGS = (".tsv", ".jsonl")


def require_hypotheses_file(path: Path) -> None:
    """Raise ConfigError where the name of a file does not say its format, or its folder does not exist."""
    if path.suffix not in _ENDINGS:
        raise ConfigError(f"--out {path} should end in {' or '.join(_ENDINGS)}. Name another file.")
    if not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no folder {path.parent}. Make it, or name another file.")


def hypothesis_rows(store: Store, utterances: Sequence[ScoredUtterance]) -> Iterator[dict[str, Any]]:
    """Yield a row for every utterance: its id, speaker and texts, its errors in words, and the ids of joined parts."""
    columns = ["utterance", "speaker", "seconds", *([_PARTS] if _PARTS in store.index_columns() else [])]
    index = store.index(columns).take([one.row for one in utterances]).to_pylist()
    for known, one in zip(index, utterances, strict=True):
        yield {
            **{name: known[name] for name in ("utterance", "speaker", "seconds")},
            "reference": one.reference,
            "hypothesis": one.hypothesis,
            **{name: getattr(one, name) for name in _COUNTS},
            _PARTS: known.get(_PARTS) or [],
        }


def write_hypotheses(path: Path, rows: Iterator[Mapping[str, Any]]) -> int:
    """Write rows whole, for their owner only, in the format that the file's name says; return how many there were.

    JSON lines also have the wrong words of each row, in order. In TSV, parts are separated by spaces, and a text that a
    spreadsheet would compute has a quote before it.
    """
    require_hypotheses_file(path)
    count = 0
    with written_whole(path, private=True) as file:
        for count, row in enumerate(rows, start=1):
            if path.suffix == ".jsonl":
                document = {**row, "errors": word_errors(row["reference"], row["hypothesis"])}
                file.write((json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n").encode())
                continue
            if count == 1:
                file.write(("\t".join(row) + "\n").encode())
            file.write(("\t".join(map(_cell, row.values())) + "\n").encode())
    return count


def _cell(value: Any) -> str:
    """Return a value as a field of TSV, which has no quoting: white space becomes single spaces, a formula a text."""
    if value is None:
        return ""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return str(as_cell(" ".join(text.split())))
