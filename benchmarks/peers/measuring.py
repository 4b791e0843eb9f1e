"""What every runner measures: the time of each central step and of forward and backward, and the frames.

Runners take turns: after each step a runner says so and waits until it may take the next one. Nothing of the waiting is
timed.
"""

import json
import os
import time
from collections.abc import Callable
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


class Turns:
    """Steps that a runner takes when it is told to, agreed upon by empty files in a folder of its own.

    The folder above is named after the process that tells it to. Where that has ended, the runner ends, too.
    """

    VARIABLE = "SOTTO_BENCH_TURNS"  # of a runner's environment: its folder; without it, nobody waits

    def __init__(self, folder: Path) -> None:
        """Take the folder."""
        self._folder = folder

    def wait(self, step: int) -> None:
        """Say, as the runner, that a step has ended, and wait until the next one may begin."""
        (self._folder / f"ended-{step}").touch()
        while not (self._folder / f"begin-{step + 1}").exists():
            if not Path("/proc", self._folder.parent.name).exists():
                raise SystemExit("The comparison has ended.")
            time.sleep(0.02)

    def begin(self, step: int) -> None:
        """Let the runner take a step; after the last one, let it end."""
        (self._folder / f"begin-{step}").touch()

    def has_ended(self, step: int) -> bool:
        """Whether the runner has taken a step."""
        return (self._folder / f"ended-{step}").exists()


class Stopwatch:
    """Times the central steps of a run; the first one is a warm-up.

    After a step, the process that `leads` waits for its next turn; `meet` holds the other processes back meanwhile.
    """

    def __init__(self, measured: Measured, *, leads: bool = True, meet: Callable[[], None] = lambda: None) -> None:
        """Begin with the first step."""
        self.measured, self._meet = measured, meet
        folder = os.environ.get(Turns.VARIABLE)
        self._turns = Turns(Path(folder)) if folder and leads else None
        self._began = time.perf_counter()

    def step_ended(self) -> None:
        """Note the end of a central step, and wait until the next one begins."""
        now = time.perf_counter()
        self.measured.ends.append(time.time())
        if len(self.measured.ends) == 1:
            self.measured.learning, self.measured.frames, self.measured.users = 0.0, 0, 0
        else:
            self.measured.steps.append(now - self._began)
        if self._turns is not None:
            self._turns.wait(len(self.measured.ends) - 1)
        self._meet()
        self._began = time.perf_counter()
