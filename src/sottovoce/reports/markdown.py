"""Sections of a Markdown file that commands generate, marked by two comments. The rest of the file stays as it is."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from sottovoce.errors import DataError
from sottovoce.files import written_whole
from sottovoce.reading import read_bounded

_BEGINNING = 40  # characters that name a note


def write_section(path: Path, name: str, text: str, notes: Sequence[str] = ()) -> None:
    """Replace the section `name` of a file, or append it; create the file if there is none.

    Notes are paragraphs after the text. One that is a paragraph further up, as where sections share it, is not
    repeated; a line says that it holds.
    """
    before = require_section(path, name)
    begin, end = _markers(name)
    head, found, rest = before.partition(begin)
    known = set(head.splitlines())  # a note is one line
    own = [note for note in notes if note not in known]
    paragraphs = [text.strip(), *_referring(note for note in notes if note in known), *own]
    section = "\n".join([begin, "\n\n".join(paragraphs), end])
    after = f"{head}{section}{rest.partition(end)[2]}" if found else f"{head.rstrip()}\n\n{section}\n".lstrip()
    with written_whole(path) as file:
        file.write(after.encode())


def _referring(notes: Iterable[str]) -> list[str]:
    """Return a sentence that names notes further up by how they begin; nothing without any."""
    named = "; ".join(f"“{textwrap.shorten(note, _BEGINNING, placeholder=' …')}”" for note in notes)
    return [f"Notes under earlier tables that apply here too: {named}."] if named else []


def has_section(path: Path, name: str) -> bool:
    """Return whether a file has a section of this name."""
    return _markers(name)[0] in require_section(path, name)


def sections_of(path: Path) -> list[str]:
    """Return the names of the sections that a file has, in their order."""
    return re.findall(r"<!-- begin (.+?) -->", require_section(path, ""))


def require_section(path: Path, name: str) -> str:
    """Return the text of a file; raise DataError if the section `name` cannot be written into it.

    Long commands call this before they start working.
    """
    begin, end = _markers(name)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise DataError(
            f"{path} cannot be written: it is a folder, or its folder does not exist. Give a Markdown file."
        )
    try:
        text = read_bounded(path).decode() if path.exists() else ""
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a text file in UTF-8. Give a Markdown file.") from None
    if text.count(begin) > 1 or text.count(begin) != text.count(end) or text.find(begin) > text.find(end):
        raise DataError(
            f"{path} should have one {begin} and one {end} after it. Repair it, then run the command again."
        )
    return text


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- begin {name} -->", f"<!-- end {name} -->"
