"""An audit from end to end: coins, a store of canaries, the audited run, its ledger, the guesses."""

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.auditing.audit_settings import CanaryKind, audited_settings, flipped_coins
from sottovoce.auditing.canary_speech import canary_name, canary_store
from sottovoce.auditing.one_run import ranked_guesses
from sottovoce.auditing.verdict import Audit
from sottovoce.config import Layer, Resolved, resolve
from sottovoce.data.selection import Selection
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import written_whole
from sottovoce.privacy.claims import open_account
from sottovoce.processes import Progress, no_progress, under_torchrun
from sottovoce.runs.display import MakeDisplay, NoDisplay
from sottovoce.runs.verification import verify
from sottovoce.workers import run_workers

if TYPE_CHECKING:
    from sottovoce.distributed import Group


def audit(
    settings: Resolved | str = "audit",
    *,
    canaries: int = 2000,
    kind: CanaryKind = "directions",
    z: float | None = None,
    sampling_prob: float | None = None,
    central_steps: int | None = None,
    confidence: float = 0.95,
    workers: int = 1,
    store: Path | str | None = None,
    display: MakeDisplay = NoDisplay,
    progress: Progress = no_progress,
) -> Audit:
    """Audit the mechanism of some settings by one run with canaries, and return what it proves.

    `z`, `sampling_prob` and `central_steps` replace those of the settings. `store` is a folder that keeps the canaries'
    store for further audits; the run itself is made in a temporary folder, and nothing of it is kept.

    Example: `found = sv.audit(canaries=2000); found.claim, found.bound, found.verdict`
    """
    if canaries < 1 or not 0.5 <= confidence < 1:
        raise ConfigError(f"Expected canaries={canaries} >= 1 and 0.5 <= confidence={confidence:g} < 1.")
    if under_torchrun():
        raise ConfigError("An audit starts its workers itself. Run it without torchrun, with --workers.")
    preset = resolve(settings) if isinstance(settings, str) else settings
    audited = audited_settings(preset, canaries, z=z, sampling_prob=sampling_prob, central_steps=central_steps)
    coins = flipped_coins(audited.config.seed, canaries)
    with tempfile.TemporaryDirectory(prefix="sotto-audit-") as name:
        folder = Path(name)
        run, seen = folder / "run", folder / "seen.npy"
        kept = canary_store(folder if store is None else Path(store), canaries, progress)
        # Every audit has users of its own: what other runs spent on the same users must not enter into it.
        speech = shutil.copytree(kept.path, folder / "speech")
        present = _listed(np.flatnonzero(coins).tolist(), folder / "present.txt")
        train = Selection(store=speech, speakers=present)
        trained = audited.over(Layer({"data": {"train": train}}, "the audit"))
        hardware = audited.config.hardware
        arguments = (trained, run, canaries, kind, seen, display)
        run_workers(_audit_worker, arguments, workers, hardware.threads_per_worker, limit=hardware.processes)
        if not seen.exists():
            raise DataError("The audited run was stopped before its last step. Start the audit again.")
        verify(run)
        account = open_account(run)
        odds, reach = np.load(seen)
        return Audit(
            spent=account.spent,
            target_delta=account.target_delta,
            canaries=canaries,
            present=int(coins.sum()),
            guesses=ranked_guesses(odds, coins),
            confidence=confidence,
            reach=float(np.median(reach)),
            kind=kind,
            mechanism=account.header.line(),
            releases=account.releases,
            seed=audited.config.seed,
        )


def _listed(numbers: Iterable[int], path: Path) -> Path:
    """Write the names of some canaries into a file."""
    with written_whole(path) as file:
        file.write("".join(f"{canary_name(number)}\n" for number in numbers).encode())
    return path


def _audit_worker(
    group: "Group", settings: Resolved, run: Path, canaries: int, kind: CanaryKind, out: Path, display: MakeDisplay
) -> None:
    from sottovoce.auditing.audit_run import audited_run  # noqa: PLC0415 - loads torch

    audited_run(group, settings, run, canaries, kind, out, display)
