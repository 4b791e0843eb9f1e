"""What `sotto bench run` says before it trains: which runs are left, and how long they take on this machine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sottovoce.cli.console import counted, note, print_json, print_table
from sottovoce.files import gigabytes, require_free

if TYPE_CHECKING:
    from sottovoce.bench.bench_plan_costs import PlanCost, PlannedRun
    from sottovoce.bench.document_folder import DocumentFolder
    from sottovoce.bench.plan import BenchRun
    from sottovoce.bench.planned import PlanPart


def say_cost(cost: "PlanCost", workers: int) -> None:
    """Say in two lines what is left to do."""
    planned, left = len(cost.runs), len(cost.left)
    note(f"{counted(planned, 'run')}: {planned - left} done, {left} left, {_time(cost, cost.left, workers)}.")
    for corpus in cost.corpora:
        known = corpus.seconds is not None and corpus.bytes is not None
        costs = f"{_minutes(corpus.seconds or 0)}, {gigabytes(corpus.bytes or 0)}" if known else "cost not known"
        note(f"The corpus {corpus.name} is not prepared yet: {costs}.")


def print_bench_plan(
    runs: "Sequence[BenchRun]",
    workers: int,
    part: "PlanPart | None" = None,
    published: "DocumentFolder | None" = None,
    *,
    as_json: bool,
) -> None:
    """Print the plan of some benchmarks with times and disk; train and write nothing."""
    from sottovoce.bench.bench_plan_costs import plan_cost

    cost = plan_cost(runs, workers, part, published)
    disk = cost.bytes + sum(corpus.bytes or 0 for corpus in cost.corpora)
    if as_json:
        print_json({"dry_run": True, **_document(cost), "bytes": round(disk)})
        return
    if len(runs) == 1:
        lines = [
            [run.label, run.row.kind, "done" if run.done else "left", _time(cost, [run], workers)] for run in cost.runs
        ]
        print_table(f"{runs[0].name}, {runs[0].size_name}", ["run", "", "", "here"], lines, text_columns=3)
    else:
        lines = [_bench_line(cost, run.name, workers) for run in runs]
        header = ["benchmark", "runs that no earlier one has", "done", "left", "here"]
        print_table(f"{len(runs)} benchmarks, {runs[0].size_name}", header, lines)
    say_cost(cost, workers)
    note(f"Disk: about {gigabytes(disk)} more in {runs[0].out}. Nothing was trained.")
    require_free(runs[0].out, disk)


def _bench_line(cost: "PlanCost", name: str, workers: int) -> list[str]:
    own = [run for run in cost.runs if run.bench == name]
    left = [run for run in own if not run.done]
    return [name, str(len(own)), str(len(own) - len(left)), str(len(left)), _time(cost, left, workers)]


def _time(cost: "PlanCost", runs: "Sequence[PlannedRun]", workers: int) -> str:
    """Return how long runs take that are left; empty where none is."""
    left = [run for run in runs if not run.done]
    if not left:
        return "nothing to train"
    if all(cost.times[run.key] is None for run in left):
        return "time not known"
    least, most = cost.seconds(left)
    unknown = sum(cost.times[run.key] is None for run in left)
    more = f" and {unknown} of unknown time" if unknown else ""
    return f"{_minutes(least)} to {_minutes(most)} with {workers} workers{more}" if len(runs) > 1 else (
        f"{_minutes(least)} to {_minutes(most)}"
    )  # fmt: skip


def _minutes(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:,.1f} h"


def _document(cost: "PlanCost") -> dict[str, object]:
    least, most = cost.seconds()
    runs = [
        {
            "bench": run.bench,
            "row": run.label,
            "kind": run.row.kind,
            "done": run.done,
            "steps_left": run.steps_left,
            "seconds": None if run.done or (time := cost.times[run.key]) is None else time.seconds,
        }
        for run in cost.runs
    ]
    corpora = [{"corpus": one.name, "seconds": one.seconds, "bytes": one.bytes} for one in cost.corpora]
    return {"runs": runs, "left": len(cost.left), "seconds": [least, most], "unknown": cost.unknown, "corpora": corpora}
