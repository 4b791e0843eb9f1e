"""sotto privacy claim, compose, verify and explain: questions about runs, answered from their ledgers."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.console import counted, note, print_json, say
from sottovoce.cli.epsilon_display import (
    Accept,
    CohortSize,
    Population,
    accepted_by,
    by_both_methods,
    claim_document,
    epsilon_text,
    note_caution,
    print_epsilons,
)
from sottovoce.files import require_place, written_whole

if TYPE_CHECKING:
    from sottovoce.privacy.claims import Account

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a federated run.")]


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
    made = claim_at(account, cohort_size, population, central_steps, target_delta, accepted=accepted_by(accept))
    header = made.account.header
    document = {
        "simulated": {"cohort_size": header.cohort_size, "population": header.population, "z": header.z},
        "claimed": {"cohort_size": cohort_size, "population": population, "central_steps": made.releases},
        **claim_document(made),
        "assumed": made.assumption,
    }
    note_caution(made.caution)
    if as_json:
        print_json(document)
        return
    print_epsilons(document)
    note(made.assumption)


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
    require_small_delta(delta, population, accepted_by(accept), how=ACCEPT_LARGE_DELTA)
    note_caution(delta_caution(delta, population))
    if any(account.header.simulated for account in accounts):
        note("Some of these runs are simulations: with one seed they share noise, which is not accounted for here.")
    document = {
        "runs": [
            {"run": str(account.run), "releases": account.releases, "z": account.header.z} for account in accounts
        ],
        "adjacency": spent.adjacency,
        "target_delta": delta,
        **by_both_methods(account_for(spent, delta)),
    }
    if as_json:
        print_json(document)
        return
    print_epsilons(document)


def verify(run: Run, as_json: AsJson = False) -> None:
    """Check a run's ledger: its chain of hashes, its numbers, and whether every checkpoint agrees with it.

    Example: sotto privacy verify runs/private
    """
    from sottovoce.runs.verification import verify as check

    found = check(run)
    if as_json:
        print_json({"run": str(run), **asdict(found)})
        return
    spent = f"epsilon {epsilon_text(found.epsilon or 0.0)} by RDP" if found.guaranteed else "no guarantee"
    agree = "agrees" if found.checkpoints == 1 else "agree"
    note(
        f"{run}: {counted(found.lines, 'line')}, {counted(found.releases, 'release')}, {spent}; the chain holds, and "
        f"{counted(found.checkpoints, 'checkpoint')} {agree} with it."
    )


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
        require_place(out, ".md", ".txt")
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
    spent = by_both_methods(account_for(account.spent, delta))
    nobody = Epsilons(spent["rdp"]["epsilon"], spent["pld"]["epsilon"]).protects_nobody
    return {**document, "target_delta": delta, **spent, "protects_nobody": nobody}
