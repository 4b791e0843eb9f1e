"""Stopping a training early: asked for by a signal, or because its time is up. All processes decide the same."""

import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

import torch

from sottovoce.distributed import FINISHING, Group

VOTES = 2  # of each process: whether it was asked to stop, and whether time is up


@dataclass
class Stop:
    """Whether to stop after the current step."""

    asked: bool = False  # this process got a signal
    deadline: float | None = None  # on the clock of time.monotonic
    interrupted: bool = False  # all processes agreed to stop because of a signal
    by_keyboard: bool = False

    def listen(self) -> None:
        """Take SIGTERM, and Ctrl-C the first time, as a request to stop after the step instead of ending at once."""
        signal.signal(signal.SIGTERM, self._ask)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._ask)

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
