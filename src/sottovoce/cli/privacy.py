"""sotto privacy: what epsilon, for which population, and what the ledger proves."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.audit import audit
from sottovoce.cli.boundary import neighbours, publish
from sottovoce.cli.console import ProgressDisplay, counted, note, print_json, print_table, say
from sottovoce.cli.correlated_plans import print_correlated_plans
from sottovoce.cli.population_ledger import population as population_command
from sottovoce.cli.training_plans import show_training_plans
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import require_target, written_whole

if TYPE_CHECKING:
    from sottovoce.privacy.acceptance import Acceptance
    from sottovoce.privacy.accounting import Accounted, Pld
    from sottovoce.privacy.claims import Account, Claim
    from sottovoce.privacy.planner import Plan

app = typer.Typer(no_args_is_help=True)
app.command()(publish)
app.command()(neighbours)
app.command("population")(population_command)
app.command()(audit)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a federated run.")]
SigmaDp = Annotated[float, typer.Option(help="The noise: std of the average, in units of the clip norm C.")]
CohortSize = Annotated[float, typer.Option(help="S, the expected number of users in a step.")]
Population = Annotated[int, typer.Option(help="K, the number of users.")]
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
Accept = Annotated[
    Literal["large_delta"] | None,
    typer.Option(help="large_delta: compute an epsilon although delta is not below 1/K."),
]


@app.command()
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
        accepted=_accepted(accept),
    )
    at_paper_orders = rdp(found.spent, target_delta, PAPER_ORDERS)
    document = {**_claim_document(found), "rdp_at_paper_orders": asdict(at_paper_orders)}
    _note_caution(found.caution)
    if as_json:
        print_json(document)
        return
    _print_epsilons(document)


def _require_correlated(noise: str, bands: int | None) -> None:
    if bands is not None and noise != "correlated":
        raise ConfigError("--bands belongs to --noise correlated.")
    if bands is not None and not 1 <= bands <= 512:
        raise ConfigError(f"Expected 1 <= bands={bands} <= 512.")


def _accepted(accept: "Acceptance | None") -> "tuple[Acceptance, ...]":
    return () if accept is None else (accept,)


def _claim_document(claim: "Claim") -> dict[str, Any]:
    mechanism = claim.mechanism
    noise = mechanism.privacy.noise
    turns = {"participation_prob": noise.participation_prob(mechanism.sampling_prob)} if noise.separation > 1 else {}
    return {
        "z": mechanism.z,
        "sampling_prob": mechanism.sampling_prob,
        **turns,
        "adjacency": mechanism.adjacency,
        "target_delta": claim.target_delta,
        **({} if mechanism.participation.cap is None else {"extra_delta": claim.spent.extra_delta}),
        **_both(claim.accounted),
    }


def _both(accounted: "Accounted") -> dict[str, Any]:
    return {"rdp": asdict(accounted.rdp), "pld": _pld(accounted.pld)}


def _note_caution(caution: str | None) -> None:
    if caution is not None:
        note(f"Caution: {caution}")


def _pld(found: "Pld") -> dict[str, Any]:
    return {"epsilon": found.epsilon} | ({} if found.reason is None else {"reason": found.reason})


def _print_epsilons(document: dict[str, Any]) -> None:
    from sottovoce.privacy.accounting import short_number
    from sottovoce.privacy.epsilons import NOBODY_PROTECTED, Epsilons

    rows = [["z", short_number(document["z"])]] if "z" in document else []
    if "sampling_prob" in document:
        rows.append(["sampling probability", short_number(document["sampling_prob"])])
    if "participation_prob" in document:
        rows.append(["probability when it is a user's turn", short_number(document["participation_prob"])])
    rows += [["adjacency", document["adjacency"]], ["delta", short_number(document["target_delta"])]]
    if "extra_delta" in document:
        rows.append(["of which cut cohorts take", _epsilon(document["extra_delta"], 2)])
    rows.append(["epsilon, RDP", _rdp_text(document["rdp"])])
    tight = document["pld"]
    rows.append(
        ["epsilon, PLD", f"refused: {tight['reason']}" if tight["epsilon"] is None else _epsilon(tight["epsilon"], 4)]
    )
    if "rdp_at_paper_orders" in document:
        rows.append(["epsilon, RDP at the paper's orders", _rdp_text(document["rdp_at_paper_orders"])])
    print_table("", ["", ""], rows)
    if Epsilons(document["rdp"]["epsilon"], tight["epsilon"]).protects_nobody:
        note(NOBODY_PROTECTED)


def _epsilon(value: float, digits: int = 3) -> str:
    from sottovoce.privacy.accounting import rounded_up, short_exponents

    return short_exponents(rounded_up(value, digits))


def _rdp_text(found: dict[str, Any]) -> str:
    order = "" if found["order"] is None else f" (order {_order_text(found['order'])})"
    return f"{_epsilon(found['epsilon'], 4)}{order}"


def _order_text(order: float) -> str:
    from sottovoce.privacy.accounting import short_number

    return f"{order:.4g}" if order > 1.001 else f"1 + {short_number(order - 1, 2)}"


@app.command()
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
                    f"{_epsilon(same.epsilon)} ({same.order:g})",
                    _epsilon(one.rdp.epsilon),
                    "refused" if one.pld.epsilon is None else _epsilon(one.pld.epsilon),
                ]
            )
        print_table(f"{name}: epsilon at delta 1e-9, the paper's and ours", header, rows)
    for one in found:
        if not one.row.agrees(one.at_paper_orders):
            note(f"* line {one.row.line}: {one.row.note}")
    agreeing = sum(one.row.agrees(one.at_paper_orders) for one in found)
    note(f"{agreeing} of {len(found)} rows agree with the paper to two digits and in the Rényi order.")


def _short(number: float) -> str:
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:g}"


def _compared(one: Any) -> dict[str, Any]:
    return {
        **asdict(one.row),
        "agrees": one.row.agrees(one.at_paper_orders),
        "at_paper_orders": asdict(one.at_paper_orders),
        "rdp": asdict(one.rdp),
        "pld": _pld(one.pld),
    }


@app.command()
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
            accepted=_accepted(accept),
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
        accepted=_accepted(accept),
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
    _note_caution(delta_caution(solved.target_delta, solved.population or 1))
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
    bound = f"epsilon {_epsilon(reached, 4)} at delta {_plain(plan.target_delta)} by {accounting.upper()}"
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
        [_short(cohorts[row]), *("" if math.isnan(one) else _epsilon(one) for one in epsilons[row, some])]
        for row in some
    ]
    header = ["S \\ K", *(_short(populations[place]) for place in some)]
    print_table("epsilon (RDP) over population K and cohort size S", header, rows)


def _plain(value: object) -> str:
    from sottovoce.privacy.accounting import short_number

    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and value < 1e15):
        return f"{value:,.0f}"
    return short_number(value) if isinstance(value, float) else str(value)


@app.command()
def claim(
    run: Run,
    cohort_size: CohortSize,
    population: Population,
    central_steps: Annotated[
        int | None, typer.Option(help="T; as many releases as the run made where left out.", min=0)
    ] = None,
    target_delta: Annotated[float | None, typer.Option(help="Delta; the run's own where left out.")] = None,
    accept: Accept = None,
    as_json: AsJson = False,
) -> None:
    """State the epsilon that a run would have with another cohort and population, at the same noise.

    The WER of the run was measured at the simulated sizes. The command prints what the claim assumes.

    Example: sotto privacy claim runs/private --cohort-size 204800 --population 69506000
    """
    from sottovoce.privacy.claims import claim_at
    from sottovoce.runs.verification import verified_account

    account = verified_account(run)
    made = claim_at(account, cohort_size, population, central_steps, target_delta, accepted=_accepted(accept))
    header = made.account.header
    document = {
        "simulated": {"cohort_size": header.cohort_size, "population": header.population, "z": header.z},
        "claimed": {"cohort_size": cohort_size, "population": population, "central_steps": made.releases},
        **_claim_document(made),
        "assumed": made.assumption,
    }
    _note_caution(made.caution)
    if as_json:
        print_json(document)
        return
    _print_epsilons(document)
    note(made.assumption)


@app.command()
def compose(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Federated runs on one population.")],
    target_delta: Annotated[float | None, typer.Option(help="Delta; the smallest of the runs' where left out.")] = None,
    accept: Accept = None,
    as_json: AsJson = False,
) -> None:
    """Account for several runs on one population together: all of their releases add up.

    Example: sotto privacy compose runs/first runs/second
    """
    from sottovoce.privacy.accounting import account_for, delta_caution
    from sottovoce.privacy.claims import composed
    from sottovoce.privacy.target_delta import ACCEPT_LARGE_DELTA, require_small_delta
    from sottovoce.runs.verification import verified_account

    accounts = [verified_account(run) for run in runs]
    spent = composed(accounts)
    delta = min(account.target_delta for account in accounts) if target_delta is None else target_delta
    population = max(account.header.population for account in accounts)
    require_small_delta(delta, population, _accepted(accept), how=ACCEPT_LARGE_DELTA)
    _note_caution(delta_caution(delta, population))
    if any(account.header.simulated for account in accounts):
        note("Some of these runs are simulations: with one seed they share noise, which is not accounted for here.")
    document = {
        "runs": [
            {"run": str(account.run), "releases": account.releases, "z": account.header.z} for account in accounts
        ],
        "adjacency": spent.adjacency,
        "target_delta": delta,
        **_both(account_for(spent, delta)),
    }
    if as_json:
        print_json(document)
        return
    _print_epsilons(document)


@app.command()
def verify(run: Run, as_json: AsJson = False) -> None:
    """Check a run's ledger: its chain of hashes, its numbers, and whether every checkpoint agrees with it.

    Example: sotto privacy verify runs/private
    """
    from sottovoce.runs.verification import verify as check

    found = check(run)
    if as_json:
        print_json({"run": str(run), **asdict(found)})
        return
    spent = f"epsilon {_epsilon(found.epsilon or 0.0)} by RDP" if found.guaranteed else "no guarantee"
    agree = "agrees" if found.checkpoints == 1 else "agree"
    note(
        f"{run}: {counted(found.lines, 'line')}, {counted(found.releases, 'release')}, {spent}; the chain holds, and "
        f"{counted(found.checkpoints, 'checkpoint')} {agree} with it."
    )


@app.command()
def explain(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="Write the statement to this file instead of printing it.")] = None,
    lm: Annotated[
        Path | None, typer.Option("--lm", help="A language model that is used with the model, to say if it is covered.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the privacy statement of a run: unit, adjacency, mechanism, epsilon, attacks, and what is not covered.

    With --json, the numbers of the statement come with its text.

    Example: sotto privacy explain runs/private --out statement.md
    """
    from sottovoce.privacy.claims import statement
    from sottovoce.runs.verification import verified_account

    if out is not None:
        require_target(out)
    account = verified_account(run)
    text = statement(account, [] if lm is None else _about_language_model(lm))
    if out is not None:
        with written_whole(out) as file:
            file.write(text.encode())
        note(f"{out}: the privacy statement of {run}.")
    if as_json:
        print_json({"run": str(run), **_explained(account), "statement": text})
    elif out is None:
        say(text.rstrip("\n"))


def _about_language_model(path: Path) -> list[str]:
    """Return what a statement must say about a language model."""
    from sottovoce.evaluation.language_model import USERS_NOTE, open_language_model

    opened = open_language_model(path)
    if opened.has_users_transcripts:
        return [f"The language model {path.name}. {USERS_NOTE}"]
    if opened.note is None:
        return [f"The language model {path.name}: it does not say what text it was built from."]
    return [f"The language model {path.name}: by its own note it holds no transcripts of a store; its text is unknown."]


def _explained(account: "Account") -> dict[str, Any]:
    """Return the numbers of a statement; no epsilon without a guarantee."""
    from sottovoce.privacy.accounting import account_for
    from sottovoce.privacy.epsilons import Epsilons

    header, delta = account.header, account.target_delta
    document = {"guaranteed": header.guaranteed, "releases": account.releases, "mechanism": header.line()}
    if not header.guaranteed:
        return document
    spent = _both(account_for(account.spent, delta))
    nobody = Epsilons(spent["rdp"]["epsilon"], spent["pld"]["epsilon"]).protects_nobody
    return {**document, "target_delta": delta, **spent, "protects_nobody": nobody}
