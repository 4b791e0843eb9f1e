"""sotto train: seed models and baselines on all data together, and federated training on users."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sottovoce.cli.arguments import ALL_CORES, AsJson, Workers
from sottovoce.cli.config import Preset, Settings
from sottovoce.cli.console import ProgressDisplay, note, print_json, stderr
from sottovoce.config import Layer, Resolved, resolve
from sottovoce.data.selection import Selection
from sottovoce.errors import ConfigError, DataError
from sottovoce.privacy.accounting import rounded_up
from sottovoce.runs.own_corpus import make_own_corpus

if TYPE_CHECKING:
    from sottovoce.runs.display import Status

app = typer.Typer(help="Train recognisers.", no_args_is_help=True)

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


Run = Annotated[Path, typer.Option("--run", help="The run's folder; an unfinished run in it goes on.")]
Train = Annotated[str | None, typer.Option("--train", metavar=Chosen, help="What to train on.")]
Dev = Annotated[str | None, typer.Option("--dev", metavar=Chosen, help="What chooses the best checkpoint.")]
Test = Annotated[str | None, typer.Option("--test", metavar=Chosen, help="Evaluated once, at the end.")]
SeedModel = Annotated[
    Path | None, typer.Option("--seed-model", metavar="CHECKPOINT", help="The model to start from; else at random.")
]


@app.command()
def central(
    preset: Preset,
    run: Run,
    seed_model: SeedModel = None,
    train: Train = None,
    dev: Dev = None,
    test: Test = None,
    settings: Settings = None,
    workers: Workers = ALL_CORES,
    as_json: AsJson = False,
) -> None:
    """Train a model on all data together: a seed model, or the bound that federated learning is compared with.

    Killed and started again, it goes on and ends with the same bits. Under torchrun its processes are used; otherwise
    --workers processes of this machine, one thread each.

    Example: sotto train central tiny --train stores/digits@train.txt --dev stores/digits@heldout.txt --run runs/digits
    """
    from sottovoce.central.central_training import train_central

    given = data_layers(train=train, dev=dev, test=test, seed_model=seed_model)
    resolved = resolve(preset, *(settings or ()), *given)
    _start(train_central, resolved, run, resolved.config.central.steps, workers, as_json)


@app.command()
def federated(
    preset: Preset,
    run: Run,
    seed_model: SeedModel = None,
    train: Train = None,
    dev: Dev = None,
    test: Test = None,
    settings: Settings = None,
    workers: Workers = ALL_CORES,
    as_json: AsJson = False,
) -> None:
    """Train a model on users who keep their audio: local SGD, clipping, exact sums, noise, a server optimizer.

    Killed and started again, it goes on and ends with the same bits, with any number of workers. A preset that names a
    corpus and no store makes the corpus in RUN/corpus.

    Example: sotto train federated quick --run runs/quick
    """
    from sottovoce.distributed import leads
    from sottovoce.federated.federated_training import train_federated
    from sottovoce.processes import under_torchrun

    given = [*(settings or ()), *data_layers(train=train, dev=dev, test=test, seed_model=seed_model)]
    resolved = resolve(preset, *given)
    if resolved.config.data.train is None and (dev or test):
        raise ConfigError("--dev and --test need --train: they must not share speakers with it.")
    if resolved.config.data.train is None and under_torchrun():
        raise ConfigError(
            "Under torchrun a run makes no corpus of its own. Start it once without, and give its lists with --train."
        )
    if resolved.config.data.train is None:
        with ProgressDisplay() as progress:
            own = make_own_corpus(resolved.config, run, workers, progress)
        resolved = resolve(preset, *given, own)
    if (void := resolved.config.privacy.void) is not None and leads():
        note(f"No privacy guarantee: {void}.")
    _start(train_federated, resolved, run, resolved.config.federated.central_steps, workers, as_json)


def _start(train: Callable[..., None], resolved: Resolved, run: Path, wanted: int, workers: int, as_json: bool) -> None:
    """Train on this machine's workers, or torchrun's, and say how it ended."""
    from sottovoce.distributed import leads, run_workers

    hardware = resolved.config.hardware
    run_workers(train, (resolved, run, TrainingDisplay), hardware.processes(workers), hardware.threads_per_worker)
    if leads():
        _report(run, resolved, wanted, as_json)


def _report(folder: Path, resolved: Resolved, wanted: int, as_json: bool) -> None:
    from sottovoce.runs.folder import Run

    run = Run(folder)
    checkpoint, result = run.checkpoint, run.result
    if checkpoint is None:
        raise DataError(f"{folder} holds no checkpoint.")
    evaluation = run.evaluations.get("test")
    test = evaluation.total if evaluation is not None and evaluation.steps == checkpoint.step else None
    if as_json:
        scores = {} if test is None else {"test": test.model_dump()}
        spent = {} if result is None else result.model_dump(include={"epsilon_rdp", "epsilon_pld", "guarantee"})
        about = {"run": str(folder), "preset": resolved.name, "wanted_steps": wanted}
        print_json({**about, **checkpoint.content(), **scores, **spent})
        return
    wer = checkpoint.best_wer
    best = "" if wer is None else f", best WER on dev {100 * wer:.2f} % ({folder / 'best'})"
    if checkpoint.step < wanted:
        reason = "early: run the same command again to resume"
        if result is not None and result.stopped is not None:
            reason = result.stopped
        note(f"{folder}: stopped at step {checkpoint.step} of {wanted}, {reason}{best}.")
    else:
        note(f"{folder}: {checkpoint.step} steps{best}. The last model is {folder / 'last' / 'model.safetensors'}.")
    if test is not None:
        note(f"WER on test, evaluated once: {100 * test.wer:.2f} %.")
    if result is not None and result.guarantee is not None:
        note(f"Guarantee: {result.guarantee}.")


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
        """Show how far the training is."""
        wer = "" if status.wer is None else f"  WER {100 * status.wer:.2f} %"
        loss = "" if status.loss is None else f"loss {status.loss:.3f}"
        epsilon = "" if status.epsilon is None else f"  epsilon {rounded_up(status.epsilon)}"
        text = f"{loss}{wer}{epsilon}  {status.speed}"
        self._bar.update(self._task, completed=status.step, total=status.steps, description=text)
        now = time.monotonic()
        self._first = self._first or (status.step, now)
        if not stderr.is_terminal and (now - self._said >= _LOG_SECONDS or status.step == status.steps):
            note(f"{self._label} {status.step} of {status.steps}: {text}{self._left(status, now)}")
            self._said = now

    def _left(self, status: "Status", now: float) -> str:
        """Return how long it will take, at the pace since the first step."""
        step, began = self._first or (status.step, now)
        done, left = status.step - step, status.steps - status.step
        return f"  {round((now - began) / done * left)} s left" if done > 0 and left > 0 else ""

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._bar.stop()
