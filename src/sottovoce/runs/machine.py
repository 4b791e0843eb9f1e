"""The types of machine that a run was trained on: what its bits depend on besides code, configuration and data.

RUN/machines.json holds one entry for each type, and for each number of processes of a central run: a run that resumes
elsewhere has several.
"""

import platform
from functools import cache
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from sottovoce.runs.documents import Document


class Machine(BaseModel):
    """A type of machine. Equal machines give equal bits on CPUs; CUDA kernels make no such promise."""

    model_config = ConfigDict(frozen=True)

    cpu: str
    instructions: str  # that torch uses
    torch: str
    gpu: str | None = None  # where the run trains on one
    processes: int | None = None  # of a central run, whose sums are rounded by them; federated sums are exact

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.gpu or f'{self.cpu} ({self.instructions})'}, torch {self.torch}"


class Machines(Document):
    """The types of machine that a run was trained on, in the order of their first use."""

    FILE: ClassVar[str] = "machines.json"

    machines: tuple[Machine, ...] = ()


@cache
def this_machine(device: str = "cpu") -> Machine:
    """Return the type of this machine for training on a device: "cpu" or "cuda"."""
    import torch  # noqa: PLC0415 - reading what a run has recorded does not need it

    cpu, info = platform.processor(), Path("/proc/cpuinfo")
    if info.exists():
        named = (line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line)
        cpu = next(named, cpu)
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return Machine(cpu=cpu, instructions=torch.backends.cpu.get_cpu_capability(), torch=torch.__version__, gpu=gpu)


def machines_of(run: Path) -> tuple[Machine, ...]:
    """Return the types of machine that a run was trained on; none where an earlier version trained it."""
    known = Machines.find(run)
    return () if known is None else known.machines


def record_machine(run: Path, machine: Machine) -> None:
    """Add a type of machine to those of a run."""
    known = machines_of(run)
    if machine not in known:
        Machines(machines=(*known, machine)).write(run)
