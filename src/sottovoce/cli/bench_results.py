"""The results of benchmarks on the screen and in files: tables, verdicts, Markdown sections, pages, documents."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sottovoce.cli.console import note, print_json, print_table
from sottovoce.errors import DataError

if TYPE_CHECKING:
    from sottovoce.bench.plan import BenchRun
    from sottovoce.bench.preset import Size, SizeName
    from sottovoce.bench.results import RowResult
    from sottovoce.bench.summary import BenchSummary
    from sottovoce.reports.drawing import Section
    from sottovoce.runs.documents import BenchRow

DOCUMENTS = "results"  # below --out: the documents of the benchmarks that have run


def show_all(chosen: "Sequence[BenchRun]", results: Path | None, report: Path | None, *, as_json: bool) -> None:
    """Print the tables and keep the results as documents; write a section or a page where that was asked for."""
    from sottovoce.bench.result_tables import document
    from sottovoce.bench.results import collect, describe_runs

    documents, tables = {}, []
    for run in chosen:
        shown = collect(run)
        tables.append((run, shown))
        describe_runs(run)
        if as_json:
            documents[run.name] = document(run, shown)
        else:
            print_results(run, shown)
        keep_document(run)
        if results is not None:
            write_results(run, shown, results, _command(run))
    if report is not None:
        write_bench_page(tables, report)
    if as_json:
        print_json(documents if len(chosen) > 1 else next(iter(documents.values())))


def write_results(run: "BenchRun", shown: "Sequence[RowResult]", results: Path, command: str) -> None:
    """Write the tables and notes of a benchmark into their section of a Markdown file."""
    from sottovoce.bench.result_tables import epsilon_note, section
    from sottovoce.reports.markdown import write_section

    explained = epsilon_note(shown)
    notes = [*([explained] if explained else []), *run.size.notes]
    write_section(results, section_name(run), section(run, shown, command), notes)
    note(f"The table of {run.name} is in {results}.")


def write_summary(found: "Sequence[BenchSummary]", results: Path, command: str) -> None:
    """Write the table of all benchmarks into its section, and renew the sections that the file has of single ones."""
    from sottovoce.bench.summary import summary_section
    from sottovoce.reports.markdown import sections_of, write_section

    write_section(results, summary_name(found[0].run.size_name), summary_section(found, command))
    shown = {section_name(one.run): one for one in found if one.has_run}
    for name in sections_of(results):  # in their order: a note that several share stands in the first
        if (one := shown.get(name)) is not None:
            write_results(one.run, one.results, results, _command(one.run))
    note(f"The table is in {results}.")


def write_bench_page(tables: "Sequence[tuple[BenchRun, Sequence[RowResult]]]", report: Path) -> None:
    """Write one page about the runs of one or several benchmarks; nothing is written into the runs."""
    from sottovoce.bench.results import rows_of_runs
    from sottovoce.reports.page import report as write_report

    rows: dict[Path, list[BenchRow]] = {}
    for run, _ in tables:
        for folder, row in rows_of_runs(run).items():
            rows.setdefault(folder, []).append(row)
    if not rows:
        names = _names(tables)
        raise DataError(f"No row of {names} has run, so there is no page to write. Run it first: sotto bench run.")
    sections = _effects_sections(tables)
    write_report(list(rows), report, title=_title(tables), lead=_notes(tables), sections=sections, rows=rows)
    note(f"The page is {report}.")


def write_documents_page(tables: "Sequence[tuple[BenchRun, Sequence[RowResult]]]", report: Path) -> None:
    """Write one page about published documents: what they hold, without what only the runs have."""
    from sottovoce.reports.page import DrawnPage, write_page

    if not any(row.runs for _, shown in tables for row in shown):
        raise DataError(f"The documents have none of these rows of {_names(tables)}, so there is no page to write.")
    opening = (
        "Made from published documents: word errors, epsilons and mean norms. The curves of training and the ledgers "
        "are on pages that are made from the runs."
    )
    opening = " ".join([opening, *_notes(tables)])
    write_page(DrawnPage(_title(tables), opening, tuple(_effects_sections(tables)), ()), report)
    note(f"The page is {report}.")


def _names(tables: "Sequence[tuple[BenchRun, Sequence[RowResult]]]") -> str:
    return ", ".join(run.name for run, _ in tables)


def _notes(tables: "Sequence[tuple[BenchRun, Sequence[RowResult]]]") -> list[str]:
    named = {f"{run.name}: " if len(tables) > 1 else "": run.size.note for run, _ in tables}
    return [f"{name}{text}" for name, text in named.items() if text]


def _title(tables: "Sequence[tuple[BenchRun, Sequence[RowResult]]]") -> str:
    several = len(tables) > 1
    return f"{len(tables)} benchmarks: {_names(tables)}" if several else f"{_names(tables)}: {tables[0][0].bench.about}"


def _effects_sections(tables: "Sequence[tuple[BenchRun, Sequence[RowResult]]]") -> "list[Section]":
    from sottovoce.reports.sections.effect_figures import effects_section

    return [effects_section(run.size, shown, run.name if len(tables) > 1 else "") for run, shown in tables]


def section_name(run: "BenchRun") -> str:
    """Return the section of a Markdown file that holds the table of a benchmark; sizes have sections of their own."""
    from sottovoce.bench.published import document_name

    settings = (f"--set {setting}" for setting in run.settings)
    return " ".join(["bench", document_name(run.name), *_size_words(run.size_name), *settings])


def summary_name(size: "SizeName") -> str:
    """Return the section of a Markdown file that holds the table of all benchmarks in one size."""
    return " ".join(["bench summary", *_size_words(size)])


def _size_words(size: "SizeName") -> list[str]:
    return [] if size == "mini" else [f"--size {size}"]


def _command(run: "BenchRun") -> str:
    settings = "".join(f" --set {setting}" for setting in run.settings)
    size = f" --size {run.size_name}"
    return f"sotto bench run {run.name}{size}{seeds_option(len(run.seeds))}{settings}{corpora_option(run.corpora)}"


def corpora_option(corpora: Path) -> str:
    """Return the option that repeats a command with the same folder of corpora; nothing for the default."""
    from sottovoce.bench.preset import CORPORA

    return "" if corpora == CORPORA else f" --corpora {corpora}"


def unreadable_corpora(run: "BenchRun") -> dict[str, DataError]:
    """Return the corpora of the rows that are not prepared and cannot be prepared either, with the reasons."""
    from sottovoce.bench.corpora import unprepared
    from sottovoce.bench.plan import wanted_parts

    found = {}
    for name in unprepared(run.size, wanted_parts(run.size, run.rows), run.out):
        try:
            run.size.corpora[name].check()
        except DataError as error:
            found[name] = error
    return found


def say_unprepared(run: "BenchRun") -> None:
    """Say which corpora of the rows are not prepared, so that nothing of them can be shown."""
    from sottovoce.bench.corpora import unprepared
    from sottovoce.bench.plan import wanted_parts

    if missing := unprepared(run.size, wanted_parts(run.size, run.rows), run.out):
        note(
            f"Not prepared below {run.out}, with corpora in {run.corpora}: {', '.join(missing)}. Rows that need them "
            "are shown as not run. Give --out and --corpora as for `sotto bench run`."
        )


def keep_document(run: "BenchRun") -> None:
    """Write OUT/results/NAME-SIZE.json, for its owner only: all rows that have run, with all their seeds.

    Runs that are no longer below OUT stay in it. Runs with --set are other results than the benchmark's: nothing is
    kept of them.
    """
    from sottovoce.bench.published import joined_with_older, publish, write_published
    from sottovoce.bench.results import collect, seeds_that_ran

    if run.settings:
        return
    folder = run.out / DOCUMENTS
    everything = replace(run, rows=run.size.rows, seeds=sorted({*run.seeds, *seeds_that_ran(run)}))
    document = publish(everything, collect(everything))
    try:
        document = joined_with_older(everything, document, folder, note)
    except DataError as error:
        note(f"{error} It is replaced by what has run below {run.out}.")
    write_published(document, folder, private=True)


def print_results(run: "BenchRun", shown: "Sequence[RowResult]") -> None:
    """Print our results beside the paper's."""
    from sottovoce.bench.prices import PRICE_HEADER, price_note, price_rows, price_table
    from sottovoce.bench.result_tables import (
        EFFECT_HEADER,
        HEADER,
        effect_table,
        epsilon_note,
        footnotes,
        interval_note,
        table,
    )
    from sottovoce.bench.verdicts import effect_results

    bench, size = run.bench, run.size
    print_table(f"{bench.about} ({bench.source})", list(HEADER), table(shown))
    if run.settings_note:
        note(run.settings_note)
    for line in footnotes(shown):
        note(line)
    if explained := interval_note(shown):
        note(explained)
    if effects := effect_results(size.effects, shown):
        title = "effects of the paper, in its direction where positive" if bench.in_paper else "effects"
        print_table(title, list(EFFECT_HEADER), effect_table(effects))
    if prices := price_rows(size.prices, shown):
        print_table("price list", list(PRICE_HEADER), price_table(prices))
        note(price_note(prices))
    note("Ours and the paper's WERs are of different models on different data: compare the order of the rows.")
    if explained := epsilon_note(shown):
        note(explained)
    _print_paper(size, shown)
    note(bench.stated_finding)
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
        note(f"Not printed by the paper, run by us in some rows: {', '.join(unstated)}.")


def seeds_option(seeds: int) -> str:
    """Return the option that repeats a command with this many seeds; nothing for the default."""
    return "" if seeds == 1 else f" --seeds {seeds}"
