"""sotto bench: the results of the paper, one benchmark each, in the paper's size and in a size for two cores."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson, MaxRejectedOrUsual, Workers
from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table
from sottovoce.errors import ConfigError, DataError

if TYPE_CHECKING:
    from sottovoce.bench.plan import BenchRun
    from sottovoce.bench.preset import Bench, Size
    from sottovoce.bench.results import RowResult
    from sottovoce.bench.scheduling import PlanPart
    from sottovoce.cli.training_display import TrainingDisplay
    from sottovoce.runs.display import MakeDisplay

app = typer.Typer(no_args_is_help=True)

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
        "--seeds", min=1, help="Train every row with this many seeds; verdicts need two or more, better three."
    ),
]
Rows = Annotated[str | None, typer.Option("--rows", help="Only these rows: names separated by semicolons.")]
Out = Annotated[Path, typer.Option("--out", help="The folder for corpora and runs, shared by all benchmarks.")]
Results = Annotated[
    Path | None, typer.Option("--results", help="Also write the table into this Markdown file, in its own section.")
]
From = Annotated[
    Path | None, typer.Option("--from", help="Read a folder that `sotto bench export` has written, instead of runs.")
]
RESULTS = Path("runs/bench")
DOCUMENTS = "results"  # below --out: the documents of the benchmarks that have run
_SIZES: tuple[SizeName, ...] = ("mini", "paper")


@app.command("list")
def list_benches(as_json: AsJson = False) -> None:
    """List the benchmarks: which result of the paper each is, and its rows in both sizes.

    Example: sotto bench list
    """
    from sottovoce.bench.preset import all_benches

    benches = dict(all_benches())
    if as_json:
        print_json({name: _listed(bench) for name, bench in benches.items()})
        return
    lines = [
        [name, bench.about, bench.source, *(_count(bench, size) for size in _SIZES)] for name, bench in benches.items()
    ]
    print_table("", ["name", "what", "in the paper", *(f"{size} rows" for size in _SIZES)], lines, text_columns=3)


def _count(bench: "Bench", size: SizeName) -> str:
    return str(len(bench.sizes[size].rows)) if size in bench.sizes else "-"


def _listed(bench: "Bench") -> dict[str, object]:
    rows = {name: [row.name for row in size.rows] for name, size in bench.sizes.items()}
    return {"about": bench.about, "source": bench.source, "finding": bench.finding, "rows": rows}


@app.command()
def run(
    name: OptionalName = None,
    all_of_them: All = False,
    size: SizeOption = "mini",
    rows: Rows = None,
    seeds: Seeds = 1,
    settings: Settings = None,
    out: Out = RESULTS,
    part: Part = None,
    no_wait: NoWait = False,
    workers: Workers = ALL_CORES,
    max_rejected: MaxRejectedOrUsual = None,
    results: Results = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Also write a page with the figures of all rows: a file .html.")
    ] = None,
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="Prepare the corpora and stop; under torchrun none are prepared.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the runs that are left, with time and disk; train nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train all rows of a benchmark that are not done yet, and print the table.

    A row that is done with the same configuration, algorithm and data is not trained again, whichever benchmark trained
    it. Killed and started again, it resumes. The rows share the workers, or the processes of torchrun. Several commands
    may use one --out at the same time, on machines that share it: each row is trained once.

    Example: sotto bench run dp-results --size mini --seeds 3

    Example: sotto bench run --all --dry-run
    """
    from sottovoce.bench.scheduling import PlanPart

    chosen = _chosen(name, all_of_them, size, rows, seeds, out, settings)
    _require_whole(results, report, chosen, rows=rows, part=part)
    selected = None if part is None else PlanPart.parse(part)
    if dry_run:
        from sottovoce.cli.bench_plan import print_bench_plan

        print_bench_plan(chosen, workers, selected, as_json=as_json)
        return
    for one in chosen:
        require_places(results, section_name(one), report)
    prepare_and_train(
        chosen,
        workers,
        prepare_only=prepare_only,
        max_rejected=max_rejected,
        part=selected,
        wait=not no_wait,
        estimated=all_of_them,
    )
    if not prepare_only:
        _show_all(chosen, results, report, as_json=as_json)


def _chosen(
    name: str | None,
    all_of_them: bool,
    size: SizeName,
    rows: str | None,
    seeds: int,
    out: Path,
    settings: list[str] | None,
) -> "list[BenchRun]":
    """Return the benchmark of a name, or with --all every one that has this size."""
    from sottovoce.bench.preset import all_benches

    if (name is None) != all_of_them:
        raise ConfigError("Give the name of a benchmark (see `sotto bench list`), or --all.")
    if name is not None:
        return [_choose(name, size, rows, seeds, out, settings)]
    if rows is not None:
        raise ConfigError("--all trains all rows of all benchmarks: leave out --rows.")
    return [_choose(one, size, None, seeds, out, settings) for one, bench in all_benches() if size in bench.sizes]


def _require_whole(
    results: Path | None, report: Path | None, chosen: "Sequence[BenchRun]", *, rows: str | None, part: str | None
) -> None:
    """Raise where a table or page would show less, or something else, than it promises."""
    if results is not None and (rows is not None or part is not None):
        raise ConfigError("--results writes a whole table: leave out --rows and --part.")
    if report is not None and len(chosen) > 1:
        raise ConfigError("--report is a page about one benchmark: leave out --all.")
    if results is not None and chosen[0].settings and results.is_file():
        from sottovoce.reports.markdown import has_section

        for one in chosen:
            if has_section(results, f"bench {one.name}"):
                raise ConfigError(
                    f"{results} has the table of {one.name} without --set. Give another file: these are other results."
                )


def section_name(chosen: "BenchRun") -> str:
    """Return the section of a Markdown file that holds the table of a benchmark."""
    return " ".join(["bench", chosen.name, *(f"--set {setting}" for setting in chosen.settings)])


def _show_all(chosen: "Sequence[BenchRun]", results: Path | None, report: Path | None, *, as_json: bool) -> None:
    """Print the tables, and write them where that was asked for (rank 0)."""
    from sottovoce.bench.results import collect, describe_runs
    from sottovoce.workers import leads

    if not leads():
        return
    documents = {}
    for one in chosen:
        shown, folders = collect(one), describe_runs(one)
        if as_json:
            documents[one.name] = document_of(one, shown)
        else:
            print_results(one, shown, as_json=False)
        keep_document(one)
        if report is not None:
            from sottovoce.reports.page import report as write_report
            from sottovoce.reports.sections.effect_figures import effects_section

            title, section_of = f"{one.name}: {one.bench.about}", effects_section(one.size, shown)
            write_report(folders, report, title=title, lead=[one.size.note], sections=[section_of])
            note(f"The page is {report}.")
        if results is not None:
            from sottovoce.bench.result_tables import section
            from sottovoce.reports.markdown import write_section

            write_section(results, section_name(one), section(one, shown, _command(one)))
            note(f"The table is in {results}.")
    if as_json:
        print_json(documents if len(chosen) > 1 else next(iter(documents.values())))


def document_of(chosen: "BenchRun", shown: "Sequence[RowResult]") -> dict[str, object]:
    """Return the results of a benchmark as one JSON document."""
    from sottovoce.bench.result_tables import document

    return document(chosen, shown)


def _command(chosen: "BenchRun") -> str:
    settings = "".join(f" --set {setting}" for setting in chosen.settings)
    return f"sotto bench run {chosen.name} --size {chosen.size_name}{seeds_option(len(chosen.seeds))}{settings}"


@app.command()
def show(
    name: Name,
    size: SizeOption = "mini",
    rows: Rows = None,
    seeds: Seeds = 1,
    settings: Settings = None,
    out: Out = RESULTS,
    documents: From = None,
    as_json: AsJson = False,
) -> None:
    """Print the results of finished runs beside the paper's numbers. Nothing is trained.

    Example: sotto bench show dp-results --size paper
    """
    from sottovoce.bench.published import published_results, read_published
    from sottovoce.bench.results import collect

    chosen = _choose(name, size, rows, seeds, out, settings)
    if documents is None:
        print_results(chosen, collect(chosen), as_json=as_json)
        return
    print_results(chosen, published_results(chosen, read_published(documents).get((name, size))), as_json=as_json)


@app.command()
def export(
    name: Name,
    to: Annotated[Path, typer.Option("--to", help="The folder to write into: NAME-SIZE.json.")],
    size: SizeOption = "mini",
    seeds: Seeds = 1,
    out: Out = RESULTS,
) -> None:
    """Write the results of finished runs as a small document: word errors by speaker number, epsilon, sizes.

    Tables, intervals and verdicts are computed from such documents as from runs: `sotto bench summary --from FOLDER`.
    It holds no names and no audio, but error rates of single speakers of dev and test.

    Example: sotto bench export dp-results --seeds 3 --to docs/results
    """
    from sottovoce.bench.published import publish, require_folder, write_published
    from sottovoce.bench.results import collect

    chosen = _choose(name, size, None, seeds, out)
    require_folder(to)
    document = publish(chosen, collect(chosen))
    if not document.rows:
        raise DataError(f"No row of {name} has run below {out}. Run it first: sotto bench run {name} --out {out}")
    note(f"The results are in {write_published(document, to)}.")


@app.command()
def summary(
    size: SizeOption = "mini",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Count this many seeds of every row.")] = 3,
    out: Out = RESULTS,
    documents: From = None,
    results: Results = None,
    as_json: AsJson = False,
) -> None:
    """Print every effect of all benchmarks: ours with its interval, the paper's, the verdict. Nothing is trained.

    Example: sotto bench summary --from docs/results --results docs/results.md
    """
    from sottovoce.bench.summary import HEADER, counts_line, summarise, summary_document, summary_section, summary_table
    from sottovoce.bench.verdicts import RULE

    require_places(results, "bench summary", None)
    found = summarise(size, seeds, out, documents)
    if as_json:
        print_json(summary_document(found))
    else:
        print_table("", list(HEADER), summary_table(found), text_columns=3)
        note(f"{counts_line(found)} {RULE}")
    if results is not None:
        from sottovoce.reports.markdown import write_section

        source = (
            f" --out {out}" if documents is None and out != RESULTS else f" --from {documents}" if documents else ""
        )
        write_section(results, "bench summary", summary_section(found, f"sotto bench summary{source} --seeds {seeds}"))
        note(f"The table is in {results}.")


def _choose(
    name: str, size: SizeName, rows: str | None, seeds: int, out: Path, settings: list[str] | None = None
) -> "BenchRun":
    from sottovoce.bench.plan import BenchRun

    names = None if rows is None else [row.strip() for row in rows.split(";")]
    if names is not None and not all(names):
        raise ConfigError("Expected --rows 'NAME; NAME; ...', with names from `sotto bench show`.")
    return BenchRun.choose(name, size=size, rows=names, seeds=seeds, out=out, settings=settings or ())


def require_places(results: Path | None, section_name: str, report: Path | None) -> None:
    """Raise before any work where the table or the page could not be written at the end."""
    if results is not None:
        from sottovoce.reports.markdown import require_section

        require_section(results, section_name)
    if report is not None:
        from sottovoce.reports.page import require_page

        require_page(report)


def keep_document(chosen: "BenchRun") -> None:
    """Write OUT/results/NAME-SIZE.json: all rows that have run, with these seeds and those of an earlier document."""
    from dataclasses import replace

    from sottovoce.bench.published import kept_seeds, publish, write_published
    from sottovoce.bench.results import collect

    folder = chosen.out / DOCUMENTS
    seeds = sorted({*chosen.seeds, *kept_seeds(folder, chosen.name, chosen.size_name)})
    everything = replace(chosen, rows=chosen.size.rows, seeds=seeds)
    write_published(publish(everything, collect(everything)), folder)


def prepare_and_train(
    chosen: "Sequence[BenchRun]",
    workers: int,
    *,
    prepare_only: bool = False,
    max_rejected: float | None = None,
    part: "PlanPart | None" = None,
    wait: bool = True,
    estimated: bool = False,
) -> None:
    """Prepare the corpora and train the unfinished runs, each with its own display; first say how long it takes."""
    from sottovoce.bench.benchmark import prepare_corpora, train_rows
    from sottovoce.workers import leads

    with ProgressDisplay() as progress:
        for one in chosen:
            prepare_corpora(one, workers=workers, progress=progress, max_rejected=max_rejected, say=note)
    if prepare_only:
        return
    if estimated and leads():
        from sottovoce.bench.bench_plan_costs import plan_cost
        from sottovoce.cli.bench_plan import say_cost

        say_cost(plan_cost(chosen, workers, part), workers)
    train_rows(chosen, part=part, workers=workers, announce=_announce, wait=wait, say=note)


def _announce(place: int, total: int, label: str) -> "MakeDisplay":
    """Return a function that makes the display of one run among many."""
    return functools.partial(_labelled_display, f"[{place}/{total}] {label}")


def _labelled_display(label: str) -> "TrainingDisplay":
    from sottovoce.cli.training_display import TrainingDisplay

    return TrainingDisplay(label)


def print_results(chosen: "BenchRun", shown: "Sequence[RowResult]", *, as_json: bool) -> None:
    """Print our results beside the paper's."""
    from sottovoce.bench.result_tables import (
        EFFECT_HEADER,
        EPSILON_NOTE,
        HEADER,
        document,
        effect_table,
        footnotes,
        interval_note,
        table,
    )
    from sottovoce.bench.verdicts import effect_results

    bench, size = chosen.bench, chosen.size
    if as_json:
        print_json(document(chosen, shown))
        return
    print_table(f"{bench.about} ({bench.source})", list(HEADER), table(shown))
    if chosen.settings_note:
        note(chosen.settings_note)
    for line in footnotes(shown):
        note(line)
    if explained := interval_note(shown):
        note(explained)
    if effects := effect_results(size.effects, shown):
        print_table("effects of the paper, in its direction where positive", list(EFFECT_HEADER), effect_table(effects))
    note("Ours and the paper's WERs are of different models on different data: compare the order of the rows.")
    if any(result.epsilon.tightest is not None or result.claims for result in shown):
        note(EPSILON_NOTE)
    _print_paper(size, shown)
    note(f"The paper finds: {bench.finding}")
    if size.note:
        note(size.note)


def _print_paper(size: "Size", shown: "Sequence[RowResult]") -> None:
    """Print the epsilons that the paper prints, and name the settings that it does not print."""
    from sottovoce.bench.result_tables import printed_claims

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
    if unstated := sorted({key for result in shown for key in size.unstated_in(result.row)}):
        note(f"Not printed by the paper, chosen by us in some rows: {', '.join(unstated)}.")


def seeds_option(seeds: int) -> str:
    """Return the option that repeats a command with this many seeds; nothing for the default."""
    return "" if seeds == 1 else f" --seeds {seeds}"
