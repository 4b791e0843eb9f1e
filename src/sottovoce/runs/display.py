"""The progress of a training, as it is shown to people. `sottovoce.cli` has the display for terminals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Status:
    """The progress of a training after a step."""

    step: int  # how many are done
    steps: int  # how many there will be
    loss: float | None
    wer: float | None  # on dev, at the last evaluation
    speed: str
    epsilon: float | None = None
    seconds_left: float | None = None  # at the pace of late, within a limit on the time; None before it is known
    wer_step: int | None = None  # the step of that evaluation
    timed: bool = True  # times may be shown; in a run without diagnostics they may not: users' audio takes time


class Display(Protocol):
    """Shows the progress of a training."""

    def __call__(self, status: Status) -> None:
        """Show the status."""

    def say(self, message: str) -> None:
        """Show a message in one line."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class NoDisplay:
    """Shows nothing: for every process but rank 0, and for Python programs."""

    def __call__(self, status: Status) -> None:
        """Show nothing."""

    def say(self, message: str) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Do nothing."""


MakeDisplay = Callable[[], Display]
