"""sotto demo: the whole story on synthetic voices, in 7 to 15 minutes on two cores."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson, DryRun, Workers
from sottovoce.cli.bench_options import Results, Seeds, require_places
from sottovoce.cli.bench_results import keep_document, print_results, seeds_option
from sottovoce.cli.bench_runs import prepare_and_train
from sottovoce.cli.console import note, print_json


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder for corpora, runs and the report.")] = Path(
        "runs/demo"
    ),
    seeds: Seeds = 1,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Also train with the per-layer clipping `uniform`.")
    ] = False,
    results: Results = None,
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Show the whole story on synthetic voices: a seed model, domain shift, federated learning, noise, clipping.

    Makes a corpus in two domains, trains a seed model on clean speech and a central model on noisy speech as the
    bound, then learns federatedly from speakers of noisy speech: without noise, with noise and global clipping, with
    noise and per-layer clipping. Prints a table in the paper's form and writes OUT/report.html. 7 to 15 minutes on two
    cores, nearly half of it for the seed model. Killed and started again, it resumes.

    Example: sotto demo --out runs/demo
    """
    from sottovoce.bench.demo_story import DEMO, demo_run, story
    from sottovoce.bench.result_tables import document, section
    from sottovoce.bench.results import collect, describe_runs
    from sottovoce.reports.markdown import write_section
    from sottovoce.reports.page import report
    from sottovoce.reports.sections.effect_figures import effects_section

    run = demo_run(out=out, seeds=seeds, uniform=uniform)
    if dry_run:
        from sottovoce.cli.preparation import print_plan

        corpus = next(iter(run.size.corpora.values()))
        print_plan(corpus, out / "corpora", workers=workers, as_json=as_json)
        note(
            f"Then it trains {len(run.rows) * seeds} models: on two cores six minutes for a seed model, one for others."
        )
        return
    page = out / "report.html"
    require_places(results, DEMO, page)
    prepare_and_train([run], workers)
    shown = collect(run)
    sentences = story(shown, run.size.effects)
    if not as_json:  # before the page, which may fail on a full disk
        print_results(run, shown)
    for sentence in sentences:
        note(sentence)
    keep_document(run)
    section_of = effects_section(run.size, shown)
    report(describe_runs(run), page, title=run.bench.about, lead=[*sentences, run.size.note], sections=[section_of])
    note(f"The whole story, with figures: {page}")
    if results is not None:
        command = f"sotto demo{seeds_option(seeds)}{' --uniform' if uniform else ''}"
        lines = "\n".join(f"- {sentence}" for sentence in sentences)
        write_section(results, DEMO, section(run, shown, command) + f"\n{lines}\n", run.size.notes)
        note(f"The table is in {results}.")
    if as_json:
        print_json({**document(run, shown), "story": sentences, "report": str(page)})
