"""A file of JSON lines in a chain of hashes: every line holds the SHA-256 of the line before.

Promises: a line that was changed, removed or moved is found; a line is on disk before `append` returns; an incomplete
line at the end, left by a killed process, counts as not written.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sottovoce.errors import PrivacyError
from sottovoce.files import flush_to_disk, naming, open_shared
from sottovoce.reading import parse_json

START = "0" * 64  # what the first line names as the line before it


@dataclass(frozen=True)
class Mark:
    """A place in a chain: how many lines it has, and the hash of the last of them."""

    lines: int
    head: str


EMPTY = Mark(0, START)


def append(path: Path, mark: Mark, document: Mapping[str, Any]) -> Mark:
    """Add a line after the mark, which must be the end of the file; return the new end."""
    text = _encoded({"previous": mark.head, **document})
    created = not path.exists()
    with naming(path), open_shared(path, "ab") as file:
        file.write(text + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if created:
        flush_to_disk(path.parent)
    return Mark(mark.lines + 1, _hash(text))


def whole_lines(data: bytes) -> bytes:
    """Return the data without an incomplete line at the end."""
    return data[: data.rfind(b"\n") + 1]


def read_lines(data: bytes, mark: Mark, path: Path) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the lines that follow a mark, and their hashes; raise PrivacyError with the number of one that does not.

    `path` names the file in errors.
    """
    texts = data.split(b"\n")[:-1]
    hashes = tuple(map(_hash, texts))
    lines = [
        _document(text, previous, path, number)
        for number, (text, previous) in enumerate(zip(texts, (mark.head, *hashes), strict=False), mark.lines + 1)
    ]
    return lines, hashes


def _document(text: bytes, previous: str, path: Path, number: int) -> dict[str, Any]:
    """Return one line, which must name the hash of the line before it and be written as `_encoded` writes it."""
    try:
        line = parse_json(text)
        follows = isinstance(line, dict) and line.get("previous") == previous and _encoded(line) == text
    except (ValueError, RecursionError):  # not JSON, not a finite number, or too deep
        follows = False
    if not follows:
        raise PrivacyError(f"{path}: line {number} does not follow from the one before it. It was changed.")
    return dict(line)


def _hash(text: bytes) -> str:
    """Return the hash that the next line names."""
    return hashlib.sha256(text).hexdigest()


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False, allow_nan=False).encode()
