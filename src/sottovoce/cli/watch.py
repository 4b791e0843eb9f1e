"""sotto watch: how far a training is, from the files of its run."""

import json
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from sottovoce.cli.console import note, stdout

if TYPE_CHECKING:
    from sottovoce.runs.following import RunStatus

_LOG_SECONDS = 10.0  # between two lines where there is no terminal
_LOG_LINES = 20  # of a whole run whose times may not be shown


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run; it need not exist yet.")],
    every: Annotated[
        float, typer.Option("--every", min=0.1, max=3600, help="Look at the run this often, in seconds.")
    ] = 2.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per line, whenever something has changed.")
    ] = False,
) -> None:
    """Show how far a training is, until it ends: step, loss, WER on dev, epsilon, pace and time left.

    It reads the run's own files, so it works from another terminal or another machine, and changes nothing about the
    training. It waits for a run that has not started. A run without diagnostics shows no loss and no times, as in its
    training. The exit code is 0 where the run has finished, and 1 where it was stopped or killed.

    Example: sotto watch runs/quick
    """
    from sottovoce.runs.following import FollowedRun

    followed = FollowedRun(run)
    shown = _Bar(run) if stdout.is_terminal and not as_json else _Lines(run, as_json=as_json)
    last = None
    with shown:
        while True:
            began = time.monotonic()
            status = followed.look()
            if status != last:
                shown.show(status)
                last = status
            if status.ended:
                break
            time.sleep(max(every, 4 * (time.monotonic() - began)))
    if not as_json:
        note(_end(status, run))
    if status.state != "finished":
        raise typer.Exit(1)


def _print(status: "RunStatus", run: Path) -> None:
    sys.stdout.write(json.dumps({"run": str(run), **asdict(status)}, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def _figures(status: "RunStatus") -> str:
    """Return the figures in one line."""
    from sottovoce.privacy.accounting import rounded_up, short_exponents

    parts = [
        None if status.loss is None else f"loss {status.loss:.3f}",
        None if status.dev_wer is None else f"WER on dev {100 * status.dev_wer:.2f} %",
        None if status.epsilon is None else f"epsilon {short_exponents(rounded_up(status.epsilon))}",
        None if status.seconds_per_step is None else f"{status.seconds_per_step:.3g} s per step",
        None if status.seconds_left is None else f"{_time(status.seconds_left)} left",
    ]
    return "  ".join(part for part in parts if part)


def _time(seconds: float) -> str:
    """Return a time for people: 12 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def _end(status: "RunStatus", run: Path) -> str:
    steps = f"{status.step:,} of {status.steps:,} steps"
    if status.state == "finished":
        figures = _figures(status)
        return f"{run} has finished: {steps}. {figures}".rstrip()
    how = "was killed, or its machine went down" if status.state == "killed" else "was stopped"
    return f"{run} {how} after {steps}. Run the same training command again to resume."


def _before(status: "RunStatus", run: Path) -> str | None:
    """Return what to say of a run that takes no steps yet."""
    if status.state == "not started":
        return f"{run} has not started yet. Waiting for it; Ctrl-C ends this."
    return f"{run} is starting." if status.state == "starting" else None


class _Lines:
    """A line now and then or, where times are private, at fixed steps.

    As JSON, every change is a line, unless times are private.
    """

    def __init__(self, run: Path, *, as_json: bool) -> None:
        self._run, self._said, self._step, self._as_json = run, -math.inf, 0, as_json

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def show(self, status: "RunStatus") -> None:
        """Print a line where one is due."""
        before = _before(status, self._run)
        if self._as_json:
            if before is not None or self._is_due(status):
                self._step = status.step
                _print(status, self._run)
        elif before is not None:
            note(before)
        elif self._is_due(status):
            self._said, self._step = time.monotonic(), status.step
            stdout.print(f"step {status.step} of {status.steps}: {_figures(status)}", soft_wrap=True, markup=False)

    def _is_due(self, status: "RunStatus") -> bool:
        if status.ended:
            return self._as_json
        if status.elapsed_seconds is None:
            parts = max(status.steps, 1)
            return status.step * _LOG_LINES // parts > self._step * _LOG_LINES // parts
        return self._as_json or time.monotonic() - self._said >= _LOG_SECONDS


class _Bar:
    """A live line on a terminal."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._bar = Progress(
            TextColumn("step", markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TextColumn("{task.description}", markup=False),
            console=stdout,
            redirect_stdout=False,
        )
        self._task = self._bar.add_task("", total=None, visible=False)

    def __enter__(self) -> "_Bar":
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def show(self, status: "RunStatus") -> None:
        """Show the progress."""
        before = _before(status, self._run)
        if before is not None:
            note(before)
            return
        self._bar.update(
            self._task, completed=status.step, total=status.steps, description=_figures(status), visible=True
        )
