"""make fuzz: run many cases in parallel, print every finding and a summary; the exit code is 1 where there is one.

python -m fuzz --seed 1 --cases 10000        # all
python -m fuzz --seed 1 --case 4711          # one, with its output
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fuzz.chosen import Chosen
from sottovoce.processes import die_with_parent


def main() -> int:
    """Parse the words, make the inputs, run the cases and print the summary."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--case", type=int, help="only this case, whose output is printed")
    parser.add_argument("--quick", action="store_true", help="only commands that need no trained model")
    parser.add_argument("--only", default="", help="only command lines that begin with these words, such as privacy")
    parser.add_argument("--inputs", type=Path, help="keep the inputs in this folder, and use them if they are there")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # threads do not survive a fork
    folder = Path(tempfile.mkdtemp(prefix="sotto-fuzz-"))
    folder.chmod(0o755)
    began = time.monotonic()
    try:
        inputs = given.inputs.absolute() if given.inputs else folder / "inputs"
        if not inputs.exists():
            prepare = multiprocessing.get_context("spawn").Process(target=_prepare, args=(inputs, not given.quick))
            prepare.start()
            prepare.join()
            if prepare.exitcode:
                return 1
        numbers = range(given.first, given.first + given.cases) if given.case is None else [given.case]
        jobs = 1 if given.case is not None else given.jobs
        return _run_all(folder, numbers, jobs, began, Chosen(inputs, given.seed, given.quick, given.only))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(inputs: Path, runs: bool) -> None:
    from fuzz.inputs import make_inputs

    make_inputs(inputs, runs=runs)


def _run_all(folder: Path, numbers: Any, jobs: int, began: float, chosen: Chosen) -> int:
    from fuzz.loading import load_everything  # after the inputs were made, by a process of their own

    load_everything(quick=chosen.quick)
    context = multiprocessing.get_context("fork")  # workers share what is loaded, and so do the cases
    queue: Any = context.SimpleQueue()
    shares = [list(numbers)[job::jobs] for job in range(jobs)]
    workers = [
        context.Process(target=_work, args=(folder / f"worker-{job}", share, chosen, queue))
        for job, share in enumerate(shares)
    ]
    for worker in workers:
        worker.start()
    counts: Counter[str] = Counter()
    codes: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    for done in range(1, len(numbers) + 1):
        outcome = _next(queue, workers)
        codes[outcome.code] += 1
        kinds.update([outcome.kind, *(["in a process of their own"] if outcome.fresh else [])])
        if len(numbers) == 1:
            sys.stdout.write(f"sotto {' '.join(map(repr, outcome.words))}\n{outcome.done}\n{outcome.printed}\n")
        for finding in outcome.findings:
            counts[finding.kind] += 1
            sys.stdout.write(
                f"case {outcome.number}: {finding.kind} (code {outcome.code}, {outcome.seconds:.1f} s)\n"
                f"  sotto {' '.join(map(repr, outcome.words))[:1500]}\n  {'; '.join(outcome.done)}\n"
                f"  {finding.detail[-3000:]}\n"
            )
        if done % 100 == 0 or len(numbers) == 1:
            sys.stdout.write(f"{done} cases, {time.monotonic() - began:.0f} s: {dict(counts) or 'no finding'}\n")
        sys.stdout.flush()
    for worker in workers:
        worker.join()
    sys.stdout.write(
        f"seed {chosen.seed}: {len(numbers)} cases in {time.monotonic() - began:.0f} s; {_listed(kinds)}; "
        f"exit codes {dict(sorted(codes.items()))}; "
    )
    sys.stdout.write(f"findings: {dict(counts) or 'none'}\n")
    return 1 if counts else 0


def _listed(kinds: Counter[str]) -> str:
    return ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items()))


def _next(queue: Any, workers: list[Any]) -> Any:
    """Return the next outcome; a worker that failed would leave its cases out, so that ends the run."""
    while queue.empty():
        if any(worker.exitcode for worker in workers):
            sys.exit("A worker of the fuzzer failed: see above. This is a fault of the fuzzer itself.")
        time.sleep(0.01)
    return queue.get()


def _work(folder: Path, numbers: list[int], chosen: Chosen, queue: Any) -> None:
    from fuzz.runner import Runner

    die_with_parent(os.getppid())
    runner = Runner(folder, chosen)
    for number in numbers:
        queue.put(runner.run(number))
