"""The ledger of a run: every release, charged before anyone sees it, in a chain of hashes that reveals any change.

    RUN/ledger.jsonl    a header (`ledger_header.py`), then a line for every release, every resumption with other
                        settings and every end (`ledger_lines.py`); `previous` in each is the hash of the line before

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sottovoce.errors import PrivacyError
from sottovoce.files import sync_folder
from sottovoce.privacy.accounting import rdp
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.ledger_lines import Changes, Entry, Release, Resumption, RunEnd, read_entry
from sottovoce.privacy.mechanism import Mechanism

LEDGER_FILE = "ledger.jsonl"
_START = "0" * 64  # what the header names as the line before it


@dataclass(frozen=True)
class Mark:
    """A place in a ledger: how many lines it has, and the hash of the last of them."""

    lines: int
    head: str


@dataclass(frozen=True)
class LedgerContent:
    """The lines of a ledger whose chain holds."""

    header: LedgerHeader
    entries: tuple[Entry, ...]  # the lines after the header
    hashes: tuple[str, ...]  # of all lines, the header's first

    @property
    def releases(self) -> tuple[Release, ...]:
        """All releases, in order."""
        return releases_in(self.entries)

    @property
    def changes(self) -> tuple[Changes, ...]:
        """The changes of code, configuration and seed model that the run was resumed with."""
        return tuple(entry.now for entry in self.entries if isinstance(entry, Resumption))

    @property
    def mark(self) -> Mark:
        """The end of the ledger."""
        return Mark(len(self.hashes), self.hashes[-1])

    def holds(self, mark: Mark) -> bool:
        """Return whether the ledger was at this mark once."""
        return 0 < mark.lines <= len(self.hashes) and self.hashes[mark.lines - 1] == mark.head

    def before(self, mark: Mark) -> tuple[Entry, ...]:
        """Return the entries that were written before a mark."""
        return self.entries[: mark.lines - 1]

    def after(self, mark: Mark) -> tuple[Entry, ...]:
        """Return the entries that were written after a mark."""
        return self.entries[mark.lines - 1 :]


def releases_in(entries: Iterable[Entry]) -> tuple[Release, ...]:
    """Return those of the entries that are releases."""
    return tuple(entry for entry in entries if isinstance(entry, Release))


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
        content = read_ledger(path, repair=True) if path.exists() else None
        if content is None:
            if saved is not None:
                raise PrivacyError(f"{path} is missing, but a checkpoint names {saved.lines} lines of it. Restore it.")
            self._lines, self._head, self.releases = 0, _START, 0
            self._append(header.line())
            return
        require_same_mechanism(path, header)
        if saved is not None and not content.holds(saved):
            raise PrivacyError(f"{path} is not the ledger that the last checkpoint was saved with. Restore it.")
        self._lines, self._head = content.mark.lines, content.mark.head
        self.releases = len(content.releases)
        for release in releases_in(content.entries if saved is None else content.after(saved)):
            self._again.setdefault(release.step, []).append(release.aggregate)
        self._note_changes(content, header)

    def _note_changes(self, content: LedgerContent, header: LedgerHeader) -> None:
        """Record what differs from the start of the run, where it is resumed with another code, config or seed."""
        known: dict[str, str] = {key: getattr(content.header, key) for key in Changes.model_fields}
        for change in content.changes:
            known |= change.line()
        given: dict[str, str] = {key: getattr(header, key) for key in Changes.model_fields}
        changed = {key: value for key, value in given.items() if value and value != known[key]}
        if changed:
            self.note(Resumption(now=Changes(**changed)))

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
        self._append(Release(release=self.releases, step=step, epsilon=self.epsilon, aggregate=aggregate).line())
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

    def note(self, entry: Resumption | RunEnd) -> None:
        """Add a line that is not a release."""
        self._append(entry.line())

    def _append(self, document: dict[str, Any]) -> None:
        line = {"previous": self._head, **document}
        created = not self._path.exists()
        text = _encoded(line)
        with self._path.open("ab") as file:
            file.write(text + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if created:
            sync_folder(self._path.parent)
        self._head = _hash(text)
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


def read_ledger(path: Path, *, repair: bool = False) -> LedgerContent | None:
    """Return the lines of a ledger whose chain holds; None where it has none.

    Raise PrivacyError with the number of a line that was changed or is damaged. An incomplete line at the end is left
    out; `repair` cuts it off.
    """
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data) and repair:
        os.truncate(path, len(whole))
    texts = whole.split(b"\n")[:-1]
    if not texts:
        return None
    hashes = tuple(map(_hash, texts))
    first, *others = [
        _document(text, previous, path, number)
        for number, (text, previous) in enumerate(zip(texts, (_START, *hashes), strict=False), 1)
    ]
    header = LedgerHeader.read(first, path)
    return LedgerContent(header, tuple(read_entry(line, path, number) for number, line in enumerate(others, 2)), hashes)


def _document(text: bytes, previous: str, path: Path, number: int) -> dict[str, Any]:
    """Return one line, which must name the hash of the line before it and be written as `_encoded` writes it."""
    try:
        line = json.loads(text)
        follows = isinstance(line, dict) and line.get("previous") == previous and _encoded(line) == text
    except ValueError:  # not JSON, or not a finite number
        follows = False
    if not follows:
        raise PrivacyError(f"{path}: line {number} does not follow from the one before it. It was changed.")
    return dict(line)


def _hash(text: bytes) -> str:
    """Return the hash that the next line names."""
    return hashlib.sha256(text).hexdigest()


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False, allow_nan=False).encode()


def require_same_mechanism(path: Path, header: LedgerHeader) -> None:
    """Raise PrivacyError where a ledger was begun with another mechanism; without a ledger, anything may begin."""
    content = read_ledger(path) if path.exists() else None
    if content is None:
        return
    begun, now = content.header, header
    for key in LedgerHeader.model_fields:
        if key not in Changes.model_fields and getattr(begun, key) != getattr(now, key):
            raise PrivacyError(
                f"{path} was begun with {key}={getattr(begun, key)}, not {getattr(now, key)}: a run keeps its "
                "mechanism. Choose another --run."
            )
