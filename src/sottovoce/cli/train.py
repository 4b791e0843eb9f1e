"""sotto train: seed models and baselines on all data together, and federated training on users."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sottovoce.cli.arguments import ALL_CORES, AsJson, Workers
from sottovoce.cli.config import Preset, Settings
from sottovoce.cli.console import ProgressDisplay, counted, note, print_json, stderr
from sottovoce.config import Layer, Resolved, resolve
from sottovoce.data.selection import Selection
from sottovoce.errors import DataError
from sottovoce.privacy.accounting import rounded_up, short_exponents
from sottovoce.privacy.epsilons import NOBODY_PROTECTED
from sottovoce.processes import start_worker_server

if TYPE_CHECKING:
    from sottovoce.runs.display import Status
    from sottovoce.runs.folder import Run

app = typer.Typer(no_args_is_help=True)

_LOG_SECONDS = 10.0
Chosen = "STORE[@SPEAKERS]"


def data_layers(
    *, train: str | None = None, dev: str | None = None, test: str | None = None, seed_model: Path | None = None
) -> list[Layer]:
    """Return the layers of --train STORE@SPEAKERS, --dev, --test and --seed-model, where they are given."""
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
    as_json: AsJson = False,
) -> None:
    """Train a model on all data together: a seed model, or the bound that federated learning is compared with.

    Killed and started again, it resumes and ends with the same bits. Under torchrun it uses torchrun's processes;
    otherwise --workers processes of this machine, one thread each.

    Example: sotto train central tiny --run runs/digits --train stores/digits@splits/digits/train.txt
    """
    start_worker_server(workers)
    from sottovoce.api import train_central

    given = data_layers(train=train, dev=dev, test=test, seed_model=seed_model)
    resolved = resolve(preset, *(settings or ()), *given)
    trained = train_central(resolved, run, workers=workers, display=TrainingDisplay)
    limit = resolved.config.central.max_minutes
    _report(trained, resolved, resolved.config.central.steps, max_minutes=limit, as_json=as_json)


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
    as_json: AsJson = False,
) -> None:
    """Train a model on users who keep their audio: local SGD, clipping, exact sums, noise, a server optimizer.

    Killed and started again, it resumes and ends with the same bits, with any number of workers. Without --train, a
    preset that describes a corpus and numbers of dev and test speakers makes that corpus in RUN/corpus.

    Example: sotto train federated quick --run runs/quick
    """
    start_worker_server(workers)
    from sottovoce.api import train_federated
    from sottovoce.runs.own_corpus import with_own_corpus

    given = data_layers(train=train, dev=dev, test=test, seed_model=seed_model)
    resolved = resolve(preset, *(settings or ()), *given)
    with ProgressDisplay() as progress:
        resolved = with_own_corpus(resolved, run, workers, progress)
    trained = train_federated(resolved, run, workers=workers, display=TrainingDisplay)
    _report(trained, resolved, resolved.config.federated.central_steps, as_json=as_json)


def _report(run: "Run", resolved: Resolved, wanted: int, *, max_minutes: float | None = None, as_json: bool) -> None:
    """Print how the training ended (rank 0)."""
    from sottovoce.distributed import leads

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
    best = "" if wer is None else f", best WER on dev {100 * wer:.2f} % ({run.path / 'best'})"
    if checkpoint.step < wanted:
        note(f"{run.path}: stopped after step {checkpoint.step:,} of {wanted:,}{best}. {_reason(run, max_minutes)}")
    else:
        last = run.path / "last" / "model.safetensors"
        note(f"{run.path}: {counted(checkpoint.step, 'step')}{best}. The last model is {last}.")
    if test is not None:
        note(f"WER on test, evaluated once: {100 * test.wer:.2f} %.")
    if result is not None and result.guarantee is not None:
        note(f"Guarantee: {short_exponents(result.guarantee)}.")
        if result.epsilon.protects_nobody:
            note(NOBODY_PROTECTED)


def _reason(run: "Run", max_minutes: float | None) -> str:
    """Say why a training ended before its last step, and how to train on."""
    result, checkpoint = run.result, run.checkpoint
    if result is not None and result.stopped is not None:
        return f"It was stopped {result.stopped}: the next step would spend more."
    # At its time limit a central run is evaluated; after a signal it is not.
    if max_minutes is not None and checkpoint is not None and checkpoint.evaluated == checkpoint.step:
        return f"The time limit central.max_minutes={max_minutes:g} is reached: raise it to train on."
    return "It was asked to stop: run the same command again to resume."


class TrainingDisplay:
    """A live line with step, loss, WER and speed on a terminal; a line now and then elsewhere."""

    def __init__(self, label: str = "step") -> None:
        """Start to show."""
        self._label = label
        self._bar = Progress(
            TextColumn(label, markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=stderr,
            disable=not stderr.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)
        self._said = time.monotonic()
        self._first: tuple[int, float] | None = None
        self._bar.start()

    def __call__(self, status: "Status") -> None:
        """Show the progress."""
        wer = "" if status.wer is None else f"  WER {100 * status.wer:.2f} %"
        loss = "" if status.loss is None else f"loss {status.loss:.3f}"
        epsilon = "" if status.epsilon is None else f"  epsilon {short_exponents(rounded_up(status.epsilon))}"
        text = f"{loss}{wer}{epsilon}  {status.speed}"
        self._bar.update(self._task, completed=status.step, total=status.steps, description=text)
        now = time.monotonic()
        self._first = self._first or (status.step, now)
        if not stderr.is_terminal and (now - self._said >= _LOG_SECONDS or status.step == status.steps):
            note(f"{self._label} {status.step} of {status.steps}: {text}{self._left(status, now)}")
            self._said = now

    def _left(self, status: "Status", now: float) -> str:
        """Return the time that is left, at the pace since the first step and within a limit on the time."""
        step, began = self._first or (status.step, now)
        done, left = status.step - step, status.steps - status.step
        if done <= 0 or left <= 0:
            return ""
        seconds = (now - began) / done * left
        allowed = seconds if status.seconds_allowed is None else status.seconds_allowed
        return f"  {round(min(seconds, allowed))} s left"

    def say(self, message: str) -> None:
        """Print a message above the line."""
        note(message)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._bar.stop()
