"""Engines for measurements: a preset with settings, on a store of silence that is written in moments.

The time of a step does not depend on what the audio contains, so the features are zeros that occupy no disk.
"""

import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))  # the other benchmarks
from documents import Point

from data import peak_megabytes, write_silent_store
from federated import measured
from sottovoce.config import Config, parse_setting, resolve
from sottovoce.data.population import Population
from sottovoce.data.store import IntArray, Store
from sottovoce.distributed import Group
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.federated.client import Client
from sottovoce.federated.engine import Engine
from sottovoce.federated.process_aggregator import ProcessAggregator
from sottovoce.model.recogniser import Recogniser
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.mechanism import Mechanism

__all__ = [
    "CENTRAL_LR",
    "Setting",
    "make_engine",
    "measured",
    "measured_point",
    "peak_megabytes",
    "write_users",
]

# A private run like the paper's, for any model.
PRIVATE = ("privacy.clip_norm=0.01", "privacy.clipping=dim", "privacy.sigma_dp=1e-4")
CENTRAL_LR = 0.001


@dataclass(frozen=True)
class Setting:
    """A configuration and a store."""

    store: Path
    preset: str
    settings: tuple[str, ...] = ()  # as after --set
    ledger: Path | None = None

    @property
    def config(self) -> Config:
        """The whole configuration."""
        layers = [parse_setting(text) for text in (*PRIVATE, "specaugment=null", *self.settings)]
        return resolve(self.preset, *layers).config


@dataclass
class StepTimes:
    """The times of the central steps of one process, and its memory."""

    seconds: list[float] = field(default_factory=list)
    cpu_by_process: list[float] = field(default_factory=list)  # of one step, the median
    phases: list[dict[str, float]] = field(default_factory=list)
    megabytes: float = 0.0


def write_users(path: Path, seconds_by_user: list[list[float]]) -> Path:
    """Write a store of silence with utterances of these lengths for each user, unless it exists; return its path."""
    if not path.exists():
        frames = [max(round(length * FRAMES_PER_SECOND), 1) for user in seconds_by_user for length in user]
        counts: IntArray = np.array([len(user) for user in seconds_by_user])
        write_silent_store(path, np.array(frames), counts)
    return path


def make_engine(group: Group, setting: Setting) -> Engine:
    """Return the engine of a configuration, as a run makes it."""
    config = setting.config
    store = Store.open(setting.store)
    users = Population.of(store)
    recogniser = Recogniser.make(config.model, store.token_set).initialise(config.seed)
    partition = recogniser.flat.partition(config.federated.partition)
    mechanism = Mechanism(config.privacy, config.participation, partition, config.randomness.source)
    client = Client(store, config.batching, config.federated.local, config.specaugment, config.seed)
    ledger = None
    if setting.ledger is not None and group.leads:
        header = LedgerHeader.of(mechanism, unit=users.unit, seed_model="", config_hash="")
        ledger = Ledger(setting.ledger, header, None)
    return Engine(
        ProcessAggregator(group, users, recogniser, client, mechanism),
        recogniser,
        mechanism,
        config.federated.optimizer,
        config.federated.optimizer.start(recogniser.flat.theta),
        users=len(users),
        seed=config.seed,
        ledger=ledger,
    )


def timed_steps(group: Group, setting: Setting, warm_up: int, steps: int, out: Path) -> None:
    """Take steps, the first `warm_up` of them untimed; write their times and the memory of all processes."""
    engine, times, cpu_seconds = make_engine(group, setting), StepTimes(), []
    for t in range(warm_up + steps):
        group.barrier()
        began, cpu = time.perf_counter(), time.process_time()
        figures = engine.step(t, CENTRAL_LR)
        group.barrier()
        if t >= warm_up:
            times.seconds.append(time.perf_counter() - began)
            cpu_seconds.append(time.process_time() - cpu)
            times.phases.append(figures.seconds)
    everyone = group.gather((statistics.median(cpu_seconds), peak_megabytes()))
    if group.leads:
        times.cpu_by_process = [cpu for cpu, _ in everyone]
        times.megabytes = sum(memory for _, memory in everyone)
        out.write_text(json.dumps(vars(times)))


def measured_point(
    x: float, setting: Setting, folder: Path, *, workers: int = 1, warm_up: int = 1, steps: int
) -> Point:
    """Time central steps in processes of their own."""
    times = StepTimes(**measured(timed_steps, (setting, warm_up, steps), workers, folder))
    phases = {name: statistics.median(step[name] for step in times.phases) for name in times.phases[0]}
    return Point(
        x=x,
        seconds=tuple(times.seconds),
        cpu_by_process=tuple(times.cpu_by_process),
        megabytes=times.megabytes,
        phases=phases,
    )
