"""sotto privacy publish and sotto privacy neighbours: what may leave a run's folder, and a test of it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson, Workers
from sottovoce.cli.config import Preset, Settings, configured
from sottovoce.cli.console import ProgressDisplay, counted, note, print_json, print_table
from sottovoce.cli.train import PRELOADING, Dev, SeedModel, Test, Train, data_layers
from sottovoce.processes import start_worker_server

_SHOWN = 20  # findings, at most


def publish(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a federated run with secure randomness.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make. It appears only when it is whole.")],
    model: Annotated[Literal["best", "last"], typer.Option(help="The model to export.")] = "best",
    as_json: AsJson = False,
) -> None:
    """Export what the guarantee covers: model, ledger, public log, statement and public configuration.

    Everything else in the run's folder is private. Refused unless the run has a guarantee, its randomness was secure
    and `sotto privacy verify` passes. All files are searched for private keys, paths and speakers' names first.

    Example: sotto privacy publish runs/private release
    """
    from sottovoce.api import publish as publish_run
    from sottovoce.privacy.epsilons import NOBODY_PROTECTED

    published = publish_run(run, out, model=model)
    if published.speakers_searched_for is None:
        note("The run's data is not there, so the files were not searched for speakers' names.")
    if published.epsilon.protects_nobody:
        note(NOBODY_PROTECTED)
    if as_json:
        print_json(
            {
                "run": str(run),
                "folder": str(out),
                "model": published.model,
                "epsilon_rdp": published.epsilon.rdp,
                "epsilon_pld": published.epsilon.pld,
                "sha256": dict(published.files),
                "speakers_searched_for": published.speakers_searched_for,
            }
        )
        return
    print_table("", ["file", "SHA-256"], [[name, digest] for name, digest in published.files.items()], text_columns=2)
    note(f"{out}: {counted(len(published.files), 'file')} with the {published.model} model. All of it may be public.")


def neighbours(
    preset: Preset,
    seed_model: SeedModel = None,
    train: Train = None,
    dev: Dev = None,
    test: Test = None,
    settings: Settings = None,
    without: Annotated[
        str | None, typer.Option(help="The user who is left out. Default: the one with the most audio.")
    ] = None,
    leaving: Annotated[
        Literal["store", "list"],
        typer.Option(
            "--from", help="Where the user is left out: of the store, written again, or of the list of users."
        ),
    ] = "store",
    repeat: Annotated[int, typer.Option(min=3, max=1000, help="Runs of each side, each with fresh randomness.")] = 5,
    steps: Annotated[int, typer.Option(min=1, max=1_000_000, help="Central steps of each run.")] = 2,
    work: Annotated[
        Path | None, typer.Option(help="A folder for the runs and the second store, all removed at the end.")
    ] = None,
    workers: Workers = ALL_CORES,
    as_json: AsJson = False,
) -> None:
    """Make a secure run with and without one user, and look for the user in everything that is public.

    Compared are the files that `sotto privacy publish` exports, field by field, the model coordinate by coordinate,
    and what is shown while training. A field that is the same in all runs of each side and differs between the sides
    is a certain leak. Fields that vary from run to run are tested, which says little with few runs. Exit code 1 where
    something is found.

    Example: sotto privacy neighbours quick --repeat 5
    """
    start_worker_server(workers, PRELOADING)
    from sottovoce.api import neighbours as compare_neighbours

    resolved = configured(preset, settings, *data_layers(train=train, dev=dev, test=test, seed_model=seed_model))
    with ProgressDisplay() as progress:
        found = compare_neighbours(
            resolved,
            without=without,
            leaving=leaving,
            repeat=repeat,
            steps=steps,
            workers=workers,
            work=work,
            progress=progress,
        )
    comparison = found.comparison
    if as_json:
        print_json({**asdict(found), "comparison": {**asdict(comparison), "power": comparison.power}})
    note(
        f"{counted(found.repeat, 'run')} with and {found.repeat} without {found.user!r} (left out of the {leaving}): "
        f"{counted(comparison.fields, 'field')} and {counted(comparison.coordinates, 'coordinate')} of the model "
        f"compared; {comparison.same:,} fields are the same in all runs, {comparison.varying:,} vary. "
        f"{comparison.power}"
    )
    for finding in comparison.findings[:_SHOWN]:
        note(f"error: {finding.sentence}")
    certain = sum(finding.kind == "certain" for finding in comparison.findings)
    if certain:
        note(f"{counted(certain, 'field')} told the user's presence. Do not publish such runs.")
    elif comparison.findings:
        note(
            "Chance alone shows such a difference in up to 5 % of all comparisons. Repeat it with more runs "
            f"(--repeat {2 * found.repeat}), and do not publish such runs if it is there again."
        )
    if comparison.findings:
        raise typer.Exit(1)
    note("No field tells with certainty whether the user was there. That is no proof: the guarantee is in the ledger.")
