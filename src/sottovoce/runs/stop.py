"""Stopping a training early: asked for by a signal, or because its time is up. All processes decide the same."""

import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from sottovoce.distributed import Group
from sottovoce.workers import FINISHING

VOTES = 2  # of each process: whether it was asked to stop, and whether time is up


@dataclass
class Stop:
    """Whether to stop after the current step."""

    asked: bool = False  # this process got a signal
    deadline: float | None = None  # on the clock of time.monotonic
    interrupted: bool = False  # all processes agreed to stop because of a signal
    by_keyboard: bool = False
    _before: dict[int, Any] = field(default_factory=dict)  # the signal handlers that `release` restores

    def listen(self) -> None:
        """Take SIGTERM, and Ctrl-C the first time, as a request to stop after the step instead of ending at once.

        In a thread other than the main one this does nothing: Python delivers signals to the main thread alone.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if number == signal.SIGTERM or handler is signal.default_int_handler:
                self._before.setdefault(number, handler)
                signal.signal(number, self._ask)

    def release(self) -> None:
        """Restore the signal handlers from before the first `listen`."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if number == signal.SIGINT:
            self.by_keyboard = True
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.stderr.write(FINISHING)

    def votes(self) -> list[float]:
        """Return this process' votes for stopping."""
        return [float(self.asked), float(self.deadline is not None and time.monotonic() > self.deadline)]

    def decide(self, votes: Sequence[float]) -> bool:
        """Return whether to stop, from the sum of all processes' votes: the same answer everywhere."""
        self.interrupted = votes[0] > 0
        return any(votes)

    def agreed(self, group: Group) -> bool:
        """Ask all processes for their votes, and decide."""
        return self.decide(group.sum_(torch.tensor(self.votes())).tolist())
