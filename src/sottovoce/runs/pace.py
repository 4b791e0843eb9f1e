"""The pace of a training, and the time that is left at it.

Time left follows the steps of late: their median, so that one slow step means little. Pauses between steps, which are
evaluations and checkpoints, come now and then: they are counted apart, at their mean share over all steps seen.
"""

import statistics
from collections import deque
from dataclasses import dataclass, field

DAY_SECONDS = 86_400.0
_WINDOW = 30  # steps
_PAUSE = 3.0  # an interval this many times as long as the median holds a pause
_ENOUGH_STEPS, _ENOUGH_SECONDS = 5, 60.0  # either is enough to say how long a run will take


@dataclass
class Pace:
    """The intervals between the ends of steps, each measured on a clock of seconds."""

    last: float  # when the last step ended, or the first one began
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _steps: int = 0
    _seconds: float = 0.0
    _paused: float = 0.0

    def step_done(self, now: float) -> None:
        """Count a step that has ended now."""
        interval, self.last = now - self.last, now
        usual = statistics.median(self._recent) if self._recent else interval
        if interval > _PAUSE * usual and len(self._recent) > 1:
            self._paused += interval - usual
        self._recent.append(interval)
        self._steps += 1
        self._seconds += interval

    @property
    def known(self) -> bool:
        """Whether enough was seen to say how long a whole run takes."""
        return self._steps >= _ENOUGH_STEPS or self._seconds >= _ENOUGH_SECONDS

    def seconds_for(self, steps: int) -> float | None:
        """Return how long this many further steps take; None before the first step."""
        if not self._recent:
            return None
        return steps * (statistics.median(self._recent) + self._paused / self._steps)


def duration(seconds: float) -> str:
    """Return a time as people say it: 40 s, 12 min, 3 h 20 min, 2 days 5 h."""
    if seconds < 90:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, over = divmod(round(seconds / 3600), 24)
    return f"{days:,} days {over} h" if over else f"{days:,} days"
