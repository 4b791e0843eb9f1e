"""The page of one or several runs: one HTML file that needs nothing else, and beside it a folder with every figure and
every number.

    report.html                   all of it; works offline, without scripts, light and dark, on a phone
    report_files/*.png, *.csv     each figure as a picture, each part's numbers as they are

Every file is written whole, and nothing is written where a run cannot be read or its ledger does not hold. What a run
did not note is said in one line, and the rest is shown.
"""

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sottovoce.errors import DataError
from sottovoce.files import existing_parent, make_folder, written_whole
from sottovoce.reports.drawing.blocks import Part, Sheet, esc
from sottovoce.reports.drawing.style import STYLE
from sottovoce.reports.parts.bound import bound
from sottovoce.reports.parts.curves import over_epsilon, over_steps
from sottovoce.reports.parts.dynamics import dynamics
from sottovoce.reports.parts.layers import norms, scaling
from sottovoce.reports.parts.lead import sentences
from sottovoce.reports.parts.origin import origin
from sottovoce.reports.parts.people import people
from sottovoce.reports.parts.privacy import privacy, require_ledgers
from sottovoce.reports.parts.results import headline
from sottovoce.reports.reading.groups import Group, groups_of
from sottovoce.reports.reading.records import read_records
from sottovoce.version import VERSION

_PARTS = (headline, over_steps, over_epsilon, norms, dynamics, scaling, people, privacy, bound, origin)


@dataclass(frozen=True)
class Written:
    """What a report consists of."""

    page: Path
    files: tuple[Path, ...]
    groups: tuple[Group, ...]


def make_report(runs: Sequence[Path], out: Path, title: str, lead: Sequence[str] = ()) -> Written:
    """Write the page of some runs and return what was written; `lead` are sentences before the page's own."""
    require_page(out)
    records = read_records(runs)
    require_ledgers(records)
    groups = groups_of(records)
    parts = [make(groups) for make in _PARTS]
    folder = out.with_name(f"{out.stem}_files")
    make_folder(folder.absolute())
    files = []
    for part in parts:
        for picture in part.pictures:
            files.append(_write(folder / f"{picture.name}.png", picture.png))
        for sheet in part.sheets:
            files.append(_write(folder / f"{sheet.name}.csv", _csv(sheet)))
    _write(out, _page(title, [*filter(None, lead), *sentences(groups)], parts, folder.name).encode())
    return Written(out, tuple(files), tuple(groups))


def require_page(out: Path) -> None:
    """Raise DataError where a page could not be written; a command that works for an hour calls this first."""
    if out.is_dir():
        raise DataError(f"{out} is a folder. Give a file for the page, such as {out / 'report.html'}.")
    above = existing_parent(out.parent)
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise DataError(f"{out} cannot be written: {above} is no folder that may be written to. Give another place.")


def _write(path: Path, content: bytes) -> Path:
    with written_whole(path) as file:
        file.write(content)
    return path


def _csv(sheet: Sheet) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(sheet.header)
    writer.writerows(sheet.rows)
    return text.getvalue().encode()


def _page(title: str, lead: Sequence[str], parts: Sequence[Part], folder: str) -> str:
    first = "".join(f'<p class="lead">{esc(sentence)}</p>' for sentence in lead)
    links = "".join(f'<a href="#{part.key}">{esc(part.title)}</a> ' for part in parts)
    body = "\n".join(part.render() for part in parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{esc(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{esc(title)}</h1>{first}<nav>{links}</nav></header>\n<main>\n{body}\n</main>\n"
        f"<footer>Made by sotto {esc(VERSION)}. Figures as PNG and all numbers as CSV are in the folder "
        f"<code>{esc(folder)}</code> beside this page. Diagnostics on this page are computed from private data of the "
        "training: share it only with those who may see them.</footer>\n</body>\n</html>\n"
    )
