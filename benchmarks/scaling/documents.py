"""The measurements as documents: everything that the page is drawn from, in one small JSON file."""

import json
import os
import platform
import statistics
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from sottovoce.files import write_json

_DIGITS = 5  # significant digits in the file


class Document(BaseModel):
    """A part of the JSON file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Point(Document):
    """One measured size."""

    x: float
    seconds: tuple[float, ...]  # wall time of every repetition
    cpu_by_process: tuple[float, ...] = ()  # median CPU time of each process
    megabytes: float | None = None  # the most that all processes together held
    phases: dict[str, float] = {}  # median seconds of each phase of a central step

    @property
    def median(self) -> float:
        """The median time."""
        return statistics.median(self.seconds)

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of all processes."""
        return sum(self.cpu_by_process)


class UserTime(Document):
    """One user's local work in a measured step."""

    name: str
    process: int
    cost_seconds: float  # of audio: the local work, as the engine estimates it
    seconds: float


class MeasuredStep(Document):
    """One central step, user by user."""

    cohort: int
    t: int
    rule: str  # how the users came to the processes
    workers: int
    users: tuple[UserTime, ...]
    waited: tuple[float, ...]  # for each process: the time before its first user starts
    phases: dict[str, float]  # on the leader; `users` lasts until the slowest process ends
    seconds: float

    @property
    def busy(self) -> tuple[float, ...]:
        """How long each process was busy with its users."""
        own: list[list[float]] = [[] for _ in range(self.workers)]
        for user in self.users:
            own[user.process].append(user.seconds)
        return tuple(before + sum(times) for before, times in zip(self.waited, own, strict=True))

    @property
    def idle(self) -> float:
        """The share of the processes' time that they wait for the slowest one."""
        return 1 - sum(self.busy) / (self.workers * max(self.busy))


class Part(Document):
    """The measurements of one part of the benchmark."""

    code: str  # the hash of the measured source code
    quick: bool
    took_seconds: float
    series: dict[str, tuple[Point, ...]]
    steps: tuple[MeasuredStep, ...] = ()


class Machine(Document):
    """The machine of the measurements."""

    processor: str
    cores: int
    gigabytes: float

    @classmethod
    def here(cls) -> "Machine":
        """Describe this machine."""
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.processor())
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        return cls(processor=model, cores=os.cpu_count() or 1, gigabytes=round(memory, 1))


class Measurements(Document):
    """All measured parts."""

    machine: Machine
    parts: dict[str, Part]

    @property
    def quick(self) -> bool:
        """Whether any part was measured with the small sizes for trying the benchmark out."""
        return any(part.quick for part in self.parts.values())

    @property
    def codes(self) -> set[str]:
        """The versions of the source code that were measured; more than one where parts are of different age."""
        return {part.code for part in self.parts.values()}

    def points(self, part: str, series: str) -> tuple[Point, ...]:
        """Return a series of a part; empty where it was not measured."""
        return self.parts[part].series.get(series, ()) if part in self.parts else ()

    def write(self, path: Path) -> None:
        """Write the file, with few digits so that it stays small."""
        write_json(path, _rounded(self.model_dump(mode="json")))

    @classmethod
    def read(cls, path: Path) -> "Measurements":
        """Read what `write` wrote."""
        return cls.model_validate(json.loads(path.read_text()))


def write_part(path: Path, part: Part) -> None:
    """Write one part into a file of its own."""
    write_json(path, _rounded(part.model_dump(mode="json")))


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return value
