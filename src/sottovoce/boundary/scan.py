"""The last check before an export gets its place: no private key, no path and no speaker's name in any file.

The list of exported files is the protection; this search is a second one, against mistakes in the first. It reads all
keys and texts of the files, and the header of the model. It cannot see what is encoded: `sotto privacy neighbours` can.

Speakers' names are not looked for where the configuration alone decides what is written (`configured_words.py`), nor in
the statement and the line with the guarantee: sentences that are made from the ledger's header, which is searched.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open

from sottovoce.boundary.configured_words import configured_words
from sottovoce.errors import PrivacyError, SottoError
from sottovoce.privacy.run_files import METRICS_FILE, PUBLIC_METRICS
from sottovoce.reading import parse_json
from sottovoce.runs.folder import Run
from sottovoce.runs.metrics_log import MetricsLog

_PRIVATE_KEYS = {"not_private", "sources", "data", "elapsed_seconds", "dev_loss", "dev_wer", "dev_cer"}
_SHORTEST_NAME = 3  # shorter names are found everywhere: letters are tokens of the model
_WORD = re.compile(r"[^\s\"'`()|,;:=*]+")
_ABSOLUTE_PATH = re.compile(r"(?:^|[\s\"'=(])(?:/|~/|[A-Za-z]:\\)[\w.-]+[/\\]?")


class _Text(NamedTuple):
    """A piece of text in an exported file."""

    text: str
    is_key: bool = False
    may_name: bool = True  # whether a speaker's name in it would come from the data


def require_nothing_private(folder: Path, run: Run) -> int | None:
    """Raise PrivacyError where a file of the folder holds something private of the run.

    Return how many speakers' names were looked for; None where the data is no longer there.
    """
    keys = _PRIVATE_KEYS | {key for line in MetricsLog(run.path).lines() for key in line if key not in PUBLIC_METRICS}
    names, paths, configured = _speakers(run), _paths(run), configured_words(run)
    for file in sorted(folder.iterdir()):
        for one in _texts(file, configured.get(file.name)):
            if one.is_key and one.text in keys:
                raise _found(f"the private key {one.text!r}", file)
            if (path := _path_in(one.text, paths)) is not None:
                raise _found(f"the path {path!r}", file)
            if names is not None and one.may_name and (name := _name_in(one.text, names)) is not None:
                raise _found(f"the speaker's name {name!r}", file)
    return None if names is None else len(names)


def _found(what: str, file: Path) -> PrivacyError:
    return PrivacyError(f"{file.name} would hold {what}. Nothing was published.")


def _texts(file: Path, configured: Any) -> Iterator[_Text]:
    """Yield all keys and texts of a file; `configured` is what the configuration alone decides of it."""
    if file.suffix == ".safetensors":
        with safe_open(file, "np") as model:
            metadata = {key: parse_json(value) for key, value in (model.metadata() or {}).items()}
            yield from _of_document(metadata | dict.fromkeys(model.keys()), configured)
    elif file.suffix in (".json", ".jsonl"):
        content = file.read_text(encoding="utf-8")
        for text in [content] if file.suffix == ".json" else filter(None, content.split("\n")):
            document = parse_json(text)
            if file.name == METRICS_FILE and "guarantee" in document:
                yield _Text(str(document.pop("guarantee")), may_name=False)
            yield from _of_document(document, configured)
    else:
        yield _Text(file.read_text(encoding="utf-8"), may_name=False)


def _of_document(document: Any, configured: Any = None) -> Iterator[_Text]:
    """Yield the keys and texts of a document, side by side with those that the configuration alone decides."""
    if isinstance(document, dict):
        decided = configured if isinstance(configured, dict) else {}
        for key, value in document.items():
            yield _Text(key, is_key=True, may_name=key not in decided)
            yield from _of_document(value, decided.get(key))
    elif isinstance(document, list):
        places = configured if isinstance(configured, list) else []
        for value, decided in zip_longest(document, places[: len(document)]):
            yield from _of_document(value, decided)
    elif isinstance(document, str):
        yield _Text(document, may_name=document != configured)


def _speakers(run: Run) -> set[str] | None:
    """Return the names of all users, dev and test speakers; None where the data is no longer there."""
    names: set[str] = set()
    for role in ("train", "dev", "test"):
        selection = run.config.selection(role, run.path)
        if selection is not None:
            try:
                names |= set(selection.open().speakers)
            except SottoError:
                return None
    return {name for name in names if len(name) >= _SHORTEST_NAME}


def _name_in(text: str, names: set[str]) -> str | None:
    """Return a name that a text holds: as a word or, where it consists of several words or of digits, as a whole."""
    if text in names:
        return text
    for word in _WORD.findall(text):
        bare = word.strip("./-")
        if bare in names and not bare.isdigit():
            return str(bare)
    return next((name for name in names if " " in name and name in text), None)


def _paths(run: Run) -> set[str]:
    """Return the places of the run and its data, as they are written in its configuration."""
    given = [one.text for one in _of_document(run.config.config) if not one.is_key and "/" in one.text[:-1]]
    return {path.rstrip("/") for path in (*given, str(run.path.absolute())) if not re.fullmatch(r"\d+/\d+", path)}


def _path_in(text: str, paths: set[str]) -> str | None:
    found = next((path for path in paths if path in text), None)
    absolute = _ABSOLUTE_PATH.search(text)
    return found if found is not None or absolute is None else absolute.group().strip()
