"""The ledgers of a benchmark's private runs, verified before their rows are published.

Only of runs that have spent an epsilon, with secure cohorts and noise: that of a seeded run is a simulation.
"""

from collections.abc import Iterable

from sottovoce.bench.results import RowResult, RunResult, VerifiedLedger
from sottovoce.errors import DataError, PrivacyError
from sottovoce.privacy.claims import open_account
from sottovoce.runs.verification import verified_account

_NAMED = 12  # characters of a hash


def verified_ledger(row: str, run: RunResult) -> VerifiedLedger | None:
    """Return what the ledger of a row's run proves, verified now if the run is here; None where no epsilon was spent.

    Raise PrivacyError where the ledger is missing, or contradicts itself, the configuration or a model.
    """
    if run.folder is None or run.epsilon.tightest is None:
        return run.ledger
    try:
        if open_account(run.folder).header.simulated:
            return None
        account = verified_account(run.folder)
    except (PrivacyError, DataError) as error:
        raise PrivacyError(f"The row {row!r}, seed {run.seed}, has no ledger that holds: {error}") from None
    return VerifiedLedger(releases=account.releases, head=account.content.mark.head)


def ledger_note(results: Iterable[RowResult]) -> str:
    """Return which ledgers were verified, and the hash that each ends in; nothing where there are none."""
    rows = {result.row.name: [_named(run.seed, run.ledger) for run in result.runs if run.ledger] for result in results}
    named = [f"{name} ({', '.join(ledgers)})" for name, ledgers in rows.items() if ledgers]
    if not named:
        return ""
    what = "Ledgers that `sotto privacy verify` accepted when they were exported, and the hash of the last line"
    return f"{what}: {'; '.join(named)}."


def _named(seed: int, ledger: VerifiedLedger) -> str:
    return f"seed {seed}: {ledger.releases} releases, {ledger.head[:_NAMED]}"
