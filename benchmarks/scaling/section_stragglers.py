"""The section of the page about stragglers: simulated idle time, and the test of the simulation."""

from collections.abc import Sequence

from content import SIMULATED_COHORTS, SIMULATED_WORKERS, Content
from documents import MeasuredStep
from fits import user_law
from stragglers import (
    BY_TIME,
    CAP_SECONDS,
    CORPUS,
    EPOCHS,
    FETCH_SECONDS,
    PACE_SPREAD,
    RULES,
    SORTED_QUEUE,
    STEP_SECONDS,
    STEPS,
    TODAY,
    Rule,
    Workload,
    mean_cost,
    simulate,
)
from validation import Prediction, Spread, from_law, from_user_times, slowdown
from wording import duration, line, percent, signed_percent, spread, table

_MANY = SIMULATED_WORKERS[-1]


def stragglers(content: Content) -> str:
    """Return the simulated idle shares."""
    cohort = SIMULATED_COHORTS[-1]
    head = ["rule", *(f"S = {size:,}" for size in SIMULATED_COHORTS), "uneven GPUs", "10 local epochs"]
    least = _least(content, STEPS)
    rows = [_rule_row(content, rule, cohort) for rule in RULES]
    rows.append(["no rule without a limit can be below", *least[:-1], least[-1], "", _least(content, EPOCHS)[-1]])
    return f"""## Stragglers, simulated

A step ends when the slowest worker has trained its users. The simulation draws Poisson cohorts from the distribution
of audio per user in {CORPUS} and gives every user the time that the estimate fits to the paper's runs:
{duration(mean_cost(STEPS))} on average with 10 local steps, {duration(mean_cost(EPOCHS))} with 10 local epochs. Real
times lie around it with a standard deviation of {percent(content.rates.user_spread)}, as measured here. A fetch from
a queue takes {duration(FETCH_SECONDS)}.

Idle share of {_MANY:,} workers with 10 local steps, by rule and cohort size S. The last two columns have S =
{cohort:,}: once with GPUs whose pace differs by {percent(PACE_SPREAD)} (standard deviation), once with 10 local
epochs.

{table(head, rows)}

"Audio limited" is `batching.max_seconds_per_user` = {CAP_SECONDS:g}: the users are the same, but the longest train on
a part of their audio.

![idle share by workers](images/scaling-stragglers.png)

Idle share, and in brackets the time of the step over an even division, with 10 local steps:

{_grid(content, TODAY)}

{_grid(content, SORTED_QUEUE)}

- **Local steps cut the tail off.** A user with 84 hours of audio trains on 10 batches like everyone else. With local
  epochs the longest user alone decides the step, whatever the rule; only a limit on its audio helps.
- **Many users per worker matter more than the rule.** With the engine's rule, {_MANY:,} workers are idle for
  {_idle(content, TODAY, 1024)} of their time at S = 1,024 and for {_idle(content, TODAY, cohort)} at S = {cohort:,}.
- **The engine's cost is not time.** It counts a local step as {STEP_SECONDS:g} s of audio, as on a CPU. On a GPU the
  fixed time of a local step is the larger part. Sharing out by time would change {_idle(content, TODAY, 4096)} to
  {_idle(content, BY_TIME, 4096)} at S = 4,096, a queue with the longest users first to
  {_idle(content, SORTED_QUEUE, 4096)}."""


def _rule_row(content: Content, rule: Rule, cohort: int) -> list[str]:
    idle = [_idle(content, rule, size) for size in SIMULATED_COHORTS]
    uneven = simulate(rule, STEPS, cohort, _MANY, content.rates.user_spread, uneven=True).idle
    epochs = content.simulated[EPOCHS.name, rule.name, cohort, _MANY].idle
    name = f"{rule.name} (the engine)" if rule is TODAY else rule.name
    return [name, *idle, percent(uneven), percent(epochs)]


def _idle(content: Content, rule: Rule, size: int) -> str:
    return percent(content.simulated[STEPS.name, rule.name, size, _MANY].idle)


def _least(content: Content, workload: Workload) -> list[str]:
    return [percent(content.simulated[workload.name, TODAY.name, size, _MANY].least_idle) for size in SIMULATED_COHORTS]


def _grid(content: Content, rule: Rule) -> str:
    def cell(size: int, workers: int) -> str:
        summary = content.simulated[STEPS.name, rule.name, size, workers]
        return f"{percent(summary.idle)} ({summary.over_ideal:.2f})"

    rows = [[f"{workers:,}", *(cell(size, workers) for size in SIMULATED_COHORTS)] for workers in SIMULATED_WORKERS]
    return table([f"workers; {rule.name}", *(f"S = {size:,}" for size in SIMULATED_COHORTS)], rows)


def validation(content: Content) -> str:
    """Return the test of the simulation against measured steps."""
    steps = content.measurements.parts["workers"].steps
    law = user_law(steps)
    known, fitted = from_user_times(steps), from_law(steps)
    head = ["predicted from", "users' part of the step", "whole step", "idle share, points"]
    rows = [_errors("every user's time on one worker", known), _errors("the law of local work", fitted)]
    return f"""### The simulation against measured steps

The same {len(known)} steps were taken by one worker and by two (cohorts of {_cohorts(steps)}, users with {CORPUS}'s
tail up to two minutes, one local epoch, `tiny`). Half of them use the engine's shares, the others shares dealt at
random. The times of one worker, user by user, predict the steps of two. Errors are predicted / measured - 1: the
median, and the range over all steps.

{table(head, rows)}

The law is {line(law.law.fixed, law.law.per_unit, "second of audio")}. Where two
workers run at once, the training time of a user changes by {signed_percent(slowdown(steps) - 1)}, which the simulation
does not know.
With cohorts of {max(step.cohort for step in steps)} two workers are {_speed_up(steps):.2f} times as fast as one.

![predicted and measured steps](images/scaling-validation.png)"""


def _errors(name: str, predictions: Sequence[Prediction]) -> list[str]:
    return [
        name,
        spread(Spread.of([prediction.users_error for prediction in predictions])),
        spread(Spread.of([prediction.step_error for prediction in predictions])),
        spread(Spread.of([prediction.idle_error for prediction in predictions])),
    ]


def _cohorts(steps: Sequence[MeasuredStep]) -> str:
    return ", ".join(str(size) for size in sorted({step.cohort for step in steps}))


def _speed_up(steps: Sequence[MeasuredStep]) -> float:
    """Return how much faster two workers are with the engine's shares, in the largest cohorts."""
    largest = max(step.cohort for step in steps)
    times = {
        workers: sum(
            step.seconds for step in steps if (step.workers, step.cohort, step.rule) == (workers, largest, "engine")
        )
        for workers in (1, 2)
    }
    return times[1] / times[2]
