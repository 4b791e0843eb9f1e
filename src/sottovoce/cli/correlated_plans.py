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
    header = ["b", "K", "S", "T", "epsilon", "sigma_dp", "independent", "noise", "a step"]
    first = found[0]
    rows = [[*_sizes(one), _short(one.like), _share(one, first), f"{one.spread:.3g}"] for one in found]
    at = f"epsilon at delta {_short(given.target_delta)} by {accounting.upper()}"
    print_table(f"Correlated noise ({strategy}), {at}", header, rows)
    note(
        "b: the number of bands; independent: the sigma_dp of independent noise with the same error of prefix sums; "
        "noise: that, over the first row; a step: the std of one release over sigma_dp. To use it, set "
        "privacy.noise.name=correlated, privacy.noise.bands, privacy.noise.steps, privacy.sigma_dp and "
        "participation.sampling=cyclic."
    )


def _sizes(one: "CorrelatedPlan") -> list[str]:
    from sottovoce.privacy.accounting import rounded_up, short_exponents

    plan = one.plan
    sizes = [f"{plan.population:,}", f"{plan.cohort_size:,g}", f"{plan.central_steps:,}"]
    return [str(one.bands), *sizes, short_exponents(rounded_up(one.epsilon, 4)), _enough(plan.sigma_dp)]


def _enough(sigma_dp: float | None) -> str:
    """Return a sigma_dp that may be copied: rounded up."""
    from sottovoce.privacy.accounting import rounded_up, short_exponents

    return short_exponents(rounded_up(sigma_dp or 0.0, 3))


def _short(value: float) -> str:
    from sottovoce.privacy.accounting import short_number

    return short_number(value, 3)


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
