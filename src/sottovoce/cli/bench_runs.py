"""sotto bench list and run: which results of the paper there are, and training their rows."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson, MaxRejectedOrUsual, Workers
from sottovoce.cli.bench_options import (
    CORPORA,
    RESULTS,
    SIZES,
    All,
    Choice,
    Corpora,
    NoWait,
    OptionalName,
    Out,
    Part,
    Published,
    Results,
    Rows,
    Seeds,
    Settings,
    SizeName,
    SizeOption,
    require_places,
)
from sottovoce.cli.bench_results import section_name, show_all, unreadable_corpora
from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table
from sottovoce.errors import ConfigError

if TYPE_CHECKING:
    from sottovoce.bench.document_folder import DocumentFolder
    from sottovoce.bench.plan import BenchRun
    from sottovoce.bench.planned import PlanPart
    from sottovoce.bench.preset import Bench
    from sottovoce.cli.training_display import TrainingDisplay
    from sottovoce.runs.display import MakeDisplay


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
        [name, bench.about, bench.source, *(_count(bench, size) for size in SIZES)] for name, bench in benches.items()
    ]
    print_table("", ["name", "what", "in the paper", *(f"{size} rows" for size in SIZES)], lines, text_columns=3)


def _count(bench: "Bench", size: SizeName) -> str:
    return str(len(bench.sizes[size].rows)) if size in bench.sizes else "-"


def _listed(bench: "Bench") -> dict[str, object]:
    rows = {name: [row.name for row in size.rows] for name, size in bench.sizes.items()}
    return {"about": bench.about, "source": bench.source, "finding": bench.finding, "rows": rows}


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
