"""Whether a run's ledger is whole: its chain, its numbers, and what every checkpoint says of it."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import rdp
from sottovoce.privacy.claims import open_account
from sottovoce.privacy.ledger import LEDGER_FILE, line_hash, read_ledger
from sottovoce.runs import CHECKPOINT_FILE, read_json


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
    epsilon = _verify_releases(path, account.header, releases)
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


def _verify_releases(path: Path, header: Any, releases: list[dict[str, Any]]) -> float | None:
    """Check the numbers of the releases and their epsilons; return the last one."""
    epsilon = None
    event = open_account(path.parent).event if header["adjacency"] is not None else None
    for number, line in enumerate(releases, 1):
        if line["release"] != number:
            raise PrivacyError(f"{path}: release {number} is missing.")
        epsilon = line["epsilon"]
        if (epsilon is None) != (event is None):
            raise PrivacyError(f"{path}: the epsilon of release {number} does not fit the header.")
        if event is None:
            continue
        # What the sampler costs may be added; a smaller epsilon may not be claimed.
        least = rdp({event: number}, header["target_delta"]).epsilon
        if not math.isfinite(epsilon) or epsilon < least * (1 - 1e-9):
            raise PrivacyError(f"{path}: release {number} claims epsilon {epsilon:g}; it is {least:g}.")
    return epsilon
