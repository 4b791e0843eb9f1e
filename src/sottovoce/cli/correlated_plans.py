"""The table of `sotto privacy plan --noise correlated`: what every number of bands gains."""

from typing import TYPE_CHECKING, Any

from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table

if TYPE_CHECKING:
    from sottovoce.privacy.correlated_plans import CorrelatedPlan
    from sottovoce.privacy.noise.strategies import Structure
    from sottovoce.privacy.planner import Accounting, Plan


def print_correlated_plans(
    given: "Plan", accounting: "Accounting", bands: int | None, strategy: "Structure", *, as_json: bool
) -> None:
    """Solve a plan for several numbers of bands, or for independent noise and the one that is given, and print them."""
    from sottovoce.privacy.correlated_plans import correlated_plans

    tried = None if bands is None else sorted({1, bands})
    with ProgressDisplay() as progress:
        found = correlated_plans(given, accounting, tried, strategy, progress)
    if as_json:
        solved = {"solved_for": given.unknown, "accounting": accounting, "noise": "correlated", "strategy": strategy}
        print_json(solved | {"plans": [_document(one) for one in found]})
        return
    header = ["bands b", "K", "S", "T", "epsilon", "privacy.sigma_dp", "like independent", "noise", "of one step"]
    first = found[0]
    rows = [[*_sizes(one), _short(one.like), _share(one, first), f"{one.spread:.3g}"] for one in found]
    print_table(
        f"Correlated noise ({strategy}), epsilon at delta {given.target_delta:g} by {accounting.upper()}", header, rows
    )
    note(
        "like independent: the sigma_dp of independent noise with the same error of prefix sums; noise: that, over the "
        "first row; of one step: the std of one release over privacy.sigma_dp. Set privacy.noise.name=correlated, "
        "privacy.noise.bands, privacy.noise.steps, privacy.sigma_dp and participation.sampling=cyclic."
    )


def _sizes(one: "CorrelatedPlan") -> list[str]:
    from sottovoce.privacy.accounting import rounded_up, short_exponents

    plan = one.plan
    sizes = [f"{plan.population:,}", f"{plan.cohort_size:,g}", f"{plan.central_steps:,}"]
    return [str(one.bands), *sizes, short_exponents(rounded_up(one.epsilon, 4)), _short(plan.sigma_dp or 0.0)]


def _short(value: float) -> str:
    from sottovoce.privacy.accounting import short_number

    return short_number(value, 4)


def _share(one: "CorrelatedPlan", first: "CorrelatedPlan") -> str:
    return f"{one.like / first.like:.3f}"


def _document(one: "CorrelatedPlan") -> dict[str, Any]:
    plan = one.plan
    return {
        "bands": one.bands,
        "population": plan.population,
        "cohort_size": plan.cohort_size,
        "central_steps": plan.central_steps,
        "epsilon_reached": one.epsilon,
        "target_delta": plan.target_delta,
        "sigma_dp": plan.sigma_dp,
        "sigma_dp_of_independent_noise": one.like,
        "prefix_error_over_independent": one.gain,
        "std_of_one_step_over_sigma_dp": one.spread,
    }
