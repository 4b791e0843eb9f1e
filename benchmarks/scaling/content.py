"""Everything that the page shows: measurements, projected runs and simulated steps."""

from dataclasses import dataclass

from documents import Measurements
from projection import PAPER_GPUS, Projection, Rates, as_it_is, sharded
from stragglers import EPOCHS, RULES, STEPS, Summary, simulate

GPUS = (8, 64, 1024)
COHORTS = (1024, 16_384, 204_800)  # the paper's runs, a large simulation, the paper's claims
SIMULATED_COHORTS = (256, 1024, 4096, 16_384)
SIMULATED_WORKERS = (2, 8, 64, 256, 1024)

Table = dict[tuple[str, str, int, int], Summary]  # by workload, rule, cohort size and workers


@dataclass(frozen=True)
class Content:
    """The numbers of the page."""

    measurements: Measurements
    rates: Rates
    today: dict[tuple[int, int], Projection]  # by cohort size and GPUs
    ahead: dict[tuple[int, int], Projection]
    simulated: Table

    @classmethod
    def of(cls, measurements: Measurements) -> "Content":
        """Project the runs and simulate the steps."""
        rates = Rates.of(measurements)
        places = [(cohort, gpus) for cohort in COHORTS for gpus in (*GPUS, PAPER_GPUS)]
        return cls(
            measurements,
            rates,
            {(cohort, gpus): as_it_is(rates, gpus, cohort) for cohort, gpus in places},
            {(cohort, gpus): sharded(rates, gpus, cohort) for cohort, gpus in places},
            simulated_steps(rates.user_spread),
        )


def simulated_steps(spread: float) -> Table:
    """Simulate every rule for all workloads, cohorts and numbers of workers."""
    return {
        (workload.name, rule.name, cohort, workers): simulate(rule, workload, cohort, workers, spread)
        for workload in (STEPS, EPOCHS)
        for rule in RULES
        for cohort in SIMULATED_COHORTS
        for workers in SIMULATED_WORKERS
    }
