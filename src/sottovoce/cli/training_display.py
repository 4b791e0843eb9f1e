"""The progress of a training on stderr.

A run without diagnostics shows no times: how long a step takes depends on the users in it. For the same reason its
lines come at fixed steps, not at fixed times.
"""

import time
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sottovoce.cli.console import note, stderr
from sottovoce.privacy.accounting import rounded_up, short_exponents
from sottovoce.runs.pace import duration

if TYPE_CHECKING:
    from sottovoce.runs.display import Status

_LOG_SECONDS = 10.0
_UNTIMED_COLUMNS = 4
_LOG_LINES = 20  # of a whole run whose times may not be shown


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
            console=stderr,
            disable=not stderr.is_terminal,
            redirect_stdout=False,
        )
        self._task = self._bar.add_task("", total=None)
        self._said = time.monotonic()
        self._bar.start()

    def __call__(self, status: "Status") -> None:
        """Show the progress."""
        wer = "" if status.wer is None else f"WER on dev {100 * status.wer:.2f} %"
        if wer and status.wer_step is not None:
            wer += f" at step {status.wer_step:,}"
        loss = "" if status.loss is None else f"loss {status.loss:.3f}"
        epsilon = "" if status.epsilon is None else f"epsilon {short_exponents(rounded_up(status.epsilon))}"
        left = f"{duration(status.seconds_left)} left" if status.timed and status.seconds_left else ""
        text = "  ".join(part for part in (loss, wer, epsilon, status.speed, left) if part)
        if status.timed and len(self._bar.columns) == _UNTIMED_COLUMNS:
            self._bar.columns = (*self._bar.columns, TimeElapsedColumn())
        self._bar.update(self._task, completed=status.step, total=status.steps, description=text)
        now = time.monotonic()
        if not stderr.is_terminal and self._is_due(status, now):
            note(f"{self._label} {status.step:,} of {status.steps:,}: {text}")
            self._said = now

    def _is_due(self, status: "Status", now: float) -> bool:
        """Return whether to print a line: now and then or, where times are private, at fixed steps."""
        if status.timed:
            return now - self._said >= _LOG_SECONDS or status.step == status.steps
        return status.step * _LOG_LINES // status.steps > (status.step - 1) * _LOG_LINES // status.steps

    def say(self, message: str) -> None:
        """Print a message above the line."""
        note(message)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._bar.stop()
