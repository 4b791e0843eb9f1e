"""Sections of a Markdown file that a command writes, between two comments; everything else in the file is kept."""

from pathlib import Path

from sottovoce.errors import DataError
from sottovoce.files import written_whole


def write_section(path: Path, name: str, text: str) -> None:
    """Replace the section NAME of a file, or add it at the end; a file that is not there is made."""
    before = require_place(path, name)
    begin, end = _marks(name)
    section = f"{begin}\n{text.strip()}\n{end}"
    if begin in before:
        head, _, rest = before.partition(begin)
        after = f"{head}{section}{rest.partition(end)[2]}"
    else:
        after = f"{before.rstrip()}\n\n{section}\n".lstrip()
    with written_whole(path) as file:
        file.write(after.encode())


def require_place(path: Path, name: str) -> str:
    """Raise DataError where the section NAME could not be written into a file; return what the file has now.

    A command that works for an hour calls this first.
    """
    begin, end = _marks(name)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise DataError(f"{path} cannot be written: it is a folder, or in one that is not there. Give a Markdown file.")
    try:
        found = path.read_text(encoding="utf-8") if path.exists() else ""
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a text file in UTF-8. Give a Markdown file.") from None
    if found.count(begin) > 1 or found.count(begin) != found.count(end) or found.find(begin) > found.find(end):
        raise DataError(f"{path} should have one {begin} and one {end} after it. Mend it and run the command again.")
    return found


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- begin {name} -->", f"<!-- end {name} -->"
