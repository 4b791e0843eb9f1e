"""sotto bench: the results of the paper, one benchmark each, in the paper's size and in a size for two cores."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson, MaxRejectedOrUsual, Workers
from sottovoce.cli.bench_results import (
    corpora_option,
    print_results,
    say_unprepared,
    section_name,
    show_all,
    summary_name,
    unreadable_corpora,
    write_bench_page,
    write_documents_page,
    write_summary,
)
from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table
from sottovoce.errors import ConfigError, DataError
from sottovoce.limits import MOST_SEEDS

if TYPE_CHECKING:
    from sottovoce.bench.document_folder import DocumentFolder
    from sottovoce.bench.plan import BenchRun
    from sottovoce.bench.planned import PlanPart
    from sottovoce.bench.preset import Bench
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
RESULTS = Path("runs/bench")
CORPORA = Path("corpora")  # as in bench/preset.py, which takes long to load; a test compares them
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
    corpora: Corpora = CORPORA,
    part: Part = None,
    published: Published = None,
    no_wait: NoWait = False,
    workers: Workers = ALL_CORES,
    max_rejected: MaxRejectedOrUsual = None,
    results: Results = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", help="Also write a page with the figures of all rows, of all benchmarks: a file .html."
        ),
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

    Example: sotto bench run --all --seeds 3 --published docs/results
    """
    from sottovoce.bench.document_folder import DocumentFolder
    from sottovoce.bench.planned import PlanPart
    from sottovoce.workers import leads

    chosen = _chosen(name, all_of_them, rows, Choice(size, seeds, out, corpora, tuple(settings or ())))
    _require_whole(results, chosen, partial=any((rows, part, no_wait, published)))
    selected = None if part is None else PlanPart.parse(part)
    known = None if published is None else DocumentFolder(published)
    if dry_run:
        from sottovoce.cli.bench_plan import print_bench_plan

        print_bench_plan(chosen, workers, selected, known, as_json=as_json)
        for one in chosen:
            for corpus, error in unreadable_corpora(one).items():
                note(f"{one.name} needs the corpus {corpus}. {error}")
        return
    for one in chosen:
        require_places(results, section_name(one), report)
    prepare_and_train(
        chosen,
        workers,
        prepare_only=prepare_only,
        max_rejected=max_rejected,
        part=selected,
        published=known,
        wait=not no_wait,
        estimated=all_of_them,
    )
    if not prepare_only and leads():
        show_all(chosen, results, report, as_json=as_json)


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


def _chosen(name: str | None, all_of_them: bool, rows: str | None, choice: Choice) -> "list[BenchRun]":
    """Return the benchmark of a name, or with --all every one that has this size."""
    from sottovoce.bench.preset import all_benches

    if (name is None) != all_of_them:
        raise ConfigError("Give the name of a benchmark (see `sotto bench list`), or --all.")
    if name is not None:
        return [choice.of(name, rows)]
    if rows is not None:
        raise ConfigError("--all trains all rows of all benchmarks: leave out --rows.")
    found = [choice.of(one) for one, bench in all_benches() if choice.size in bench.sizes]
    return [run for run in found if choice.size == "paper" or _has_corpora(run)]


def _has_corpora(run: "BenchRun") -> bool:
    """Return whether the corpora of a miniature can be read or made; say which benchmark is left out."""
    missing = unreadable_corpora(run)
    for error in list(missing.values())[:1]:
        note(f"{run.name} is left out. {error}")
    return not missing


def _require_whole(results: Path | None, chosen: "Sequence[BenchRun]", *, partial: bool) -> None:
    """Raise where a table or page would show less, or something else, than it promises."""
    if results is not None and partial:
        raise ConfigError("--results writes a whole table: leave out --rows, --part, --published and --no-wait.")
    if results is not None and chosen[0].settings and results.is_file():
        from sottovoce.reports.markdown import has_section

        for one in chosen:
            if has_section(results, section_name(replace(one, settings=()))):
                raise ConfigError(
                    f"{results} has the table of {one.name} without --set. Give another file: these are other results."
                )


@app.command()
def show(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Benchmarks of `sotto bench list`, or YAML files.", show_default=False),
    ],
    size: SizeOption = "mini",
    rows: Rows = None,
    seeds: SeedsOfRows = 1,
    settings: Settings = None,
    out: Out = RESULTS,
    corpora: Corpora = CORPORA,
    documents: From = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Also write one page that compares all rows: a file .html.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the results of finished runs beside the paper's numbers. Nothing is trained.

    Example: sotto bench show dp-results --size paper

    Example: sotto bench show demo real-speech --seeds 3 --report both.html

    Example: sotto bench show dp-results --from docs/results --seeds 3 --report effects.html
    """
    from sottovoce.bench.document_folder import DocumentFolder
    from sottovoce.bench.result_tables import document
    from sottovoce.bench.results import collect

    if rows is not None and len(names) > 1:
        raise ConfigError("--rows are rows of one benchmark: give one NAME, or leave out --rows.")
    require_places(None, "", report)
    choice = Choice(size, seeds, out, corpora, tuple(settings or ()))
    published = None if documents is None else DocumentFolder(documents)
    tables = []
    for chosen in [choice.of(name, rows) for name in dict.fromkeys(names)]:
        if published is None:
            say_unprepared(chosen)
            shown = collect(chosen)
        else:
            shown = published.results(chosen, note)
        tables.append((chosen, shown))
        if not as_json:
            print_results(chosen, shown)
    if report is not None:
        (write_bench_page if published is None else write_documents_page)(tables, report)
    if as_json:
        shown_as = {chosen.name: document(chosen, shown) for chosen, shown in tables}
        print_json(shown_as if len(tables) > 1 else next(iter(shown_as.values())))


@app.command()
def export(
    name: Name,
    to: Annotated[Path, typer.Option("--to", help="The folder to write into: NAME-SIZE.json.")],
    size: SizeOption = "mini",
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, max=MOST_SEEDS, help="Only so many seeds of these runs; default: all."),
    ] = None,
    out: Out = RESULTS,
    corpora: Corpora = CORPORA,
) -> None:
    """Write the results of finished runs as a small document: word errors by speaker number, epsilon, sizes.

    Tables, intervals and verdicts are computed from such documents as from runs: `sotto bench summary --from FOLDER`.
    It holds no names and no audio, but error rates of single speakers of dev and test, and the type of machine. Rows
    and seeds of today's benchmark that a document in the folder has besides are kept.

    Example: sotto bench export dp-results --to docs/results
    """
    from sottovoce.bench.published import joined_with_older, publish, require_folder, write_published
    from sottovoce.bench.results import collect, seeds_that_ran

    chosen = Choice(size, seeds or 1, out, corpora).of(name)
    require_folder(to)
    if seeds is None:
        chosen = replace(chosen, seeds=seeds_that_ran(chosen))
    document = publish(chosen, collect(chosen))
    if not document.rows:
        raise DataError(f"No row of {name} has run below {out}. Run it first: sotto bench run {name} --out {out}")
    try:
        document = joined_with_older(chosen, document, to, note)
    except DataError as error:
        raise DataError(f"{error} Nothing was written: export into another folder, or remove that file.") from None
    path = write_published(document, to)
    note(f"The results are in {path}.")


@app.command()
def summary(
    size: SizeOption = "mini",
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            max=MOST_SEEDS,
            help="Count this many seeds of every row; default: 3, or with --from all that the documents have.",
        ),
    ] = None,
    out: Out = RESULTS,
    corpora: Corpora = CORPORA,
    documents: From = None,
    results: Results = None,
    as_json: AsJson = False,
) -> None:
    """Print every effect of all benchmarks: ours with its interval, the paper's, the verdict. Nothing is trained.

    --results writes the table into a Markdown file, and renews the sections that `sotto bench run` has written there.

    Example: sotto bench summary --from docs/results --results docs/results.md
    """
    from sottovoce.bench.summary import HEADER, counts_line, summarise, summary_document, summary_table
    from sottovoce.bench.verdicts import RULE

    require_places(results, summary_name(size), None)
    if seeds is None:
        seeds = 3 if documents is None else MOST_SEEDS
    found = summarise(Choice(size, seeds, out, corpora).of, size, documents, note)
    if as_json:
        print_json(summary_document(found))
    else:
        print_table("", list(HEADER), summary_table(found), text_columns=3)
        note(f"{counts_line(found)} {RULE}")
    if results is not None:
        source = f" --from {documents}" if documents else corpora_option(corpora)
        write_summary(found, results, f"sotto bench summary{'' if size == 'mini' else f' --size {size}'}{source}")


def require_places(results: Path | None, section_name: str, report: Path | None) -> None:
    """Raise before any work where the table or the page could not be written at the end."""
    if results is not None:
        from sottovoce.reports.markdown import require_section

        require_section(results, section_name)
    if report is not None:
        from sottovoce.reports.page import require_page

        require_page(report)


def prepare_and_train(
    chosen: "Sequence[BenchRun]",
    workers: int,
    *,
    prepare_only: bool = False,
    max_rejected: float | None = None,
    part: "PlanPart | None" = None,
    published: "DocumentFolder | None" = None,
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

        say_cost(plan_cost(chosen, workers, part, published), workers)
    train_rows(chosen, part=part, published=published, workers=workers, announce=_announce, wait=wait, say=note)


def _announce(place: int, total: int, label: str) -> "MakeDisplay":
    """Return a function that makes the display of one run among many."""
    return functools.partial(_labelled_display, f"[{place}/{total}] {label}")


def _labelled_display(label: str) -> "TrainingDisplay":
    from sottovoce.cli.training_display import TrainingDisplay

    return TrainingDisplay(label)
