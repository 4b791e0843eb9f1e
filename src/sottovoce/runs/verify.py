"""Whether a run's ledger is whole: its chain, its numbers, and what every checkpoint says of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import ADD_OR_REMOVE, REPLACE, pld, rdp
from sottovoce.privacy.claims import Account, open_account
from sottovoce.privacy.ledger import LEDGER_FILE, line_hash, read_ledger
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.runs.folder import CHECKPOINT_FILE, read_json


@dataclass(frozen=True)
class Verified:
    """What was found to hold."""

    lines: int
    releases: int
    checkpoints: int
    epsilon: float | None


def verify(run: Path) -> Verified:
    """Check the ledger of a run; raise PrivacyError with the first thing that does not hold."""
    path = run / LEDGER_FILE
    account = open_account(run)
    lines = read_ledger(path)
    releases = [line for line in lines if "release" in line]
    _verify_header(path, account.header)
    epsilon = _verify_releases(path, account, releases)
    _verify_ends(path, account, lines)
    hashes = [line_hash(line) for line in lines]
    checkpoints = 0
    for file in sorted((run / "checkpoints").glob(f"[0-9]*/{CHECKPOINT_FILE}")):
        counters = read_json(file)
        mark = counters.get("ledger")
        if mark is None:
            raise PrivacyError(f"{file} does not name the ledger.")
        if mark["lines"] > len(lines):
            raise PrivacyError(
                f"{path} has {len(lines)} lines, but {file} was saved after {mark['lines']}: it was cut."
            )
        if hashes[mark["lines"] - 1] != mark["head"]:
            raise PrivacyError(f"{path} is not the ledger that {file} was saved with: it was changed.")
        steps = {line["step"] for line in lines[: mark["lines"]] if "release" in line}
        missing = set(range(counters["step"])) - steps
        if missing:
            raise PrivacyError(f"{file} is after {counters['step']} steps, but step {min(missing)} was not charged.")
        checkpoints += 1
    return Verified(len(lines), len(releases), checkpoints, epsilon)


def _verify_header(path: Path, header: LedgerHeader) -> None:
    """Check that z and q follow from what the header says of noise and cohorts."""
    z = header.sigma_dp * header.divisor / (header.weight_bound * header.sensitivity)
    sampling_prob = header.cohort_size / header.population
    for key, stated, value in (("z", header.z, z), ("sampling_prob", header.sampling_prob, sampling_prob)):
        if not math.isclose(stated, value, rel_tol=1e-9):
            raise PrivacyError(f"{path}: the header says {key}={stated:g}; it is {value:g}.")
    if header.adjacency not in (None, REPLACE if header.sampling == "fixed" else ADD_OR_REMOVE):
        raise PrivacyError(f"{path}: the adjacency does not fit cohorts that are {header.sampling}.")


def _verify_releases(path: Path, account: Account, releases: list[dict[str, Any]]) -> float | None:
    """Check the numbers of the releases and their epsilons; return the last one."""
    epsilon = None
    void = not account.header.guaranteed
    for number, line in enumerate(releases, 1):
        if line["release"] != number:
            raise PrivacyError(f"{path}: release {number} is missing.")
        epsilon = line["epsilon"]
        if (epsilon is None) != void:
            raise PrivacyError(f"{path}: the epsilon of release {number} does not fit the header.")
        if void:
            continue
        least = rdp(account.spent_after(number), account.target_delta).epsilon
        if not math.isfinite(epsilon) or epsilon < least * (1 - 1e-9):
            raise PrivacyError(f"{path}: release {number} claims epsilon {epsilon:g}; it is {least:g}.")
    return epsilon


def _verify_ends(path: Path, account: Account, lines: list[dict[str, Any]]) -> None:
    """Check the lines that say how much a finished run has spent, and its result."""
    ends = [(number, line) for number, line in enumerate(lines) if "finished" in line]
    for number, line in ends:
        made = sum("release" in before for before in lines[:number])
        _verify_end(path, account, line, made)
    result = path.parent / "result.json"
    if result.is_file():
        if not ends:
            raise PrivacyError(f"{path} does not say how the run ended, but {result} is there: a line was cut off.")
        _verify_end(result, account, read_json(result), account.releases)


def _verify_end(path: Path, account: Account, line: Mapping[str, Any], made: int) -> None:
    if line["releases"] != made:
        raise PrivacyError(f"{path}: it says {line['releases']} releases; there were {made}.")
    if not account.header.guaranteed:
        return
    spent, delta = account.spent_after(made), account.target_delta
    for key, least in (("epsilon_rdp", rdp(spent, delta).epsilon), ("epsilon_pld", pld(spent, delta).epsilon)):
        if line[key] is not None and least is not None and line[key] < least * (1 - 1e-6):
            raise PrivacyError(f"{path}: it says {key} {line[key]:g}; it is {least:g}.")
