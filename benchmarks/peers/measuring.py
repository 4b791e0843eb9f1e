"""What every runner measures: the time of each central step and of forward and backward, and the frames."""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Measured:
    """The figures of one process; those of several are added up."""

    parameters: int = 0
    steps: list[float] = field(default_factory=list)  # seconds of each central step; the first is not timed
    ends: list[float] = field(default_factory=list)  # when each step ended, by the clock of the machine
    learning: float = 0.0  # seconds in forward and backward passes after the first step
    frames: int = 0  # of audio in all steps but the first, without padding
    users: int = 0

    def write(self, path: Path) -> None:
        """Write the figures for `compare.py`."""
        path.write_text(json.dumps(asdict(self)))


class Stopwatch:
    """Times the central steps of a run; the first one is a warm-up."""

    def __init__(self, measured: Measured) -> None:
        """Begin with the first step."""
        self.measured, self._began = measured, time.perf_counter()

    def step_ended(self) -> None:
        """Note the end of a central step."""
        now = time.perf_counter()
        self.measured.ends.append(time.time())
        if len(self.measured.ends) == 1:
            self.measured.learning, self.measured.frames, self.measured.users = 0.0, 0, 0
        else:
            self.measured.steps.append(now - self._began)
        self._began = time.perf_counter()
