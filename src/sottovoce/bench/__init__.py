"""Benchmarks: the results of the paper as data, and the runs that reproduce them.

    presets     Bench, Size, Row, RowClaim, Part: a benchmark as its YAML file has it; `load_bench`, `bench_names`
    running     BenchRun: some rows of a benchmark with some seeds; `run_bench` trains them; Job: one of its runs;
                PlanPart: every nth run of a plan; PlanCost: what is left of a plan, and `plan_cost`, its time and disk
    results     RowResult, RunResult; `collect` reads them; `table`, `markdown` and `document` show them
    verdicts    Effect: a finding of the paper; EffectResult, MeanOverSeeds: whether ours agrees, by its interval;
                `effect_results`, `summarise`
    documents   `publish`, `write_published`, `read_published`: results without runs
    demo        `demo_run` and `story`: the benchmark of `sotto demo`, and its results in words
    cost        `row_costs`: the cost of the runs in the paper's size

Example:
    from pathlib import Path
    from sottovoce.bench import BenchRun, run_bench, table

    results = run_bench(BenchRun.choose("dp-results", seeds=3, out=Path("runs/bench")), workers=2)
    print(*table(results), sep="\\n")

Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.bench.bench_costs import RowCost, row_costs
    from sottovoce.bench.bench_plan_costs import PlanCost, plan_cost
    from sottovoce.bench.benchmark import prepare_corpora, run_bench, train_rows
    from sottovoce.bench.demo_story import demo_run, story
    from sottovoce.bench.effects import Effect
    from sottovoce.bench.plan import BenchRun, Job
    from sottovoce.bench.planned import PlanPart
    from sottovoce.bench.preset import Bench, Part, Row, RowClaim, Size, bench_names, load_bench
    from sottovoce.bench.published import publish, read_published, write_published
    from sottovoce.bench.result_tables import document, markdown, table
    from sottovoce.bench.results import RowResult, RunResult, collect, describe_runs
    from sottovoce.bench.summary import summarise
    from sottovoce.bench.verdicts import EffectResult, effect_results

__all__ = [
    "Bench",
    "BenchRun",
    "Effect",
    "EffectResult",
    "Job",
    "Part",
    "PlanCost",
    "PlanPart",
    "Row",
    "RowClaim",
    "RowCost",
    "RowResult",
    "RunResult",
    "Size",
    "bench_names",
    "collect",
    "demo_run",
    "describe_runs",
    "document",
    "effect_results",
    "load_bench",
    "markdown",
    "plan_cost",
    "prepare_corpora",
    "publish",
    "read_published",
    "row_costs",
    "run_bench",
    "story",
    "summarise",
    "table",
    "train_rows",
    "write_published",
]

__getattr__ = lazy_names(
    __name__,
    {
        "benchmark": "prepare_corpora run_bench train_rows",
        "bench_costs": "RowCost row_costs",
        "bench_plan_costs": "PlanCost plan_cost",
        "demo_story": "demo_run story",
        "effects": "Effect",
        "plan": "BenchRun Job",
        "preset": "Bench Part Row RowClaim Size bench_names load_bench",
        "published": "publish read_published write_published",
        "result_tables": "document markdown table",
        "results": "RowResult RunResult collect describe_runs",
        "planned": "PlanPart",
        "summary": "summarise",
        "verdicts": "EffectResult effect_results",
    },
)
