"""sotto privacy population: what all runs on the same users have spent together."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.console import counted, note, print_json, print_table
from sottovoce.errors import PrivacyError

if TYPE_CHECKING:
    from sottovoce.privacy.population_ledger import PopulationLedger, RunCharges


def population(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store whose users they are.")],
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger's folder (privacy.ledger); beside the store where left out.")
    ] = None,
    charge: Annotated[
        list[Path] | None,
        typer.Option(help="First charge the releases of a run that was made with another ledger. Repeat for several."),
    ] = None,
    target_delta: Annotated[float, typer.Option(help="The delta of (epsilon, delta).")] = 1e-9,
    as_json: AsJson = False,
) -> None:
    """Show the ledger of a population: every run on its users, and the epsilon of all of them together.

    The ledger is private: it is for whoever holds the users' data. Copies of a run count once up to where they part.

    Example: sotto privacy population stores/mine
    """
    from sottovoce.privacy.accounting import short_number
    from sottovoce.privacy.population_ledger import PopulationLedger, place_beside
    from sottovoce.privacy.target_delta import delta_caution, too_large
    from sottovoce.runs.verification import verified_account

    place = ledger or place_beside(store)
    PopulationLedger.require(place, store)
    opened = PopulationLedger(place, store)
    for run in charge or ():
        content = verified_account(run).content
        opened.adopt(content.run, content.header, content.charges, run)
    largest = max((run.header.population for run in opened.runs.values()), default=1)
    if (caution := delta_caution(target_delta, largest)) is not None:
        if too_large(target_delta, largest):
            raise PrivacyError(caution)
        note(f"Caution: {caution}")
    document = _document(opened, target_delta)
    if as_json:
        print_json(document)
        return
    rows = [
        [run["place"], f"#{run['users'][:8] or '?'}", _releases(run), run["guarantee"], _epsilon(run)]
        for run in document["runs"]
    ]
    columns = ["run", "hash of its users", "releases", "guarantee", "epsilon"]
    print_table(f"{opened.place}: all runs on these users", columns, rows)
    for total in document["totals"]:
        counts = f"{counted(total['releases'], 'release')} of {counted(total['runs'], 'run')}"
        together = f"epsilon {_epsilon(total)} at delta {short_number(target_delta)}"
        note(f"Together: {together}, {counts}; unit: {total['unit']}; adjacency: {total['adjacency']}.")
    if document["unprotected"]:
        note(f"{counted(document['unprotected'], 'run')} had no guarantee: no epsilon covers what was released there.")


def _document(opened: "PopulationLedger", target_delta: float) -> dict[str, Any]:
    from sottovoce.privacy.accounting import Spent

    runs = list(opened.runs.values())
    groups: dict[tuple[str, str], list[RunCharges]] = {}
    for run in runs:
        if run.header.adjacency is not None:
            groups.setdefault((run.header.unit, run.header.adjacency), []).append(run)
    return {
        "ledger": opened.id,
        "place": str(opened.place),
        "target_delta": target_delta,
        "runs": [_run_document(run, target_delta) for run in runs],
        "totals": [
            {
                "unit": unit,
                "adjacency": adjacency,
                "runs": len(members),
                "releases": sum(len(run.charges) for run in members),
                **_epsilons(sum((run.spent for run in members), Spent({})), target_delta),
            }
            for (unit, adjacency), members in groups.items()
        ],
        "unprotected": sum(not run.header.guaranteed for run in runs),
    }


def _run_document(run: "RunCharges", target_delta: float) -> dict[str, Any]:
    header = run.header
    kind = "none" if not header.guaranteed else "simulation" if header.simulated else "secure"
    return {
        "place": run.place,
        "run": run.run,
        "users": run.users,
        "guarantee": kind,
        "releases": len(run.charges),
        **(_epsilons(run.spent, target_delta) if header.guaranteed else {"epsilon_rdp": None, "epsilon_pld": None}),
    }


def _epsilons(spent: Any, target_delta: float) -> dict[str, float | None]:
    from sottovoce.privacy.accounting import account_for

    found = account_for(spent, target_delta).epsilons
    return {"epsilon_rdp": found.rdp, "epsilon_pld": found.pld}


def _releases(run: dict[str, Any]) -> str:
    """Return the number of releases that were charged; those of a run without a guarantee are not."""
    return "not charged" if run["guarantee"] == "none" and not run["releases"] else f"{run['releases']:,}"


def _epsilon(document: dict[str, Any]) -> str:
    from sottovoce.privacy.accounting import rounded_up, short_exponents
    from sottovoce.privacy.epsilons import Epsilons

    tightest = Epsilons(document["epsilon_rdp"], document["epsilon_pld"]).tightest
    return "-" if tightest is None else short_exponents(rounded_up(tightest))
