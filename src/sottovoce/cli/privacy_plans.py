"""sotto privacy epsilon, table and plan: questions about sizes and noise, before anything is trained."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table
from sottovoce.cli.correlated_plans import print_correlated_plans
from sottovoce.cli.epsilon_display import (
    Accept,
    CohortSize,
    Population,
    accepted_by,
    claim_document,
    epsilon_text,
    note_caution,
    pld_document,
    print_epsilons,
)
from sottovoce.cli.training_plans import show_training_plans
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import require_target

if TYPE_CHECKING:
    from sottovoce.privacy.planner import Plan

SigmaDp = Annotated[float, typer.Option(help="The noise: std of the average, in units of the clip norm C.")]
CentralSteps = Annotated[int, typer.Option(help="T, the number of releases.", min=0)]
TargetDelta = Annotated[float, typer.Option(help="The delta of (epsilon, delta).")]
Sampling = Annotated[
    Literal["poisson", "cyclic", "fixed", "everyone"],
    typer.Option(metavar="KIND", help="How cohorts are drawn: poisson, cyclic, fixed or everyone."),
]
NoiseName = Annotated[
    Literal["gaussian", "correlated"],
    typer.Option(help="correlated: later steps take part of the noise back; cohorts are then cyclic."),
]
Bands = Annotated[int | None, typer.Option(help="b, the bands of correlated noise: groups of users that take turns.")]
Structure = Annotated[
    Literal["toeplitz", "blocks"], typer.Option(help="How correlated noise is built; blocks: for large models.")
]


def epsilon(
    sigma_dp: SigmaDp,
    cohort_size: CohortSize,
    population: Population,
    central_steps: CentralSteps,
    target_delta: TargetDelta = 1e-9,
    sampling: Sampling = "poisson",
    cap: Annotated[int | None, typer.Option(help="The most users in a step; larger cohorts are cut.", min=1)] = None,
    noise: NoiseName = "gaussian",
    bands: Bands = None,
    accept: Accept = None,
    as_json: AsJson = False,
) -> None:
    """Print the epsilon of a run that would have these sizes, by RDP and (tight) by PLD.

    Example: sotto privacy epsilon --sigma-dp 3e-6 --cohort-size 204800 --population 69506000 --central-steps 2034
    """
    from sottovoce.privacy.accounting import PAPER_ORDERS, rdp
    from sottovoce.privacy.claims import claim_for
    from sottovoce.privacy.noise import Correlated

    _require_correlated(noise, bands)
    correlated = None if noise == "gaussian" else Correlated(bands=8 if bands is None else bands)

    found = claim_for(
        sigma_dp=sigma_dp,
        cohort_size=cohort_size,
        population=population,
        central_steps=central_steps,
        target_delta=target_delta,
        sampling=sampling,
        cap=cap,
        noise=correlated,
        accepted=accepted_by(accept),
    )
    at_paper_orders = rdp(found.spent, target_delta, PAPER_ORDERS)
    document = {**claim_document(found), "rdp_at_paper_orders": asdict(at_paper_orders)}
    note_caution(found.caution)
    if as_json:
        print_json(document)
        return
    print_epsilons(document)


def _require_correlated(noise: str, bands: int | None) -> None:
    if bands is not None and noise != "correlated":
        raise ConfigError("--bands belongs to --noise correlated.")
    if bands is not None and not 1 <= bands <= 512:
        raise ConfigError(f"Expected 1 <= bands={bands} <= 512.")


def table(as_json: AsJson = False) -> None:
    """Print every epsilon of the paper with ours beside it: at the paper's orders, dense RDP, and PLD.

    Example: sotto privacy table
    """
    from sottovoce.privacy.paper import compare, paper_rows

    with ProgressDisplay() as progress:
        found = list(compare(paper_rows(), progress))
    if as_json:
        print_json([_compared(one) for one in found])
        return
    header = ["line", "z", "S", "K", "T", "paper (order)", "its orders (order)", "RDP", "PLD"]
    for name in dict.fromkeys(one.row.table for one in found):
        rows = []
        for one in (one for one in found if one.row.table == name):
            row, same = one.row, one.at_paper_orders
            rows.append(
                [
                    f"{row.line}{'' if row.agrees(same) else ' *'}",
                    f"{row.z:g}",
                    _short(row.cohort_size),
                    _short(row.population),
                    f"{row.central_steps}",
                    f"{row.epsilon:.2g} ({row.order:g})",
                    f"{epsilon_text(same.epsilon)} ({same.order:g})",
                    epsilon_text(one.rdp.epsilon),
                    "refused" if one.pld.epsilon is None else epsilon_text(one.pld.epsilon),
                ]
            )
        print_table(f"{name}: epsilon at delta 1e-9, the paper's and ours", header, rows)
    for one in found:
        if not one.row.agrees(one.at_paper_orders):
            note(f"* line {one.row.line}: {one.row.note}")
    agreeing = sum(one.row.agrees(one.at_paper_orders) for one in found)
    note(f"{agreeing} of {len(found)} rows agree with the paper to two digits and in the Rényi order.")


def _compared(one: Any) -> dict[str, Any]:
    return {
        **asdict(one.row),
        "agrees": one.row.agrees(one.at_paper_orders),
        "at_paper_orders": asdict(one.at_paper_orders),
        "rdp": asdict(one.rdp),
        "pld": pld_document(one.pld),
    }


def plan(
    population: Annotated[int | None, typer.Option(help="K, the number of users.")] = None,
    cohort_size: Annotated[float | None, typer.Option(help="S, the expected number of users in a step.")] = None,
    sigma_dp: Annotated[float | None, typer.Option(help="The noise, in units of C.")] = None,
    central_steps: Annotated[int | None, typer.Option(help="T, the number of releases.", min=1)] = None,
    epsilon: Annotated[float | None, typer.Option(help="The epsilon that is wanted.")] = None,
    target_delta: TargetDelta = 1e-9,
    sampling: Sampling = "poisson",
    noise: NoiseName = "gaussian",
    bands: Bands = None,
    strategy: Structure = "toeplitz",
    accounting: Annotated[Literal["pld", "rdp"], typer.Option(help="pld is tight.")] = "pld",
    trainings: Annotated[
        int | None, typer.Option(help="Cohort size times steps: list both, with the least noise for epsilon.", min=1)
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(help="D, for the norm of the noise: --trainings only.", min=1)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw epsilon over population and cohort size into this PNG.")
    ] = None,
    accept: Accept = None,
    as_json: AsJson = False,
) -> None:
    """Solve for the one of population, cohort size, noise, steps and epsilon that is not given.

    With --trainings: list the least noise for several cohort sizes and steps with that product. --central-steps is then
    the fewest steps that a training needs.

    With --noise correlated, a table shows what each number of bands gains. There, --sigma-dp is that of independent
    noise with the same error of prefix sums, and the table has the privacy.sigma_dp to set.

    Example: sotto privacy plan --cohort-size 204800 --sigma-dp 1e-5 --central-steps 2000 --epsilon 10
    """
    if trainings is not None:
        if cohort_size is not None or sigma_dp is not None or plot is not None:
            raise ConfigError("--trainings takes the place of --cohort-size, --sigma-dp and --plot.")
        if sampling != "poisson" or noise != "gaussian" or accounting != "pld":
            raise ConfigError("--trainings plans Poisson cohorts with independent noise, by PLD.")
        show_training_plans(
            population=population,
            trainings=trainings,
            epsilon=epsilon,
            target_delta=target_delta,
            least_steps=central_steps,
            parameters=parameters,
            accepted=accepted_by(accept),
            as_json=as_json,
        )
        return
    from sottovoce.privacy.accounting import delta_caution
    from sottovoce.privacy.planner import Plan, epsilon_grid, solve

    given = Plan(
        population=population,
        cohort_size=cohort_size,
        sigma_dp=sigma_dp,
        central_steps=central_steps,
        epsilon=epsilon,
        target_delta=target_delta,
        sampling=sampling,
        accepted=accepted_by(accept),
    )
    unknown = given.unknown
    _require_correlated(noise, bands)
    if noise == "correlated":
        if plot is not None:
            raise ConfigError("--plot shows independent noise. Leave out --noise correlated.")
        print_correlated_plans(given, accounting, bands, strategy, as_json=as_json)
        return
    if plot is not None and (plot.is_dir() or not plot.absolute().parent.is_dir()):
        raise DataError(f"{plot} cannot be written. Give --plot a file in a folder that exists.")
    if plot is not None:
        require_target(plot, ending=".png")
    solved = solve(given, accounting)
    reached = solve(replace(solved, epsilon=None), accounting)
    note_caution(delta_caution(solved.target_delta, solved.population or 1))
    grid = None
    if plot is not None:
        from sottovoce.reports.pictures import epsilon_contours

        with ProgressDisplay() as progress:
            grid = epsilon_grid(solved, progress)
        at = f"sigma_dp = {solved.sigma_dp:g}, T = {solved.central_steps}, delta = {solved.target_delta:g}"
        epsilon_contours(*grid, f"epsilon (RDP), {at}", plot)
        note(f"{plot}: epsilon over population and cohort size.")
    document = asdict(solved) | {
        "noise": noise,
        "solved_for": unknown,
        "accounting": accounting,
        "epsilon_reached": reached.epsilon,
    }
    if as_json:
        print_json(document | ({} if grid is None else {"grid": _grid_document(*grid)}))
        return
    rows = [
        [f"{key}{' (solved)' if key == unknown else ''}", _plain(value)]
        for key, value in asdict(solved).items()
        if key not in ("accepted", "noise")
    ]
    print_table(_answer(solved, unknown, accounting, reached.epsilon or 0.0), ["", ""], rows)
    if grid is not None:
        _print_grid(*grid)


def _answer(plan: "Plan", unknown: str, accounting: str, reached: float) -> str:
    """Return the solution of a plan in a sentence."""
    bound = f"epsilon {epsilon_text(reached, 4)} at delta {_plain(plan.target_delta)} by {accounting.upper()}"
    value = _plain(getattr(plan, unknown))
    return {
        "epsilon": f"This plan has {bound}.",
        "population": f"A population of at least {value} users is needed: {bound}.",
        "cohort_size": f"Cohorts of at least {value} users are needed: {bound}.",
        "sigma_dp": f"privacy.sigma_dp must be at least {value}: {bound}.",
        "central_steps": f"At most {value} central steps are possible: {bound}.",
    }[unknown]


def _grid_document(populations: Any, cohorts: Any, epsilons: Any) -> dict[str, Any]:
    """Return epsilon over population and cohort size; null where the cohort is larger than the population."""
    rows = [[None if math.isnan(value) else value for value in row] for row in epsilons.tolist()]
    return {"population": populations.tolist(), "cohort_size": cohorts.tolist(), "epsilon_rdp": rows}


def _print_grid(populations: Any, cohorts: Any, epsilons: Any) -> None:
    some = range(0, len(populations), 2)
    rows = [
        [_short(cohorts[row]), *("" if math.isnan(one) else epsilon_text(one) for one in epsilons[row, some])]
        for row in some
    ]
    header = ["S \\ K", *(_short(populations[place]) for place in some)]
    print_table("epsilon (RDP) over population K and cohort size S", header, rows)


def _plain(value: object) -> str:
    from sottovoce.privacy.accounting import short_number

    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and value < 1e15):
        return f"{value:,.0f}"
    return short_number(value) if isinstance(value, float) else str(value)


def _short(number: float) -> str:
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:g}"
