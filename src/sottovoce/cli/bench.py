"""sotto bench: the results of the paper, one preset each, in the paper's size and in one for two cores."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.bench.preset import Bench, Row, Size, SizeName, all_benches, load_bench
from sottovoce.cli.arguments import ALL_CORES, AsJson, Workers
from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table
from sottovoce.errors import ConfigError, DataError

if TYPE_CHECKING:
    from sottovoce.bench.results import Shown
    from sottovoce.cli.train import TrainingDisplay
    from sottovoce.runs.training import MakeDisplay

app = typer.Typer(help="Reproduce the paper's results, in its size or in miniature.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A benchmark; `sotto bench list` has them.")]
SizeOption = Annotated[
    SizeName,
    typer.Option("--size", help="mini: minutes on 2 cores; paper: the real corpora and model, for a GPU cluster."),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Repeat every row with so many seeds; shows the spread.")]
Rows = Annotated[str | None, typer.Option("--rows", help="Only these rows: names with semicolons between.")]
Out = Annotated[Path, typer.Option("--out", help="Where corpora and runs are kept, for all benchmarks together.")]
RESULTS = Path("runs/bench")
_SIZES: tuple[SizeName, ...] = ("mini", "paper")


@app.command("list")
def list_benches(as_json: AsJson = False) -> None:
    """List the benchmarks: which result of the paper each is, and its rows in both sizes."""
    found = dict(all_benches())
    if as_json:
        print_json({name: _listed(bench) for name, bench in found.items()})
        return
    lines = [
        [name, bench.about, bench.source, *(_count(bench, size) for size in _SIZES)] for name, bench in found.items()
    ]
    print_table("", ["name", "what", "in the paper", *(f"{size} rows" for size in _SIZES)], lines, text_columns=3)


def _count(bench: Bench, size: SizeName) -> str:
    return str(len(bench.sizes[size].rows)) if size in bench.sizes else "-"


def _listed(bench: Bench) -> dict[str, Any]:
    rows = {name: [row.name for row in size.rows] for name, size in bench.sizes.items()}
    return {"about": bench.about, "source": bench.source, "finding": bench.finding, "rows": rows}


@app.command()
def run(
    name: Name,
    size: SizeOption = "mini",
    rows: Rows = None,
    seeds: Seeds = 1,
    out: Out = RESULTS,
    workers: Workers = ALL_CORES,
    results: Annotated[
        Path | None, typer.Option("--results", help="Also write the table into this Markdown file, in its own section.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Also write a page with the figures of all rows: a file .html.")
    ] = None,
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="Make the corpora and stop; under torchrun none are made.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train all rows of a benchmark that have not run yet, and print the table.

    A row that has run with the same configuration, code and data is not run again, whichever benchmark ran it. Killed
    and started again, it goes on. The rows share the workers, or the processes of torchrun.

    Example: sotto bench run dp-results --size mini --seeds 3
    """
    from sottovoce.bench.results import collect, note_rows, require_results
    from sottovoce.distributed import leads

    bench = load_bench(name)
    chosen = choose_rows(bench, size, rows)
    if results is not None and rows is not None:
        raise ConfigError("--results writes a whole table: leave out --rows.")
    require_places(results, f"bench {name}", report)
    require_results(bench, size, chosen)
    make_corpora(bench, size, chosen, out, workers)
    if prepare_only:
        return
    train_rows(name, bench, size, chosen, seeds, out, workers)
    if not leads():
        return
    shown = collect(name, bench, size, seeds, out, chosen)
    runs = note_rows(name, bench, size, seeds, out, chosen)
    print_results(bench, size, shown, as_json)
    if report is not None:
        from sottovoce.reports.page import report as write_report

        write_report(runs, report, title=f"{name}: {bench.about}", lead=[bench.size(size).note])
        note(f"The page is {report}.")
    if results is not None:
        from sottovoce.reports.markdown import write_section

        command = f"sotto bench run {name} --size {size}{_seeds(seeds)}"
        write_section(results, f"bench {name}", section(command, bench, size, shown))
        note(f"The table is in {results}.")


@app.command()
def show(
    name: Name,
    size: SizeOption = "mini",
    rows: Rows = None,
    seeds: Seeds = 1,
    out: Out = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Print what has run, beside the paper's numbers. Nothing is trained.

    Example: sotto bench show dp-results --size paper
    """
    from sottovoce.bench.results import collect

    bench = load_bench(name)
    print_results(bench, size, collect(name, bench, size, seeds, out, choose_rows(bench, size, rows)), as_json)


def require_places(results: Path | None, section_name: str, report: Path | None) -> None:
    """Raise before any work where the table or the page could not be written at the end."""
    if results is not None:
        from sottovoce.reports.markdown import require_section

        require_section(results, section_name)
    if report is not None:
        from sottovoce.reports.page import require_page

        require_page(report)


def choose_rows(bench: Bench, size: SizeName, names: str | None) -> Sequence[Row]:
    """Return the rows that were asked for."""
    chosen = bench.size(size)
    wanted = [] if names is None else [name.strip() for name in names.split(";")]
    if names is not None and not all(wanted):
        raise ConfigError("Expected --rows 'NAME; NAME; ...', with names from `sotto bench show`.")
    return [chosen.row(name) for name in wanted] if wanted else chosen.rows


def make_corpora(bench: Bench, size: SizeName, rows: Sequence[Row], out: Path, workers: int) -> None:
    """Make the corpora and parts that rows need, unless they are there."""
    from sottovoce.bench.corpora import find_part, prepare_parts
    from sottovoce.bench.plan import wanted_parts
    from sottovoce.processes import under_torchrun

    chosen = bench.size(size)
    parts = wanted_parts(chosen, rows)
    if under_torchrun():
        if any(find_part(chosen, part, out) is None for part in parts):
            raise ConfigError("Under torchrun no corpus is made. Run this once without torchrun, with --prepare-only.")
        return
    with ProgressDisplay() as progress:
        prepare_parts(chosen, parts, out, workers, progress)


def train_rows(
    name: str, bench: Bench, size: SizeName, rows: Sequence[Row], seeds: int, out: Path, workers: int
) -> None:
    """Train every row that has not run yet, on corpora that are there; raise where it was stopped before the end."""
    from sottovoce.bench.plan import plan
    from sottovoce.bench.run import is_done, run_jobs
    from sottovoce.distributed import leads

    jobs = plan(name, bench, size, rows, range(seeds), out)
    left = sum(not is_done(job) for job in jobs)
    if leads():
        note(f"{name}: {left} of {len(jobs)} are left to do.")
    if not run_jobs(jobs, workers, announce):
        raise DataError(f"{name} was stopped before the end. Run the same command again to go on.")


def announce(place: int, total: int, label: str) -> "MakeDisplay":
    """Return what makes the display of one run among many."""
    return functools.partial(_labelled_display, f"[{place}/{total}] {label}")


def _labelled_display(label: str) -> "TrainingDisplay":
    from sottovoce.cli.train import TrainingDisplay

    return TrainingDisplay(label)


def print_results(bench: Bench, size: SizeName, shown: "Sequence[Shown]", as_json: bool) -> None:
    """Print ours beside the paper's."""
    from sottovoce.bench.results import EPSILON_NOTE, HEADER, document, elsewhere, table

    if as_json:
        print_json(document(bench, bench.size(size), shown))
        return
    print_table(f"{bench.about} ({bench.source})", list(HEADER), table(shown))
    for line in elsewhere(shown):
        note(line)
    note("WER in %. Ours and the paper's are of different models on different data: compare the order of the rows.")
    if any(one.epsilon_rdp is not None or one.claims for one in shown):
        note(EPSILON_NOTE)
    _print_paper(bench.size(size), shown)
    note(f"The paper finds: {bench.finding}")
    if bench.size(size).note:
        note(bench.size(size).note)


def _print_paper(size: Size, shown: "Sequence[Shown]") -> None:
    """Print the epsilons that the paper prints, and name what it does not print."""
    from sottovoce.bench.results import printed_claims

    claims = printed_claims(size)
    if claims:
        lines = [
            [
                f"{row.sigma_dp:g}",
                f"{row.cohort_size:,} of {row.population:,}",
                f"{row.central_steps:,}",
                f"{row.epsilon:g}",
            ]
            for row in claims
        ]
        header = ["sigma_dp", "S of K", "T", "paper: epsilon"]
        print_table("claims of the paper: accounting only (ours beside them: sotto privacy table)", header, lines, 0)
    if unstated := sorted({key for one in shown for key in size.unstated_in(one.row)}):
        note(f"Not printed by the paper, chosen by us in some rows: {', '.join(unstated)}.")


def _seeds(seeds: int) -> str:
    return "" if seeds == 1 else f" --seeds {seeds}"


def section(command: str, bench: Bench, size: SizeName, shown: "Sequence[Shown]") -> str:
    """Return the section of a Markdown file that holds the table, and the command that made it."""
    from sottovoce.bench.results import elsewhere, markdown

    more = "".join(f"- {line}\n" for line in elsewhere(shown))
    first, finding = f"{bench.about} ({bench.source}). `{command}`", f"The paper finds: {bench.finding}"
    parts = [first, markdown(shown), more, finding, bench.size(size).note]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"
