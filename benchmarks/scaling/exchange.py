"""The exchange at the end of a step, measured between two processes of this machine, and the leader's own work."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from cost_laws import Report, Series, Sizes
from documents import Point
from setting import measured
from torch.distributed import TCPStore  # type: ignore[attr-defined] # torch's stubs do not export it

from sottovoce.distributed import Group
from sottovoce.model.partition import make_partition
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.noise import NoiseState
from sottovoce.privacy.privacy_options import Participation, Privacy
from sottovoce.privacy.step_noise import NoiseRequest, draw_noise

_REPETITIONS = 3
_NOISE_AT_MOST = 1 << 24  # coordinates: pieces of 2^18 all cost the same, and larger vectors measure fresh memory
_FETCHES = 2000


def exchange(sizes: Sizes, folder: Path, report: Report) -> Series:
    """Measure sum, broadcast, secure noise and hash of growing vectors, and a fetch from a common queue."""
    series: dict[str, list[Point]] = {}
    for coordinates in sizes.exchanged:
        for name, seconds in measured(exchanged, (coordinates,), 2, folder).items():
            series.setdefault(name, []).append(Point(x=coordinates, seconds=tuple(seconds)))
        report(
            f"{coordinates:,} coordinates: "
            + ", ".join(f"{name} {own[-1].median:.3f} s" for name, own in series.items())
        )
    fetch = Point(x=1, seconds=tuple(measured(fetched, (), 2, folder)))
    report(f"a fetch: {fetch.median * 1e6:.0f} us")
    return {**{name: tuple(points) for name, points in series.items()}, "fetch": (fetch,)}


def exchanged(group: Group, coordinates: int, out: Path) -> None:
    """Time the exchange of one vector; the leader writes its times."""
    sums, average = torch.ones(coordinates, dtype=torch.int64), torch.ones(coordinates)
    pieces: dict[str, Callable[[], object]] = {
        "sum to the leader": lambda: group.sum_to_leader_(sums),
        "broadcast": lambda: group.broadcast_(average),
    }
    alone: dict[str, Callable[[], object]] = {"hash": lambda: hashlib.sha256(sums.numpy().data).hexdigest()}
    if coordinates <= _NOISE_AT_MOST:
        alone["secure noise"] = lambda: draw_noise(_request(coordinates))
    times = {name: _times(group, work) for name, work in pieces.items()}
    if group.leads:
        times |= {name: _times(Group(), work) for name, work in alone.items()}
        out.write_text(json.dumps(times))
    group.barrier()


def _request(coordinates: int) -> NoiseRequest:
    """Return a request for the secure noise of one release."""
    mechanism = Mechanism(
        Privacy(clip_norm=1.0, clipping="global", sigma_dp=0.01),
        Participation(population=10_000, cohort_size=1000),
        make_partition(["theta"], [coordinates], "tensor"),
        "secure",
    )
    return NoiseRequest(mechanism, 0, 0, NoiseState())


def fetched(group: Group, out: Path) -> None:
    """Time fetches from a queue that the leader keeps: a counter that both processes increase."""
    own = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if group.leads else None
    port = group.from_leader(own.port if own else 0)
    queue = own or TCPStore("127.0.0.1", port, wait_for_workers=False)

    def fetch() -> None:
        for _ in range(_FETCHES):
            queue.add("next", 1)

    times = [seconds / _FETCHES for seconds in _times(group, fetch)]
    if not group.leads:
        out.write_text(json.dumps(times))
    group.barrier()


def _times(group: Group, work: Callable[[], object]) -> list[float]:
    """Return the times of some work, after one time that does not count."""
    times = []
    for _ in range(1 + _REPETITIONS):
        group.barrier()
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return times[1:]
