"""sotto demo: the whole story on synthetic voices, in ten minutes on two cores."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson, DryRun, Workers
from sottovoce.cli.bench import Seeds, choose_rows, make_corpora, print_results, require_places, section, train_rows
from sottovoce.cli.console import note, print_json
from sottovoce.cli.prepare import say_what_would_be_done

_NAME = "demo"
_OWN_DOMAIN = "clean/test"
_OPTIONAL = "uniform"


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where everything is made.")] = Path("runs/demo"),
    seeds: Seeds = 1,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Also train with the per-layer clipping `uniform`.")
    ] = False,
    results: Annotated[
        Path | None, typer.Option("--results", help="Also write the table into this Markdown file, in its own section.")
    ] = None,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Show the whole story on synthetic voices: a seed model, domain shift, federated learning, noise, clipping.

    Makes a corpus in two domains, trains a seed model on clean speech and a central model on noisy speech as the
    bound, then learns federatedly from speakers of noisy speech: without noise, with noise and global clipping, with
    noise and per-layer clipping. Prints a table in the paper's form and writes OUT/report.html. Ten minutes on two
    cores. Killed and started again, it goes on where it stopped.
    """
    from sottovoce.bench.preset import load_bench
    from sottovoce.bench.results import collect, document, note_rows, require_results
    from sottovoce.bench.story import story
    from sottovoce.data.prepare import Request
    from sottovoce.reports.markdown import write_section
    from sottovoce.reports.page import report

    bench = load_bench(_NAME)
    rows = [row for row in choose_rows(bench, "mini", None) if uniform or row.name != _OPTIONAL]
    if dry_run:
        corpus = next(iter(bench.size("mini").corpora.values()))
        say_what_would_be_done(Request(corpus), out / "corpora", workers, as_json)
        note(f"Then it trains {len(rows) * seeds} models, about a minute and a half each on two cores.")
        return
    page = out / "report.html"
    require_places(results, _NAME, page)
    require_results(bench, "mini", rows)
    make_corpora(bench, "mini", rows, out, workers)
    train_rows(_NAME, bench, "mini", rows, seeds, out, workers)
    shown = collect(_NAME, bench, "mini", seeds, out, rows)
    told = story(shown, _OWN_DOMAIN)
    if not as_json:  # before the page, which may fail on a full disk
        print_results(bench, "mini", shown, as_json=False)
    for sentence in told:
        note(sentence)
    runs = note_rows(_NAME, bench, "mini", seeds, out, rows)
    report(runs, page, title=bench.about, lead=[*told, bench.size("mini").note])
    note(f"The whole story, with figures: {page}")
    if results is not None:
        command = "sotto demo" + (f" --seeds {seeds}" if seeds > 1 else "") + (" --uniform" if uniform else "")
        lines = "\n".join(f"- {sentence}" for sentence in told)
        write_section(results, _NAME, section(command, bench, "mini", shown) + f"\n{lines}\n")
        note(f"The table is in {results}.")
    if as_json:
        print_json({**document(bench, bench.size("mini"), shown), "story": told, "report": str(page)})
