"""The item under Sottovoce's own engine: python run_sottovoce.py FOLDER OUT [WORKERS]."""

import sys
import time
from pathlib import Path

from export import make_engine
from items import Item
from measuring import Measured, Stopwatch

from sottovoce.data.store import Store
from sottovoce.distributed import Group
from sottovoce.federated import client as client_module
from sottovoce.workers import run_workers


def run(group: Group, folder: Path, out: Path) -> None:
    """Take the steps of an item in one process of the group."""
    item = Item.read(folder)
    engine = make_engine(item, Store.open(item.store(folder)), group)
    measured = Measured(parameters=engine.theta.numel())
    compute = client_module.add_gradient

    def timed(recogniser, micro, choices, weight):
        began = time.perf_counter()
        loss = compute(recogniser, micro, choices, weight)
        measured.learning += time.perf_counter() - began
        measured.frames += int(micro.batch.frames.sum())
        return loss

    client_module.add_gradient = timed
    watch = Stopwatch(measured, leads=group.leads, meet=group.barrier)
    for t in range(item.steps + 1):
        engine.step(t, 0.001)
        measured.users += item.cohort
        watch.step_ended()
    everyone = group.gather((measured.learning, measured.frames))
    if group.leads:
        measured.learning = sum(learning for learning, _ in everyone)
        measured.frames = sum(frames for _, frames in everyone)
        measured.users = item.cohort * item.steps
        measured.write(out)


if __name__ == "__main__":
    run_workers(run, (Path(sys.argv[1]), Path(sys.argv[2])), int(sys.argv[3]) if len(sys.argv) > 3 else 1, 1)
