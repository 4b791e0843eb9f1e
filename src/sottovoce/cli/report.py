"""sotto report: one page about one or several runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.console import note, print_json

if TYPE_CHECKING:
    from sottovoce.reports.reading import RunRecord


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, central or federated.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page. Default: report.html in the run, or in the folder that contains all runs."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's title. Default: the names of the runs.")] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Write the page again while the runs are trained; it reloads itself."),
    ] = False,
    every: Annotated[
        float, typer.Option("--every", min=1, max=3600, help="With --follow: write it this often, in seconds.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Write one page about runs: results, privacy, norms per layer, WER per speaker, the convergence bound.

    The page is one HTML file that needs no other file. The folder report_files beside it holds every figure as PNG and
    every number as CSV. Folders and files that are not runs are left out, so that RUN may be runs/*.

    With --follow the page is written again and again until all runs have ended. It keeps its place and what is open.
    The last page does not reload itself.

    Example: sotto report runs/dim runs/global --out report.html

    Example: sotto report runs/quick --follow
    """
    if follow:
        from sottovoce.reports.live_page import follow as write_again

        written = write_again(runs, out, title=title, every=every, say=note)
    else:
        from sottovoce.reports.page import report as write_report

        written = write_report(_only_runs(runs), out, title=title)
    if as_json:
        files = [str(file) for file in written.files]
        print_json({"report": str(written.page), "files": files, "runs": [_document(run) for run in written.runs]})
        return
    for run in written.runs:
        if not run.finished:
            note(f"{run.path} is unfinished: {run.steps_done:,} of {run.steps_planned:,} steps. The page says so.")
    note(f"{written.page}: open it in a browser. {len(written.files)} figures and tables are in {written.folder}.")


def _only_runs(paths: list[Path]) -> list[Path]:
    """Leave out existing files and folders that are not runs, and say so; all paths where none is a run."""
    from sottovoce.runs.documents import RunConfig

    others = [path for path in paths if path.exists() and not (path / RunConfig.FILE).is_file()]
    if len(others) == len(paths):
        return paths
    if others:
        note(f"Left out, because they are not runs: {', '.join(map(str, others))}.")
    return [path for path in paths if path not in others]


def _document(run: "RunRecord") -> dict[str, Any]:
    """Return the headline numbers of a run."""
    spent = run.epsilons
    return {
        "run": str(run.path),
        "name": run.name,
        "kind": run.kind,
        "finished": run.finished,
        "steps": run.steps_done,
        "wer": {"dev": run.wer("dev"), "test": run.wer("test")},
        "epsilon_rdp": None if spent is None else spent.rdp,
        "epsilon_pld": None if spent is None else spent.pld,
    }
