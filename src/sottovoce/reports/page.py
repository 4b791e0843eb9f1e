"""A report: one HTML page about one or several runs, and a folder with every figure and every number.

    report.html                   the whole page; it works offline and without its script, in light and dark colours
    report_files/*.png, *.csv     each figure as a picture, the numbers of each section unrounded

Each file is written completely or not at all. If a run cannot be read or its ledger is invalid, nothing is written.
Where a run did not log something, the page says so and shows the rest.
"""

import base64
import csv
import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sottovoce.errors import DataError
from sottovoce.files import as_cell, existing_parent, keep_private, make_folder, require_target, written_whole
from sottovoce.reports.drawing import SCRIPT, STYLE, CsvTable, Section, esc
from sottovoce.reports.reading import RunGroup, RunRecord, all_runs, group_runs, read_records
from sottovoce.reports.sections import SECTIONS, opening_sentences, results_section
from sottovoce.runs.documents import BenchRow
from sottovoce.version import VERSION

PAGE_NAME = "report.html"

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Report:
    """A written report."""

    page: Path
    files: tuple[Path, ...]  # the figures and tables beside the page
    groups: tuple[RunGroup, ...]

    @property
    def runs(self) -> list[RunRecord]:
        """The runs of the report, in the order of the page."""
        return all_runs(self.groups)

    @property
    def folder(self) -> Path:
        """The folder of the figures and tables."""
        return files_folder(self.page)


def report(
    runs: AnyPath | Sequence[AnyPath],
    out: AnyPath | None = None,
    *,
    title: str | None = None,
    lead: Sequence[str] = (),
    sections: Sequence[Section] = (),
    rows: Mapping[Path, Sequence[BenchRow]] | None = None,
) -> Report:
    """Write the report of one or several runs and return it.

    `runs` are folders of runs, central or federated, finished or not. By default the page is `report.html` in the
    folder of a single run, or in the folder that contains all runs, and its title is the names of the runs. `lead`
    are sentences to say in words before the page's own, `sections` follow the table of results. `rows` are rows of
    benchmarks that the runs belong to, by folder; for other runs, row.json says so.

    Raises DataError where a run cannot be read or the page cannot be written, PrivacyError where a ledger is invalid.

    Example: report(["runs/dim", "runs/global"], out="report.html")
    """
    folders, page = places_of(runs, out)
    drawn = draw_page(folders, page, title=title, lead=lead, sections=sections, rows=rows)
    return write_page(drawn, page)


@dataclass(frozen=True)
class DrawnPage:
    """A page that is drawn but not written yet."""

    title: str
    opening: str  # its first paragraph
    sections: tuple[Section, ...]
    groups: tuple[RunGroup, ...]


def draw_page(
    folders: Sequence[Path],
    page: Path,
    *,
    title: str | None = None,
    lead: Sequence[str] = (),
    sections: Sequence[Section] = (),
    rows: Mapping[Path, Sequence[BenchRow]] | None = None,
) -> DrawnPage:
    """Read the runs and draw their page, as `report` describes it; nothing is written."""
    for folder in folders:
        if not folder.is_dir():
            raise DataError(f"There is no folder {folder}. Give the folders of runs.")
    records = read_records(folders, rows)
    require_page(page)
    for record in records:
        _ = record.verified_ledger  # raises here, before anything is drawn or written
    groups = group_runs(records)
    results = results_section(groups, [*filter(None, lead)])
    shown = [results, *sections, *(section(groups) for section in SECTIONS)]
    opening = " ".join(opening_sentences(groups))
    return DrawnPage(title or default_title(folders), opening, tuple(shown), tuple(groups))


def write_page(drawn: DrawnPage, page: Path, *, reload_seconds: float | None = None) -> Report:
    """Write a page, with its figures and tables beside it.

    With `reload_seconds` it is a page of a training that goes on: it reloads itself, and nothing is beside it yet.
    """
    files = _write_files(drawn.sections, files_folder(page)) if reload_seconds is None else []
    make_folder(page.absolute().parent)
    _write(page, _html(drawn, files_folder(page).name, reload_seconds).encode())
    return Report(page, tuple(files), drawn.groups)


def places_of(runs: AnyPath | Sequence[AnyPath], out: AnyPath | None) -> tuple[list[Path], Path]:
    """Return the folders of the runs, and the page."""
    folders = [Path(run) for run in ([runs] if isinstance(runs, str | os.PathLike) else runs)]
    if not folders:
        raise DataError("There is nothing to report on. Give the folders of one or more runs.")
    return folders, default_page(folders) if out is None else Path(out)


def default_page(folders: Sequence[Path]) -> Path:
    """Return the default place of a page: in the run, or in the folder that contains all runs."""
    if len(folders) == 1:
        return folders[0] / PAGE_NAME
    return Path(os.path.commonpath([folder.absolute().parent for folder in folders])) / PAGE_NAME


def default_title(folders: Sequence[Path]) -> str:
    """Return the names of the runs, or of the first two and the number of the others."""
    names = list(dict.fromkeys(folder.absolute().name for folder in folders))
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} other runs"


def files_folder(page: Path) -> Path:
    """Return the folder of a page's figures and tables."""
    return page.with_name(f"{page.stem}_files")


def require_page(page: Path) -> None:
    """Raise DataError if a page cannot be written here; long commands call this before they start working."""
    if page.is_dir() and not page.is_symlink():
        raise DataError(f"{page} is a folder. Give a file for the page, such as {page / PAGE_NAME}.")
    require_target(page)
    if page.exists() and page.suffix.lower() != ".html":
        raise DataError(f"{page} exists, and is not a page: its name does not end in .html. Choose another name.")
    above = existing_parent(page.parent)
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise DataError(f"{page} cannot be written: {above} is not a writable folder. Choose another place.")


def _write_files(sections: Sequence[Section], folder: Path) -> list[Path]:
    contents: dict[str, bytes] = {}  # all of them first: what cannot be drawn leaves nothing behind
    for section in sections:
        contents |= {f"{picture.name}.png": picture.png() for picture in section.pictures}
        contents |= {f"{table.name}.csv": _csv(table) for table in section.tables}
    make_folder(folder.absolute())
    keep_private(folder)
    return [_write(folder / name, content) for name, content in contents.items()]


def _write(path: Path, content: bytes) -> Path:
    with written_whole(path, private=True) as file:  # diagnostics, and error rates by speaker
        file.write(content)
    return path


def _csv(table: CsvTable) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (table.header, *table.rows):
        writer.writerow([as_cell(value) for value in row])
    return text.getvalue().encode()


def content_policy(scripts: Sequence[str]) -> str:
    """Return the policy of a page: nothing is loaded, nothing is sent, and only these scripts run, by their hashes."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _html(drawn: DrawnPage, folder_name: str, reload_seconds: float | None) -> str:
    sections = [section for section in drawn.sections if section.elements]
    links = "".join(f'<a href="#{section.key}">{esc(section.title)}</a> ' for section in sections)
    body = "\n".join(section.render() for section in sections)
    reload = "" if reload_seconds is None else f' data-reload="{reload_seconds:g}"'
    # Without the script, the page reloads all the same, but forgets its folds.
    plain = "" if reload_seconds is None else f"<noscript>{_refresh(max(reload_seconds, 10))}</noscript>\n"
    beside = (
        f"The folder <code>{esc(folder_name)}</code> beside this page has every figure as PNG and every number as CSV. "
        if reload_seconds is None
        else "The training goes on, and this page follows it. "
    )
    policy = content_policy((SCRIPT,))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"{plain}<title>{esc(drawn.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body{reload}>\n"
        f'<header><h1>{esc(drawn.title)}</h1><p class="lead">{esc(drawn.opening)}</p>'
        f'<nav class="scroll">{links}</nav></header>\n'
        f"<main>\n{body}\n</main>\n"
        f"<footer>Made by sotto {esc(VERSION)}. {beside}The diagnostics on this page are computed from private "
        "training data: share them only with people who may see that data.</footer>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _refresh(seconds: float) -> str:
    return f'<meta http-equiv="refresh" content="{seconds:g}">'
