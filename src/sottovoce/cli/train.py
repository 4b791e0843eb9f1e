"""sotto train: seed models and baselines on all data together, and federated training on users."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.arguments import ALL_CORES, AsJson, Workers
from sottovoce.cli.config import Preset, Settings, configured
from sottovoce.cli.console import ProgressDisplay, counted, note, print_json
from sottovoce.cli.dry_run import show_dry_run
from sottovoce.errors import ConfigError, DataError, StoppedError
from sottovoce.processes import start_worker_server

if TYPE_CHECKING:
    from sottovoce.config import Layer, Resolved
    from sottovoce.runs.folder import Run

app = typer.Typer(no_args_is_help=True)

PRELOADING = "sottovoce.cli.preloading"
Chosen = "STORE[@SPEAKERS]"


def data_layers(
    *, train: str | None = None, dev: str | None = None, test: str | None = None, seed_model: Path | None = None
) -> "list[Layer]":
    """Return the layers of --train STORE@SPEAKERS, --dev, --test and --seed-model, where they are given."""
    from sottovoce.config import Layer
    from sottovoce.data.selection import Selection

    given = {"train": train, "dev": dev, "test": test}
    layers = [
        Layer({"data": {name: Selection.parse(text)}}, f"--{name}") for name, text in given.items() if text is not None
    ]
    return layers if seed_model is None else [*layers, Layer({"data": {"seed_model": seed_model}}, "--seed-model")]


RunFolder = Annotated[Path, typer.Option("--run", help="The run's folder; an unfinished run in it is resumed.")]
Train = Annotated[str | None, typer.Option("--train", metavar=Chosen, help="The speech to train on.")]
Dev = Annotated[str | None, typer.Option("--dev", metavar=Chosen, help="The speech that chooses the best checkpoint.")]
Test = Annotated[str | None, typer.Option("--test", metavar=Chosen, help="The speech to evaluate on once, at the end.")]
SeedModel = Annotated[
    Path | None,
    typer.Option("--seed-model", metavar="CHECKPOINT", help="The model to start from. Default: random parameters."),
]

WandbFolder = Annotated[
    Path | None,
    typer.Option(
        "--wandb", metavar="FOLDER", help="Also write the public figures there, as an offline log of Weights & Biases."
    ),
]
Rehearse = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Measure a few users or batches; print local work, time, epsilon and disk of the run. Write nothing.",
    ),
]
WandbPrivate = Annotated[bool, typer.Option("--wandb-private", help="With --wandb: the private figures, too.")]


@app.command()
def central(
    preset: Preset,
    run: RunFolder,
    seed_model: SeedModel = None,
    train: Train = None,
    dev: Dev = None,
    test: Test = None,
    settings: Settings = None,
    workers: Workers = ALL_CORES,
    wandb: WandbFolder = None,
    wandb_private: WandbPrivate = False,
    dry_run: Rehearse = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on all data together: a seed model, or the bound that federated learning is compared with.

    Killed and started again, it resumes and ends with the same bits. Under torchrun it uses torchrun's processes;
    otherwise --workers processes of this machine, one thread each.

    Example: sotto train central tiny --run runs/digits --train stores/digits@splits/digits/train.txt
    """
    _require_wandb(wandb, private=wandb_private)
    start_worker_server(workers, PRELOADING)
    from sottovoce.api import train_central
    from sottovoce.cli.training_display import TrainingDisplay

    given = data_layers(train=train, dev=dev, test=test, seed_model=seed_model)
    resolved = configured(preset, settings, *given)
    if dry_run:
        show_dry_run("central", resolved, run, workers, as_json=as_json)
        return
    trained = train_central(resolved, run, workers=workers, display=TrainingDisplay)
    limit = resolved.config.central.max_minutes
    _report(trained, resolved, resolved.config.central.steps, max_minutes=limit, as_json=as_json)
    _write_wandb(run, wandb, private=wandb_private)
    _leave_unfinished(trained)


@app.command()
def federated(
    preset: Preset,
    run: RunFolder,
    seed_model: SeedModel = None,
    train: Train = None,
    dev: Dev = None,
    test: Test = None,
    settings: Settings = None,
    workers: Workers = ALL_CORES,
    wandb: WandbFolder = None,
    wandb_private: WandbPrivate = False,
    dry_run: Rehearse = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on users who keep their audio: local SGD, clipping, exact sums, noise, a server optimizer.

    Killed and started again, it resumes and ends with the same bits, with any number of workers. Without --train, a
    preset that describes a corpus and numbers of dev and test speakers makes that corpus in RUN/corpus.

    Example: sotto train federated quick --run runs/quick

    Example: sotto train federated tiny --run runs/mine --train stores/mine --set participation.population=500 --dry-run
    """
    _require_wandb(wandb, private=wandb_private)
    start_worker_server(workers, PRELOADING)
    from sottovoce.api import train_federated
    from sottovoce.cli.training_display import TrainingDisplay
    from sottovoce.runs.own_corpus import with_own_corpus

    given = data_layers(train=train, dev=dev, test=test, seed_model=seed_model)
    resolved = configured(preset, settings, *given)
    if dry_run:
        show_dry_run("federated", resolved, run, workers, as_json=as_json)
        return
    with ProgressDisplay() as progress:
        resolved = with_own_corpus(resolved, run, workers, progress)
    trained = train_federated(resolved, run, workers=workers, display=TrainingDisplay)
    _report(trained, resolved, resolved.config.federated.central_steps, as_json=as_json)
    _write_wandb(run, wandb, private=wandb_private)
    _leave_unfinished(trained)


def _leave_unfinished(run: "Run") -> None:
    """Leave with the exit code of SIGTERM where that has ended the training (rank 0); the message is printed."""
    from sottovoce.workers import leads

    if leads() and run.result is None:
        raise typer.Exit(StoppedError.exit_code)


def _require_wandb(folder: Path | None, *, private: bool) -> None:
    """Raise before any work where the log could not be written at the end."""
    if folder is None:
        if private:
            raise ConfigError("--wandb-private goes with --wandb FOLDER. Give both.")
        return
    from sottovoce.runs.wandb_log import require_wandb

    require_wandb(folder)


def _write_wandb(run: Path, folder: Path | None, *, private: bool) -> None:
    """Write the log of Weights & Biases that was asked for (rank 0)."""
    from sottovoce.workers import leads

    if folder is None or not leads():
        return
    from sottovoce.runs.wandb_log import write_wandb

    lines = write_wandb(run, folder, private=private)
    note(
        f"{folder / 'wandb'} has {counted(lines, 'line')} for Weights & Biases; nothing was sent."
        if lines
        else f"{run} has no public figures for Weights & Biases. Add --wandb-private to write the private ones."
    )


def _report(run: "Run", resolved: "Resolved", wanted: int, *, max_minutes: float | None = None, as_json: bool) -> None:
    """Print how the training ended (rank 0)."""
    from sottovoce.privacy.accounting import short_exponents
    from sottovoce.privacy.epsilons import NOBODY_PROTECTED
    from sottovoce.workers import leads

    if not leads():
        return
    checkpoint, result, evaluation = run.checkpoint, run.result, run.evaluations.get("test")
    if checkpoint is None:
        raise DataError(f"{run.path} holds no checkpoint.")
    test = evaluation.total if evaluation is not None and evaluation.steps == checkpoint.step else None
    if as_json:
        scores = {} if test is None else {"test": test.model_dump()}
        spent = {} if result is None else result.model_dump(include={"epsilon_rdp", "epsilon_pld", "guarantee"})
        about = {"run": str(run.path), "preset": resolved.name, "wanted_steps": wanted}
        print_json({**about, **checkpoint.content(), **scores, **spent})
        return
    wer = checkpoint.best_wer
    best = "" if wer is None else f", best WER on dev {100 * wer:.2f} % {_best_place(run, checkpoint.step)}"
    if checkpoint.step < wanted:
        note(f"{run.path}: stopped after step {checkpoint.step:,} of {wanted:,}{best}. {_reason(run, max_minutes)}")
    else:
        last = run.path / "last" / "model.safetensors"
        note(f"{run.path}: {counted(checkpoint.step, 'step')}{best}. The last model is {last}.")
    if test is not None:
        note(f"WER on test of the last model (step {checkpoint.step:,}), evaluated once: {100 * test.wer:.2f} %.")
    if result is not None and result.guarantee is not None:
        note(f"Guarantee: {short_exponents(result.guarantee)}.")
        if result.epsilon.protects_nobody:
            note(NOBODY_PROTECTED)


def _best_place(run: "Run", last: int) -> str:
    """Say which model the best WER on dev is of; `sotto eval RUN` takes that one."""
    best = run.best_checkpoint
    return f"at step {last if best is None else best.step:,} ({run.path / 'best'})"


def _reason(run: "Run", max_minutes: float | None) -> str:
    """Say why a training ended before its last step, and how to train on."""
    result, checkpoint = run.result, run.checkpoint
    if result is not None and result.stopped is not None and checkpoint is not None:
        limit = "" if max_minutes is None else f"={max_minutes:g}"
        reasons = {
            "by privacy.budget": "It was stopped by privacy.budget: the next step would spend more.",
            "by central.max_minutes": f"The time limit central.max_minutes{limit} is reached: raise it to train on.",
        }
        stale = f"{counted(checkpoint.since_best or 0, 'evaluation')} on dev brought no lower WER"
        return reasons.get(result.stopped, f"It was stopped {result.stopped}: {stale}.")
    return "It was asked to stop: run the same command again to resume."
