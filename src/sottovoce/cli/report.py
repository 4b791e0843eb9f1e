"""sotto report: one page about one or several runs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.console import note, print_json
from sottovoce.errors import DataError


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, central or federated.")],
    out: Annotated[
        Path | None, typer.Option(help="The page. Default: report.html in the run, or in the folder that holds all.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's title. Default: the names of the runs.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write one page about runs: results, privacy, norms layer by layer, WER per speaker, the convergence bound.

    The page is one HTML file that needs nothing else; beside it, report_files holds every figure as PNG and every
    number as CSV.

    Example: sotto report runs/dim runs/global --out report.html
    """
    for run in runs:
        if not run.is_dir():
            raise DataError(f"There is no folder {run}. Give the folders of runs.")
    from sottovoce.reports.page import make_report

    page = _place(runs) if out is None else out
    written = make_report(runs, page, title or _title(runs))
    if as_json:
        found = [
            {"run": str(one.path), "name": one.name, "kind": one.kind, "finished": one.finished, "steps": one.done}
            | {"wer": {"dev": one.wer("dev"), "test": one.wer("test")}}
            | {"epsilon_rdp": one.epsilon("rdp"), "epsilon_pld": one.epsilon("pld")}
            for group in written.groups
            for one in group.runs
        ]
        print_json({"report": str(written.page), "files": [str(file) for file in written.files], "runs": found})
        return
    for record in (record for group in written.groups for record in group.runs if not record.finished):
        note(f"{record.path} is unfinished: {record.done:,} of {record.planned:,} steps. The page says so.")
    note(f"{written.page}: open it in a browser. {len(written.files)} figures and tables are in {_files(page)}.")


def _files(page: Path) -> Path:
    return page.with_name(f"{page.stem}_files")


def _place(runs: list[Path]) -> Path:
    """Return where the page of these runs goes: into the run, or where all of them are."""
    if len(runs) == 1:
        return runs[0] / "report.html"
    return Path(os.path.commonpath([run.absolute().parent for run in runs])) / "report.html"


def _title(runs: list[Path]) -> str:
    names = list(dict.fromkeys(run.absolute().name for run in runs))
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} other runs"
