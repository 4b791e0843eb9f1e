"""Measure how a central step scales, simulate it on 1,024 workers, and write the page about both.

    python benchmarks/scaling/measure.py --page docs/scaling.md --json docs/scaling.json     # measure, then write
    python benchmarks/scaling/measure.py --page docs/scaling.md --from docs/scaling.json     # write only
    python benchmarks/scaling/measure.py --only cohort model                                 # measure some parts

A part that is measured is kept below `build/scaling` and measured again only where the code has changed. Run it on a
quiet machine. `--quick` tries everything out in a few minutes, with sizes that say nothing.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cost_laws
from cost_laws import FULL, QUICK, Report, Series, Sizes
from documents import Machine, MeasuredStep, Measurements, Part, write_part
from exchange import exchange
from worker_steps import worker_steps

from sottovoce.bench.code_version import code_version
from sottovoce.config import resolve
from sottovoce.estimate.devices import here

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
_MEASURING = ("cost_laws.py", "setting.py", "exchange.py", "worker_steps.py")  # modules that decide what is measured
_REFERENCE_PACE = 1 / 40e9  # seconds per FLOP of the machine that `seconds` below were taken on
_QUIET_LOAD = 0.5


@dataclass(frozen=True)
class Work:
    """A part of the benchmark."""

    about: str
    seconds: float  # expected on the reference machine
    series: Callable[[Sizes, Path, Report], Series] | None = None
    steps: Callable[[Sizes, Path, Report], tuple[MeasuredStep, ...]] | None = None


PARTS = {
    "cohort": Work("cohorts of growing size", 240, cost_laws.cohort),
    "local-steps": Work("growing numbers of local steps", 130, cost_laws.local_steps),
    "audio": Work("growing local batches", 70, cost_laws.audio),
    "population": Work("growing populations", 110, cost_laws.population),
    "model": Work("growing models, up to the paper's with secure noise", 360, cost_laws.model),
    "noise": Work("noise with one and two workers", 150, cost_laws.noise),
    "exchange": Work("sums, averages, noise and hashes", 60, exchange),
    "workers": Work("one and two workers, user by user", 200, steps=worker_steps),
}


def measuring_code() -> str:
    """Return the version of the code that is measured and of the code that measures."""
    hasher = hashlib.sha256(code_version().encode())
    for name in _MEASURING:
        hasher.update((HERE / name).read_bytes())
    return hasher.hexdigest()[:12]


def main() -> None:
    """Measure the parts that are missing, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="the parts to measure")
    parser.add_argument("--again", action="store_true", help="measure parts that were measured before")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the benchmark out")
    parser.add_argument("--estimate", action="store_true", help="print how long measuring takes, and stop")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "scaling", help="stores and measured parts")
    parser.add_argument("--json", type=Path, help="write the measurements into this file")
    parser.add_argument("--from", dest="source", type=Path, help="read the measurements instead of measuring")
    parser.add_argument("--page", type=Path, help="write the page, with its pictures in the folder images beside it")
    options = parser.parse_args()
    if options.source is not None:
        measurements = Measurements.read(options.source)
    else:
        build = options.build / ("quick" if options.quick else "full")
        _measure_missing(options.only, build, quick=options.quick, again=options.again, estimate=options.estimate)
        if options.estimate:
            return
        measurements = _collected(build)
    if options.json is not None:
        measurements.write(options.json)
    if options.page is not None:
        from page import write_page  # noqa: PLC0415 - processes that measure import this module, but draw nothing

        write_page(measurements, options.page)
        print(options.page)


def _measure_missing(names: Sequence[str], build: Path, *, quick: bool, again: bool, estimate: bool) -> None:
    code, sizes = measuring_code(), QUICK if quick else FULL
    missing = [name for name in names if again or not _is_measured(build / f"{name}.json", code)]
    _print_estimate(missing, quick=quick)
    if estimate:
        return
    stores = build / "stores"
    stores.mkdir(parents=True, exist_ok=True)
    for name in missing:
        work, began = PARTS[name], time.monotonic()
        print(f"{name}: {work.about}", file=sys.stderr)
        series = work.series(sizes, stores, _report) if work.series else {}
        steps = work.steps(sizes, stores, _report) if work.steps else ()
        took = time.monotonic() - began
        part = Part(code=code, quick=quick, took_seconds=took, series=series, steps=steps)
        write_part(build / f"{name}.json", part)
        print(f"{name}: {took:.0f} s", file=sys.stderr)


def _is_measured(path: Path, code: str) -> bool:
    return path.exists() and json.loads(path.read_text())["code"] == code


def _print_estimate(names: Sequence[str], *, quick: bool) -> None:
    """Say how long the parts will take, and warn where other work will distort them."""
    if not names:
        return
    pace = here(resolve("tiny").config, "en", 10.0, 5.0).seconds_per_flop or _REFERENCE_PACE
    scale = pace / _REFERENCE_PACE * (0.25 if quick else 1.0)
    for name in names:
        print(f"{name:12} {PARTS[name].about:55} about {scale * PARTS[name].seconds / 60:4.1f} min", file=sys.stderr)
    print(f"in all about {scale * sum(PARTS[name].seconds for name in names) / 60:.0f} min", file=sys.stderr)
    load = os.getloadavg()[0]
    if load > _QUIET_LOAD:
        print(f"The load is {load:.1f}: other work on this machine will distort the times.", file=sys.stderr)


def _collected(build: Path) -> Measurements:
    """Return all parts that are measured; they may be of different age, which the page says."""
    files = {name: build / f"{name}.json" for name in PARTS}
    parts = {name: Part.model_validate_json(path.read_text()) for name, path in files.items() if path.exists()}
    return Measurements(machine=Machine.here(), parts=parts)


def _report(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
