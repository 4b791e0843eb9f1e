"""How fast federated learning is: users a second, time outside forward and backward, two workers, memory, cohorts.

    python benchmarks/federated.py [--json]

Everything is taken in one run, on audio made on the spot, and printed as ratios where machines differ.
"""

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from report import print_report
from sottovoce.config import resolve
from sottovoce.data.batching import Batching
from sottovoce.data.cohort import poisson_cohort
from sottovoce.data.corpora import Table
from sottovoce.data.population import Population
from sottovoce.data.preparation import prepare
from sottovoce.data.store import Store
from sottovoce.distributed import Group
from sottovoce.features.specaugment import SpecAugment
from sottovoce.federated import client as client_module
from sottovoce.federated.client import Client
from sottovoce.federated.diagnostics import Figures
from sottovoce.federated.engine import Engine
from sottovoce.federated.federated_options import Local
from sottovoce.federated.process_aggregator import ProcessAggregator
from sottovoce.model.recogniser import Recogniser
from sottovoce.optim import Lamb
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy
from sottovoce.randomness import stream
from sottovoce.workers import run_workers

SPEAKERS, UTTERANCES, SECONDS = 32, 8, 4.0
COHORT = 32
LARGE_COHORT = 4096


def make_store(folder: Path) -> Store:
    """Prepare a corpus of noise: what is in it does not matter for speed."""
    rng = np.random.default_rng(0)
    lines = ["path\tspeaker\ttext"]
    for speaker in range(SPEAKERS):
        for number in range(UTTERANCES):
            name = f"s{speaker}-{number}.flac"
            seconds = SECONDS * rng.uniform(0.5, 1.5)
            soundfile.write(folder / name, 0.1 * rng.standard_normal(int(16_000 * seconds)), 16_000)
            lines.append(f"{name}\ts{speaker:03d}\tone two three four five")
    (folder / "index.tsv").write_text("\n".join(lines) + "\n")
    return prepare(Table(file=folder / "index.tsv"), folder / "store", workers=1)


def users_of(store: Store, users: int) -> Population:
    """Return so many users, who share the store's speakers."""
    offsets = store.speaker_offsets
    rows = [np.arange(offsets[user % SPEAKERS], offsets[user % SPEAKERS + 1]) for user in range(users)]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(mine) for mine in rows])])
    return Population(store, "speaker", ends, np.concatenate(rows))


def make_engine(group: Group, path: Path, users: int, local: Local, seconds: float) -> Engine:
    """Return an engine with the tiny model and everyone in every cohort."""
    store = Store.open(path)
    model = Recogniser.make(resolve("tiny").config.model, store.token_set).initialise(0)
    privacy = Privacy(clip_norm=0.1, clipping="dim", sigma_dp=1e-4)
    mechanism = Mechanism(privacy, Participation(population=users, sampling="everyone"), model.flat.partition())
    server = Lamb()
    client = Client(store, Batching(seconds=seconds), local, SpecAugment(), 0)
    aggregator = ProcessAggregator(group, users_of(store, users), model, client, mechanism)
    state = server.start(model.flat.theta)
    return Engine(aggregator, model, mechanism, server, state, users=users, seed=0)


class Stopwatch:
    """Adds up the time that some functions take."""

    def __init__(self) -> None:
        """Start at zero."""
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = function(*arguments)
            self.seconds += time.perf_counter() - began
            return result

        return timed


def timed_steps(group: Group, path: Path, steps: int, out: Path) -> None:
    """Take steps and write how long each took, and which shares were forward and backward, and statistics."""
    learning, statistics = Stopwatch(), Stopwatch()
    client_module.add_gradient = learning.around(client_module.add_gradient)
    for name in ("user", "released", "packed", "unpack_"):
        setattr(Figures, name, statistics.around(getattr(Figures, name)))
    engine = make_engine(group, path, COHORT, Local(steps=4), 20.0)
    engine.step(0, 0.001)
    results = []
    for t in range(1, steps + 1):
        learning.seconds, statistics.seconds, began = 0.0, 0.0, time.perf_counter()
        engine.step(t, 0.001)
        seconds = time.perf_counter() - began
        results.append((seconds, 1 - learning.seconds / seconds, statistics.seconds / seconds))
    if group.leads:
        names = ("seconds", "outside", "statistics")
        out.write_text(json.dumps(dict(zip(names, np.median(results, axis=0).tolist(), strict=True))))


def memory(group: Group, path: Path, users: int, out: Path) -> None:
    """Take one step with a cohort of so many users and write the largest memory."""
    engine = make_engine(group, path, users, Local(steps=1), 2.0)
    engine.step(0, 0.001)
    out.write_text(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def measured(function: Any, arguments: tuple[Any, ...], workers: int, folder: Path) -> Any:
    """Run a measurement in processes that are thrown away, and return what it wrote."""
    out = folder / "measured.json"
    out.unlink(missing_ok=True)
    process = multiprocessing.get_context("spawn").Process(
        target=run_workers, args=(function, (*arguments, out), workers, 1)
    )
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit("A measurement failed.")
    return json.loads(out.read_text())


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = make_store(folder).path
        one, two = [], []
        for _ in range(2):
            one.append(measured(timed_steps, (path, arguments.steps), 1, folder))
            two.append(measured(timed_steps, (path, arguments.steps), 2, folder))
        small, large = (measured(memory, (path, users), 1, folder) for users in (16, LARGE_COHORT))
    began = time.perf_counter()
    members = len(poisson_cohort(70_000_000, 204_800 / 70_000_000, stream(0, "cohort")))
    drawn = time.perf_counter() - began
    alone, both = (min(result["seconds"] for result in results) for results in (one, two))
    report = {
        "users per second, one worker": COHORT / alone,
        "users per second, two workers": COHORT / both,
        "two workers / one": alone / both,
        "share outside forward and backward, one worker": min(result["outside"] for result in one),
        "share outside forward and backward, two workers": min(result["outside"] for result in two),
        "share of time for statistics of deltas": min(result["statistics"] for result in one),
        f"MB with a cohort of {LARGE_COHORT}": large,
        f"memory, cohort of {LARGE_COHORT} / 16": large / small,
        f"seconds to draw {members} of 70 million users": drawn,
    }
    print_report(report, as_json=arguments.json)


if __name__ == "__main__":
    main()
