"""sotto bench show, export and summary: the results of runs and of documents. Nothing is trained."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.bench_options import (
    CORPORA,
    RESULTS,
    Choice,
    Corpora,
    From,
    Name,
    Out,
    Results,
    Rows,
    SeedsOfRows,
    Settings,
    SizeOption,
    require_places,
)
from sottovoce.cli.bench_results import (
    corpora_option,
    print_results,
    say_unprepared,
    summary_name,
    write_bench_page,
    write_documents_page,
    write_summary,
)
from sottovoce.cli.console import note, print_json, print_table
from sottovoce.errors import ConfigError, DataError
from sottovoce.limits import MOST_SEEDS


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
    The ledgers of runs that spent an epsilon are verified first. It holds no names and no audio, but error rates of
    single speakers of dev and test, and the type of machine. Rows and seeds of today's benchmark that a document in the
    folder has besides are kept.

    Example: sotto bench export dp-results --to docs/results
    """
    from sottovoce.bench.published import joined_with_older, publish, require_folder, write_published
    from sottovoce.bench.results import collect, seeds_that_ran

    chosen = Choice(size, seeds or 1, out, corpora).of(name)
    require_folder(to)
    if seeds is None:
        chosen = replace(chosen, seeds=seeds_that_ran(chosen))
    document = publish(chosen, collect(chosen), verify=True)
    if not document.rows:
        raise DataError(f"No row of {name} has run below {out}. Run it first: sotto bench run {name} --out {out}")
    try:
        document = joined_with_older(chosen, document, to, note)
    except DataError as error:
        raise DataError(f"{error} Nothing was written: export into another folder, or remove that file.") from None
    path = write_published(document, to)
    note(f"The results are in {path}.")


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
