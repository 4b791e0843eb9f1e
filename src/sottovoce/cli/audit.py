"""sotto privacy audit: canaries in one run, and what they prove against its claim."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sottovoce.cli.arguments import AsJson, Seed, Workers
from sottovoce.cli.config import Settings, configured
from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table

if TYPE_CHECKING:
    from sottovoce.auditing.verdict import Audit


def audit(
    preset: Annotated[
        str, typer.Argument(metavar="PRESET", help="The mechanism: a built-in preset or a YAML file.")
    ] = "audit",
    canaries: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="How many canaries. More find smaller faults.")
    ] = 2000,
    kind: Annotated[
        Literal["directions", "speakers"],
        typer.Option(help="directions: deltas made to be found; speakers: noise that is trained on, which is weaker."),
    ] = "directions",
    z: Annotated[float | None, typer.Option(help="The noise multiplier; the preset's where left out.")] = None,
    sampling_prob: Annotated[float | None, typer.Option(help="q; the preset's where left out.")] = None,
    central_steps: Annotated[int | None, typer.Option(min=1, help="T; the preset's where left out.")] = None,
    confidence: Annotated[float, typer.Option(help="How sure the bound is.")] = 0.95,
    seed: Seed = 0,
    settings: Settings = None,
    workers: Workers = 1,
    store: Annotated[
        Path | None, typer.Option(help="A folder that keeps the canaries' speech for further audits.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Audit the mechanism: hide canaries in one run by fair coins, and bound epsilon from below by guessing the coins.

    The run is an ordinary federated training with users who try to be found. The bound is printed beside the claim of
    the run's own ledger. The exit code is 1 where the bound is above the claim, which proves a fault.

    Example: sotto privacy audit --canaries 2000
    """
    from sottovoce.auditing import audit as find
    from sottovoce.cli.training_display import TrainingDisplay
    from sottovoce.config import Layer

    resolved = configured(preset, settings, Layer({"seed": seed}, "--seed"))
    with ProgressDisplay() as progress:
        found = find(
            resolved,
            canaries=canaries,
            kind=kind,
            z=z,
            sampling_prob=sampling_prob,
            central_steps=central_steps,
            confidence=confidence,
            workers=workers,
            store=store,
            display=TrainingDisplay,
            progress=progress,
        )
    if as_json:
        print_json(found.document())
    else:
        _print(found)
    if found.refuted:
        raise typer.Exit(1)


def _print(found: "Audit") -> None:
    from sottovoce.auditing.verdict import PROVES
    from sottovoce.privacy.accounting import rounded_up, short_number

    mechanism, best = found.mechanism, found.best_guesses
    sure = f"{100 * found.confidence:g} % confidence"
    rows = [
        ["claim: epsilon of this run's ledger", rounded_up(found.claim, 4)],
        [f"bound: epsilon is at least, at {sure}", _rounded_down(found.bound)],
        ["the same, of any mechanism", _rounded_down(found.bound_of_any_mechanism)],
        ["delta", short_number(found.target_delta)],
        ["canaries, and how many are present", f"{found.canaries:,}, {found.present:,}"],
        ["best guesses: correct of made", f"{best.correct:,} of {best.made:,}"],
        ["a canary's norm after clipping, over C", f"{found.reach:.3f}"],
        ["z, q, releases", f"{mechanism['z']:.4g}, {mechanism['sampling_prob']:.4g}, {found.releases}"],
        ["clipping, sampling, weight", f"{mechanism['clipping']}, {mechanism['sampling']}, {mechanism['weight']}"],
        ["kind of canaries, seed", f"{found.kind}, {found.seed}"],
    ]
    print_table(f"Verdict: {found.verdict}", ["", ""], rows)
    note(PROVES)


def _rounded_down(bound: float) -> str:
    """Return a lower bound as people read it, never larger than it is."""
    return f"{math.floor(1000 * bound) / 1000:.3f}"
