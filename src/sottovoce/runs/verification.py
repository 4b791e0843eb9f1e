"""Verifying a run's ledger: its chain of hashes, its numbers, and the checkpoints that name it."""

import math
from dataclasses import dataclass
from pathlib import Path

from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import ADD_OR_REMOVE, REPLACE, pld, rdp
from sottovoce.privacy.claims import Account, open_account
from sottovoce.privacy.ledger import LedgerContent, releases_in
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.ledger_lines import RunEnd
from sottovoce.runs.documents import Checkpoint, Result


@dataclass(frozen=True)
class Verified:
    """The contents of a ledger that was verified."""

    lines: int
    releases: int
    checkpoints: int
    epsilon: float | None


def verify(run: Path) -> Verified:
    """Check the ledger of a run; raise PrivacyError with the first contradiction."""
    account = open_account(run)
    path, content = account.path, account.content
    _verify_header(path, account.header)
    epsilon = _verify_releases(path, account)
    _verify_ends(path, account)
    checkpoints = sorted((run / "checkpoints").glob(f"[0-9]*/{Checkpoint.FILE}"))
    for file in checkpoints:
        _verify_checkpoint(path, file, content)
    return Verified(content.mark.lines, account.releases, len(checkpoints), epsilon)


def _verify_checkpoint(path: Path, file: Path, content: LedgerContent) -> None:
    """Check that the ledger holds the lines that a checkpoint was saved after, and every step before it."""
    checkpoint = Checkpoint.read(file.parent)
    mark = checkpoint.ledger
    if mark is None:
        raise PrivacyError(f"{file} does not name the ledger.")
    lines = content.mark.lines
    if mark.lines > lines:
        raise PrivacyError(f"{path} has {lines} lines, but {file} was saved after {mark.lines}: it was cut.")
    if not content.holds(mark):
        raise PrivacyError(f"{path} is not the ledger that {file} was saved with: it was changed.")
    steps = {release.step for release in releases_in(content.before(mark))}
    missing = set(range(checkpoint.step)) - steps
    if missing:
        raise PrivacyError(f"{file} is after {checkpoint.step} steps, but step {min(missing)} was not charged.")


def _verify_header(path: Path, header: LedgerHeader) -> None:
    """Check that z and q follow from what the header says of noise and cohorts."""
    z = header.sigma_dp * header.divisor / (header.weight_bound * header.sensitivity)
    sampling_prob = header.cohort_size / header.population
    for key, stated, value in (("z", header.z, z), ("sampling_prob", header.sampling_prob, sampling_prob)):
        if not math.isclose(stated, value, rel_tol=1e-9):
            raise PrivacyError(f"{path}: the header says {key}={stated:g}; it is {value:g}.")
    if header.adjacency not in (None, REPLACE if header.sampling == "fixed" else ADD_OR_REMOVE):
        raise PrivacyError(f"{path}: the adjacency does not fit cohorts that are {header.sampling}.")


def _verify_releases(path: Path, account: Account) -> float | None:
    """Check the numbers of the releases and their epsilons; return the last one."""
    epsilon = None
    void = not account.header.guaranteed
    for number, release in enumerate(account.content.releases, 1):
        if release.release != number:
            raise PrivacyError(f"{path}: release {number} is missing.")
        epsilon = release.epsilon
        if (epsilon is None) != void:
            raise PrivacyError(f"{path}: the epsilon of release {number} does not fit the header.")
        if epsilon is None:
            continue
        least = rdp(account.spent_after(number), account.target_delta).epsilon
        if epsilon < least * (1 - 1e-9):
            raise PrivacyError(f"{path}: release {number} claims epsilon {epsilon:g}; it is {least:g}.")
    return epsilon


def _verify_ends(path: Path, account: Account) -> None:
    """Check the lines that say how much a finished run has spent, and its result."""
    entries = account.content.entries
    ends = [(place, entry) for place, entry in enumerate(entries) if isinstance(entry, RunEnd)]
    for place, end in ends:
        _verify_end(path, account, end, len(releases_in(entries[:place])))
    result = Result.find(path.parent)
    if result is not None:
        file = path.parent / Result.FILE
        if not ends:
            raise PrivacyError(f"{path} does not say how the run ended, but {file} exists: a line was cut off.")
        _verify_end(file, account, result, account.releases)


def _verify_end(path: Path, account: Account, end: RunEnd | Result, releases: int) -> None:
    """Check the releases and epsilons of an end: those of a line of the ledger, or of the result."""
    if end.releases != releases:
        raise PrivacyError(f"{path}: it says {end.releases} releases; the ledger holds {releases}.")
    if not account.header.guaranteed:
        return
    spent, delta = account.spent_after(releases), account.target_delta
    for name, claimed, least in (
        ("epsilon_rdp", end.epsilon_rdp, rdp(spent, delta).epsilon),
        ("epsilon_pld", end.epsilon_pld, pld(spent, delta).epsilon),
    ):
        if claimed is not None and least is not None and claimed < least * (1 - 1e-6):
            raise PrivacyError(f"{path}: it says {name} {claimed:g}; it is {least:g}.")
