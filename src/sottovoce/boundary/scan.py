"""The last check before an export gets its place: no private key, no path and no speaker's name in any file.

The list of exported files is the protection; this search is a second one, against mistakes in the first. It reads all
keys and texts of the files, and the header of the model. It cannot see what is encoded: `sotto privacy neighbours` can.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open

from sottovoce.errors import PrivacyError, SottoError
from sottovoce.privacy.run_files import PUBLIC_METRICS
from sottovoce.runs.folder import Run
from sottovoce.runs.metrics_log import MetricsLog

_PRIVATE_KEYS = {"not_private", "sources", "data", "elapsed_seconds", "dev_loss", "dev_wer", "dev_cer"}
_SHORTEST_NAME = 3  # shorter names are found everywhere: letters are tokens of the model
_WORD = re.compile(r"[^\s\"'`()|,;:=*]+")
_ABSOLUTE_PATH = re.compile(r"(?:^|[\s\"'=(])(?:/|~/|[A-Za-z]:\\)[\w.-]+[/\\]?")


def require_nothing_private(folder: Path, run: Run) -> int | None:
    """Raise PrivacyError where a file of the folder holds something private of the run.

    Return how many speakers' names were looked for; None where the data is no longer there.
    """
    keys = _PRIVATE_KEYS | {key for line in MetricsLog(run.path).lines() for key in line if key not in PUBLIC_METRICS}
    names, paths = _speakers(run), _paths(run)
    for file in sorted(folder.iterdir()):
        for kind, text in _texts(file):
            if kind == "key" and text in keys:
                raise _found(f"the private key {text!r}", file)
            if (path := _path_in(text, paths)) is not None:
                raise _found(f"the path {path!r}", file)
            if names is not None and kind != "prose" and (name := _name_in(text, names)) is not None:
                raise _found(f"the speaker's name {name!r}", file)
    return None if names is None else len(names)


def _found(what: str, file: Path) -> PrivacyError:
    return PrivacyError(f"{file.name} would hold {what}. Nothing was published.")


def _texts(file: Path) -> Iterator[tuple[str, str]]:
    """Yield all keys and texts of a file; prose is made from files that are searched themselves."""
    if file.suffix == ".safetensors":
        with safe_open(file, "np") as model:
            for key, value in (model.metadata() or {}).items():
                yield "key", key
                yield from _of_document(json.loads(value))
            yield from (("key", name) for name in model.keys())  # noqa: SIM118 - not a dictionary
    elif file.suffix in (".json", ".jsonl"):
        content = file.read_text(encoding="utf-8")
        for document in [content] if file.suffix == ".json" else content.splitlines():
            yield from _of_document(json.loads(document))
    else:
        yield "prose", file.read_text(encoding="utf-8")


def _of_document(document: Any) -> Iterator[tuple[str, str]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield "key", key
            yield from _of_document(value)
    elif isinstance(document, list):
        for value in document:
            yield from _of_document(value)
    elif isinstance(document, str):
        yield "text", document


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
    given = [text for kind, text in _of_document(run.config.config) if kind == "text" and "/" in text[:-1]]
    return {path.rstrip("/") for path in (*given, str(run.path.absolute())) if not re.fullmatch(r"\d+/\d+", path)}


def _path_in(text: str, paths: set[str]) -> str | None:
    found = next((path for path in paths if path in text), None)
    absolute = _ABSOLUTE_PATH.search(text)
    return found if found is not None or absolute is None else absolute.group().strip()
