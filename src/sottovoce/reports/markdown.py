"""Sections of a Markdown file that commands generate, marked by two comments. The rest of the file stays as it is."""

from pathlib import Path

from sottovoce.errors import DataError
from sottovoce.files import written_whole
from sottovoce.reading import read_bounded


def write_section(path: Path, name: str, text: str) -> None:
    """Replace the section `name` of a file, or append it; create the file if there is none."""
    before = require_section(path, name)
    begin, end = _markers(name)
    section = f"{begin}\n{text.strip()}\n{end}"
    if begin in before:
        head, _, rest = before.partition(begin)
        after = f"{head}{section}{rest.partition(end)[2]}"
    else:
        after = f"{before.rstrip()}\n\n{section}\n".lstrip()
    with written_whole(path) as file:
        file.write(after.encode())


def has_section(path: Path, name: str) -> bool:
    """Return whether a file has a section of this name."""
    return _markers(name)[0] in require_section(path, name)


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
