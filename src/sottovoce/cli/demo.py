"""sotto demo: the whole story on synthetic voices. At present: make the corpus and describe it."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.console import ProgressDisplay, note
from sottovoce.cli.options import ALL_CORES, AsJson, DryRun, Workers
from sottovoce.cli.prepare import say_what_would_be_done
from sottovoce.cli.statistics import draw_speakers, print_statistics
from sottovoce.config import resolve
from sottovoce.data.population import Population, speakers_population, split_by_column
from sottovoce.data.prepare import Request, prepare
from sottovoce.data.statistics import statistics_of


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where everything is made.")] = Path("runs/demo"),
    workers: Workers = ALL_CORES,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make the synthetic corpus and describe it: clean speech for seed models, noisy speech for the clients.

    Killed and started again, it goes on where it stopped.
    """
    config = resolve("demo").config
    request = Request(config.corpus, config.joining)
    if dry_run:
        say_what_would_be_done(request, out / "corpus", workers, as_json)
        return
    with ProgressDisplay() as progress:
        store = prepare(request, out / "corpus", workers, progress)
    clean, noisy = split_by_column(store, "domain", "clean")
    populations: dict[str, Population] = {
        "clean domain": speakers_population(store, clean),
        "noisy domain": speakers_population(store, noisy),
    }
    picture = out / "speakers.png"
    draw_speakers(populations, picture)
    print_statistics([statistics_of(name, population) for name, population in populations.items()], picture, as_json)
    note(f"The store is {store.path}. Look inside: sotto data inspect {store.path}")
