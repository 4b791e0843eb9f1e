"""What `sotto privacy plan --trainings` prints: cohort sizes and steps for a number of user trainings."""

from typing import TYPE_CHECKING, Any

from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table
from sottovoce.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

    from sottovoce.privacy.acceptance import Acceptance
    from sottovoce.privacy.training_plans import TrainingPlan


def show_training_plans(
    *,
    population: int | None,
    trainings: int,
    epsilon: float | None,
    target_delta: float,
    least_steps: int | None,
    parameters: int | None,
    accepted: "Collection[Acceptance]",
    as_json: bool,
) -> None:
    """Print the least noise for several cohort sizes and numbers of steps, and mark one of them."""
    from sottovoce.privacy.accounting import short_number
    from sottovoce.privacy.training_plans import LEAST_STEPS, best_of, training_plans

    if population is None or epsilon is None:
        raise ConfigError("--trainings needs --population and --epsilon.")
    enough = LEAST_STEPS if least_steps is None else least_steps
    with ProgressDisplay() as progress:
        plans = training_plans(
            population=population,
            trainings=trainings,
            epsilon=epsilon,
            target_delta=target_delta,
            least_steps=enough,
            accepted=accepted,
            progress=progress,
        )
    best = best_of(plans, enough)
    rows = [_document(plan, parameters) | {"best": plan is best} for plan in plans]
    if as_json:
        given = {"population": population, "trainings": trainings, "epsilon": epsilon, "target_delta": target_delta}
        print_json(given | {"parameters": parameters, "least_steps": enough, "plans": rows})
        return
    at = f"epsilon {epsilon:g} at delta {short_number(target_delta)} by PLD"
    _print(rows, f"{trainings:,} user trainings, K = {population:,}, {at}")
    note(
        "* the most steps whose noise on the mean of the run is within 10 % of the least, among plans of at least "
        f"{enough} steps (--central-steps). Fewer steps have less noise; whether they train as well must be measured."
    )


def _document(plan: "TrainingPlan", parameters: int | None) -> dict[str, Any]:
    return {
        "cohort_size": plan.cohort_size,
        "central_steps": plan.central_steps,
        "sampling_prob": plan.sampling_prob,
        "z": plan.z,
        "sigma_dp": plan.sigma_dp,
        "accumulated_noise": plan.accumulated_noise,
        "mean_noise": plan.mean_noise,
        "epsilon": plan.epsilon,
        **({} if parameters is None else {"noise_norm": plan.noise_norm(parameters)}),
    }


_COLUMNS = {
    "central_steps": "T",
    "cohort_size": "S",
    "sampling_prob": "q",
    "z": "z",
    "sigma_dp": "sigma_dp",
    "noise_norm": "sigma_dp √D",
    "accumulated_noise": "sum: sigma_dp √T",
    "mean_noise": "mean: sigma_dp / √T",
}


def _print(rows: list[dict[str, Any]], title: str) -> None:
    shown = [key for key in _COLUMNS if key in rows[0]]
    cells = [[*(_cell(key, row[key]) for key in shown), "*" * row["best"]] for row in rows]
    print_table(title, [*(_COLUMNS[key] for key in shown), ""], cells)


def _cell(key: str, value: float) -> str:
    from sottovoce.privacy.accounting import rounded_up, short_exponents, short_number

    if key in ("central_steps", "cohort_size"):
        return f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}"
    return short_exponents(rounded_up(value, 4)) if key == "sigma_dp" else short_number(value, 4)
