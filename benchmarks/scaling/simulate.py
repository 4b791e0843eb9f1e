"""Print simulated steps: idle share, and time over an even division, for every hand-out rule.

python benchmarks/scaling/simulate.py [--cohorts 1024 16384] [--workers 64 1024] [--spread 0.1] [--epochs]
"""

import argparse

from content import SIMULATED_COHORTS, SIMULATED_WORKERS
from stragglers import EPOCHS, RULES, STEPS, TODAY, simulate
from wording import percent


def main() -> None:
    """Simulate what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cohorts", nargs="+", type=int, default=SIMULATED_COHORTS, help="expected cohort sizes")
    parser.add_argument("--workers", nargs="+", type=int, default=SIMULATED_WORKERS)
    parser.add_argument("--spread", type=float, default=0.1, help="relative deviation of users' times from the law")
    parser.add_argument("--epochs", action="store_true", help="10 local epochs instead of 10 local steps")
    parser.add_argument("--uneven", action="store_true", help="workers whose pace differs")
    options = parser.parse_args()
    workload = EPOCHS if options.epochs else STEPS
    for cohort in options.cohorts:
        for workers in options.workers:
            print(f"{workload.name}, S = {cohort:,}, {workers:,} workers")
            for rule in RULES:
                summary = simulate(rule, workload, cohort, workers, options.spread, uneven=options.uneven)
                low, high = summary.idle_range
                idle = f"{percent(summary.idle)} ({percent(low)} to {percent(high)})"
                print(f"  {rule.name:52} idle {idle:26} time / ideal {summary.over_ideal:.3f}", flush=True)
            least = simulate(TODAY, workload, cohort, workers, options.spread).least_idle
            print(f"  {'no rule without a limit can be below':52} idle {percent(least)}")


if __name__ == "__main__":
    main()
