"""What the commands of sotto bench share: their options, which rows they are about, where results go."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from sottovoce.errors import ConfigError
from sottovoce.limits import MOST_SEEDS

if TYPE_CHECKING:
    from sottovoce.bench.plan import BenchRun

_NAME = typer.Argument(metavar="NAME", help="A benchmark of `sotto bench list`, or a YAML file.", show_default=False)
Name = Annotated[str, _NAME]
OptionalName = Annotated[str | None, _NAME]
All = Annotated[
    bool, typer.Option("--all", help="Train all benchmarks of a size; runs that they share are trained once.")
]
Part = Annotated[
    str | None,
    typer.Option("--part", metavar="K/N", help="Only every Nth run of the plan, from the Kth on: for array jobs."),
]
Published = Annotated[
    Path | None,
    typer.Option(
        "--published",
        metavar="FOLDER",
        help="Leave out runs that documents in this folder have already, as `sotto bench export` writes them.",
    ),
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="End when other commands train all rows that are left; default: wait.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one value in every row; such runs are kept apart."),
]
SizeName = Literal["paper", "mini"]  # as in bench/preset.py, which takes long to load; mypy compares them
SizeOption = Annotated[
    SizeName,
    typer.Option("--size", help="mini: minutes on 2 cores; paper: the real corpora and model, for a GPU cluster."),
]
Seeds = Annotated[
    int,
    typer.Option(
        "--seeds",
        min=1,
        max=MOST_SEEDS,
        help="Train every row with this many seeds; verdicts need two or more, better three.",
    ),
]
SeedsOfRows = Annotated[int, typer.Option("--seeds", min=1, max=MOST_SEEDS, help="Count this many seeds of every row.")]
Rows = Annotated[str | None, typer.Option("--rows", help="Only these rows: names separated by semicolons.")]
Out = Annotated[Path, typer.Option("--out", help="The folder for corpora and runs, shared by all benchmarks.")]
Results = Annotated[
    Path | None, typer.Option("--results", help="Also write the table into this Markdown file, in its own section.")
]
From = Annotated[
    Path | None, typer.Option("--from", help="Read a folder that `sotto bench export` has written, instead of runs.")
]
Corpora = Annotated[
    Path, typer.Option("--corpora", help="The folder with LibriSpeech, cv-corpus-13.0-2023-03-09, an4, audiomnist.")
]
SIZES: tuple[SizeName, ...] = ("mini", "paper")
RESULTS = Path("runs/bench")
CORPORA = Path("corpora")  # as in bench/preset.py, which takes long to load; a test compares them


class Choice(NamedTuple):
    """What a command says about every benchmark that it is about."""

    size: SizeName
    seeds: int
    out: Path
    corpora: Path
    settings: tuple[str, ...] = ()

    def of(self, name: str, rows: str | None = None) -> "BenchRun":
        """Return these rows of a benchmark, or all of them."""
        from sottovoce.bench.plan import BenchRun

        names = None if rows is None else [row.strip() for row in rows.split(";")]
        if names is not None and not all(names):
            raise ConfigError("Expected --rows 'NAME; NAME; ...', with names from `sotto bench show`.")
        return BenchRun.choose(name, rows=names, **self._asdict())


def require_places(results: Path | None, section_name: str, report: Path | None) -> None:
    """Raise before any work where the table or the page could not be written at the end."""
    if results is not None:
        from sottovoce.reports.markdown import require_section

        require_section(results, section_name)
    if report is not None:
        from sottovoce.reports.page import require_page

        require_page(report)
