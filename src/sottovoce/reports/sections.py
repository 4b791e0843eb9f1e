"""Sections of a Markdown file that a command writes, between two comments; everything else in the file is kept."""

from pathlib import Path

from sottovoce.errors import DataError
from sottovoce.files import written_whole


def write_section(path: Path, name: str, text: str) -> None:
    """Replace the section NAME of a file, or add it at the end; a file that is not there is made."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a text file in UTF-8. Give a Markdown file.") from None
    section = f"{begin}\n{text.strip()}\n{end}"
    if before.count(begin) > 1 or before.count(begin) != before.count(end):
        raise DataError(f"{path} should have one {begin} and one {end}. Mend it and run the command again.")
    if begin in before:
        head, _, rest = before.partition(begin)
        after = f"{head}{section}{rest.partition(end)[2]}"
    else:
        after = f"{before.rstrip()}\n\n{section}\n".lstrip()
    with written_whole(path) as file:
        file.write(after.encode())
