"""The ledger of a run: every release, charged before anyone sees it, in a chain of hashes that reveals any change.

    RUN/ledger.jsonl    a header (`ledger_header.py`), then a line for every release: {"previous": hash of the line
                        before, "release": 3, "step": 2, "epsilon": ..., "aggregate": hash of the noised sum}

Guarantees:
- a line is on disk before any model, metric or checkpoint that depends on its step is written;
- the ledger holds nothing of the sum before noise: `aggregate` is the hash of the noised sum, if there is noise;
- every checkpoint holds the length of the ledger and the hash of its last line, so a line that was cut off, changed or
  removed is detected; an incomplete line at the end, left by a killed process, is cut off;
- a step that is repeated after a kill is matched with its line. The same noised sum is not charged twice. A different
  sum never gets noise that was used before: the noise is drawn again, and a second release of the step is charged.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sottovoce.errors import PrivacyError
from sottovoce.files import sync_folder
from sottovoce.privacy.accounting import rdp
from sottovoce.privacy.ledger_header import FORMAT, LedgerHeader
from sottovoce.privacy.mechanism import Mechanism

LEDGER_FILE = "ledger.jsonl"
_MAY_DIFFER = ("code", "config", "seed_model")  # when a run is resumed
_START = "0" * 64  # what the header names as the line before it


@dataclass(frozen=True)
class Mark:
    """A place in a ledger: how many lines it has, and the hash of the last of them."""

    lines: int
    head: str


class Ledger:
    """The ledger of one run, open for charging. Only the leading process has it."""

    def __init__(self, path: Path, mechanism: Mechanism, header: LedgerHeader, saved: Mark | None) -> None:
        """Begin a ledger, or resume it after the checkpoint that holds the mark `saved`.

        Raise PrivacyError where it belongs to another mechanism, or was changed.
        """
        self._path = path
        self._mechanism = mechanism
        self._allowed = releases_allowed(mechanism)
        self._again: dict[int, list[str]] = {}  # by step: what was charged after the last checkpoint
        lines = read_ledger(path, repair=True) if path.exists() else []
        if not lines:
            if saved is not None:
                raise PrivacyError(f"{path} is missing, but a checkpoint names {saved.lines} lines of it. Restore it.")
            self._lines, self._head, self.releases = 0, _START, 0
            self._append(header.line())
            return
        require_same_mechanism(path, header)
        hashes = [line_hash(line) for line in lines]
        if saved is not None and (saved.lines > len(lines) or hashes[saved.lines - 1] != saved.head):
            raise PrivacyError(f"{path} is not the ledger that the last checkpoint was saved with. Restore it.")
        self._lines, self._head = len(lines), hashes[-1]
        self.releases = sum("release" in line for line in lines)
        for line in lines[1 if saved is None else saved.lines :]:
            if "release" in line:
                self._again.setdefault(line["step"], []).append(line["aggregate"])
        self._note_changes(lines, header.line())

    def _note_changes(self, lines: list[dict[str, Any]], header: Mapping[str, Any]) -> None:
        """Record what differs from the start of the run, where it is resumed with another code, config or seed."""
        known = dict(lines[0])
        for line in lines:
            known |= line.get("now", {})
        changed = {key: header[key] for key in _MAY_DIFFER if header[key] and header[key] != known.get(key)}
        if changed:
            self.note({"now": changed})

    @property
    def mark(self) -> Mark:
        """Where the ledger stands."""
        return Mark(self._lines, self._head)

    def charge(self, step: int, attempt: int, aggregate: str) -> bool:
        """Charge a release, unless it was charged before; return False where its noise was used on another sum.

        `aggregate` is the hash of the noised sum; `attempt` counts the draws of noise for this step, where a repeated
        draw gives the same noise.
        """
        charged = self._again.get(step, [])
        if aggregate in charged:
            return True
        if self._mechanism.source == "seeded" and attempt < len(charged):
            return False
        if self._allowed is not None and self.releases >= self._allowed:
            raise PrivacyError(f"The privacy budget allows {self._allowed} releases, and all of them were made.")
        self.releases += 1
        line = {"release": self.releases, "step": step, "epsilon": self.epsilon, "aggregate": aggregate}
        self._append(line)
        self._again.setdefault(step, []).append(aggregate)
        return True

    def repeats(self, step: int, aggregate: str) -> bool:
        """Return whether a release of this step was charged before a kill, with another noised sum."""
        charged = self._again.get(step, [])
        return bool(charged) and aggregate not in charged

    @property
    def epsilon(self) -> float | None:
        """Epsilon of all releases, by RDP; None without a guarantee."""
        return epsilon_after(self._mechanism, self.releases)

    def may_release(self, step: int) -> bool:
        """Return whether the budget allows a release of this step, or has paid for it already."""
        paid = step in self._again and self._mechanism.source == "seeded"  # secure noise is charged again
        return self._allowed is None or self.releases < self._allowed or paid

    def note(self, document: Mapping[str, Any]) -> None:
        """Add a line that is not a release."""
        self._append(dict(document))

    def _append(self, document: dict[str, Any]) -> None:
        line = {"previous": self._head, **document}
        created = not self._path.exists()
        with self._path.open("ab") as file:
            file.write(_encoded(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if created:
            sync_folder(self._path.parent)
        self._head = line_hash(line)
        self._lines += 1


def epsilon_after(mechanism: Mechanism, releases: int) -> float | None:
    """Return epsilon after this many releases, by RDP; None without a guarantee."""
    if mechanism.privacy.void is not None:
        return None
    return rdp(mechanism.spent(releases), mechanism.privacy.target_delta).epsilon


def releases_allowed(mechanism: Mechanism) -> int | None:
    """Return how many releases a budget allows, by RDP; None without a budget."""
    budget = mechanism.privacy.budget
    if budget is None:
        return None
    delta = budget.target_delta or mechanism.privacy.target_delta

    def within(releases: int) -> bool:
        return rdp(mechanism.spent(releases), delta).epsilon <= budget.epsilon

    low, high = 0, 1
    while high < 2**40 and within(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def read_ledger(path: Path, *, repair: bool = False) -> list[dict[str, Any]]:
    """Return the lines of a ledger whose chain holds; `repair` cuts off an incomplete line at the end."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data) and repair:
        os.truncate(path, len(whole))
    lines: list[dict[str, Any]] = []
    previous = _START
    for number, text in enumerate(whole.split(b"\n")[:-1], 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict) or line.get("previous") != previous or _encoded(line) != text:
            raise PrivacyError(f"{path}: line {number} does not follow from the one before it. It was changed.")
        lines.append(line)
        previous = line_hash(line)
    if lines and lines[0].get("ledger") != FORMAT:
        raise PrivacyError(f"{path} is not a ledger of the form {FORMAT}.")
    return lines


def line_hash(line: Mapping[str, Any]) -> str:
    """Return the hash that the next line names."""
    return hashlib.sha256(_encoded(line)).hexdigest()


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False, allow_nan=False).encode()


def require_same_mechanism(path: Path, header: LedgerHeader) -> None:
    """Raise PrivacyError where a ledger was begun with another mechanism; without a ledger, anything may begin."""
    lines = read_ledger(path) if path.exists() else []
    if not lines:
        return
    begun, now = LedgerHeader.read(lines[0], path), header
    for key in LedgerHeader.model_fields:
        if key not in _MAY_DIFFER and getattr(begun, key) != getattr(now, key):
            raise PrivacyError(
                f"{path} was begun with {key}={getattr(begun, key)}, not {getattr(now, key)}: a run keeps its "
                "mechanism. Choose another --run."
            )
