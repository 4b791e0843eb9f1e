"""What the commands of `sotto privacy` share: their options, and how epsilons are documented and printed."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sottovoce.cli.console import note, print_table

if TYPE_CHECKING:
    from sottovoce.privacy.acceptance import Acceptance
    from sottovoce.privacy.accounting import Accounted, Pld
    from sottovoce.privacy.claims import Claim

CohortSize = Annotated[float, typer.Option(help="S, the expected number of users in a step.")]
Population = Annotated[int, typer.Option(help="K, the number of users.")]
Accept = Annotated[
    Literal["large_delta"] | None,
    typer.Option(help="large_delta: compute an epsilon although delta is not below 1/K."),
]


def accepted_by(accept: "Acceptance | None") -> "tuple[Acceptance, ...]":
    """Return what the option --accept accepts."""
    return () if accept is None else (accept,)


def claim_document(claim: "Claim") -> dict[str, Any]:
    """Return the numbers of a claim for --json and for `print_epsilons`."""
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
        **by_both_methods(claim.accounted),
    }


def by_both_methods(accounted: "Accounted") -> dict[str, Any]:
    """Return the epsilons by RDP and by PLD for --json."""
    return {"rdp": asdict(accounted.rdp), "pld": pld_document(accounted.pld)}


def note_caution(caution: str | None) -> None:
    """Print a caution, where there is one."""
    if caution is not None:
        note(f"Caution: {caution}")


def pld_document(found: "Pld") -> dict[str, Any]:
    """Return the epsilon by PLD for --json, or why there is none."""
    return {"epsilon": found.epsilon} | ({} if found.reason is None else {"reason": found.reason})


def print_epsilons(document: dict[str, Any]) -> None:
    """Print the numbers of a claim as a table, and say where they protect nobody."""
    from sottovoce.privacy.accounting import short_number
    from sottovoce.privacy.epsilons import NOBODY_PROTECTED, Epsilons

    rows = [["z", short_number(document["z"])]] if "z" in document else []
    if "sampling_prob" in document:
        rows.append(["sampling probability", short_number(document["sampling_prob"])])
    if "participation_prob" in document:
        rows.append(["probability when it is a user's turn", short_number(document["participation_prob"])])
    rows += [["adjacency", document["adjacency"]], ["delta", short_number(document["target_delta"])]]
    if "extra_delta" in document:
        rows.append(["of which cut cohorts take", epsilon_text(document["extra_delta"], 2)])
    rows.append(["epsilon, RDP", _rdp_text(document["rdp"])])
    tight = document["pld"]
    rows.append(
        [
            "epsilon, PLD",
            f"refused: {tight['reason']}" if tight["epsilon"] is None else epsilon_text(tight["epsilon"], 4),
        ]
    )
    if "rdp_at_paper_orders" in document:
        rows.append(["epsilon, RDP at the paper's orders", _rdp_text(document["rdp_at_paper_orders"])])
    print_table("", ["", ""], rows)
    if Epsilons(document["rdp"]["epsilon"], tight["epsilon"]).protects_nobody:
        note(NOBODY_PROTECTED)


def epsilon_text(value: float, digits: int = 3) -> str:
    """Return an epsilon as text, rounded up."""
    from sottovoce.privacy.accounting import rounded_up, short_exponents

    return short_exponents(rounded_up(value, digits))


def _rdp_text(found: dict[str, Any]) -> str:
    order = "" if found["order"] is None else f" (order {_order_text(found['order'])})"
    return f"{epsilon_text(found['epsilon'], 4)}{order}"


def _order_text(order: float) -> str:
    from sottovoce.privacy.accounting import short_number

    return f"{order:.4g}" if order > 1.001 else f"1 + {short_number(order - 1, 2)}"
