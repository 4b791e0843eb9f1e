"""The ledger of a run: every release, charged before anyone sees it, in a chain of hashes that reveals any change.

    RUN/ledger.jsonl    a header (`ledger_header.py`), then a line for every release, every checkpoint, every resumption
                        with other settings and every end (`ledger_lines.py`); `previous` in each is the hash of the
                        line before (`chain.py`)

Guarantees:
- a line is on disk before any model, metric or checkpoint that depends on its step is written;
- the ledger holds nothing of the sum before noise: `aggregate` is the hash of the noised sum, if there is noise;
- every checkpoint holds the length of the ledger and the hash of its last line, and the ledger holds the hash of every
  checkpoint's model, so a line that was cut off, changed or removed is detected, and so is another model; an incomplete
  line at the end, left by a killed process, is cut off;
- a release is charged to the population's ledger (`population_ledger.py`) before it is charged here;
- a step that is repeated after a kill, or by a copy of the run, is matched with its release. The same noised sum is not
  charged twice. A different sum never gets noise that was used before: the noise is drawn again, and a second release
  of the step is charged.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import Spent, rdp
from sottovoce.privacy.chain import EMPTY, Mark, append, read_lines, whole_lines
from sottovoce.privacy.charges import Charges
from sottovoce.privacy.ledger_header import EarlierRun, LedgerHeader
from sottovoce.privacy.ledger_lines import Changes, Entry, Release, Resumption, RunEnd, Saved, read_entry
from sottovoce.privacy.population_ledger import PopulationLedger, RunCharges
from sottovoce.privacy.privacy_options import Budget
from sottovoce.reading import read_bounded

LEDGER_FILE = "ledger.jsonl"


@dataclass(frozen=True)
class LedgerContent:
    """The lines of a ledger whose chain holds."""

    header: LedgerHeader
    entries: tuple[Entry, ...]  # the lines after the header
    hashes: tuple[str, ...]  # of all lines, the header's first

    @property
    def run(self) -> str:
        """The hash of the header, by which copies of a run are recognised."""
        return self.hashes[0]

    @property
    def releases(self) -> tuple[Release, ...]:
        """All releases, in order."""
        return releases_in(self.entries)

    @property
    def changes(self) -> tuple[Changes, ...]:
        """The changes of code, configuration and seed model that the run was resumed with."""
        return tuple(entry.now for entry in self.entries if isinstance(entry, Resumption))

    @cached_property
    def charges(self) -> Charges:
        """The releases, each counted once."""
        return Charges((release.step, release.aggregate) for release in self.releases)

    def as_earlier(self) -> EarlierRun:
        """Return the run as one that another run on the same users starts from; raise where it has no guarantee."""
        header = self.header
        if header.adjacency is None:
            raise PrivacyError(f"There is no epsilon: {header.guarantee.removeprefix('none: ')}.")
        return EarlierRun(
            run=self.run,
            head=self.mark.head,
            adjacency=header.adjacency,
            sampling_prob=header.sampling_prob,
            z=header.z,
            noise=header.noise,
            sampler_epsilon=header.sampler_epsilon,
            truncation_delta=header.truncation_delta,
            repetitions=dict(header.counted(self.charges.repetitions)),
            noise_mechanism=header.noise_mechanism,
        )

    @property
    def config(self) -> str:
        """The hash of the configuration that the run was last resumed with."""
        changed = [change.config for change in self.changes if change.config]
        return changed[-1] if changed else self.header.config

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


def releases_in(entries: Iterable[Entry]) -> tuple[Release, ...]:
    """Return those of the entries that are releases."""
    return tuple(entry for entry in entries if isinstance(entry, Release))


class Ledger:
    """The ledger of one run, open for charging. Only the leading process has it."""

    def __init__(
        self,
        path: Path,
        header: LedgerHeader,
        saved: Mark | None,
        *,
        budget: Budget | None = None,
        population: PopulationLedger | None = None,
        users: Iterable[str] = (),
    ) -> None:
        """Begin a ledger, or resume it after the checkpoint that holds the mark `saved`.

        `users` are the names of those whose ledger `population` is. Raise PrivacyError where the run's ledger belongs
        to another mechanism or was changed, and where the population's is older than the run's.
        """
        self._path = path
        self._budget = budget
        self._population = population
        content = read_ledger(path, repair=True) if path.exists() else None
        if content is None:
            if saved is not None:
                raise PrivacyError(f"{path} is missing, but a checkpoint names {saved.lines} lines of it. Restore it.")
            mark = append(path, EMPTY, header.line())
            content = LedgerContent(header, (), (mark.head,))
        require_same_mechanism(path, header)
        if saved is not None and not content.holds(saved):
            raise PrivacyError(f"{path} is not the ledger that the last checkpoint was saved with. Restore it.")
        self.header, self.mark = content.header, content.mark
        self._charges = content.charges
        self._saved = {entry for entry in content.entries if isinstance(entry, Saved)}
        if budget is not None:
            self.header.own_cost({})  # raises without a guarantee
        place = str(path.parent.absolute())
        hashed = "" if population is None else population.users_hash(users)
        self._run = RunCharges(content.run, hashed, place, self.header, self._charges)
        if population is not None:
            population.require_known(self._run)
            if budget is not None:
                population.require_sum(self.header)
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
    def releases(self) -> int:
        """The number of releases."""
        return len(self._charges)

    @property
    def spent(self) -> Spent:
        """What all releases cost; raises where there is no guarantee."""
        return self.header.spent_on(self._charges.repetitions)

    @property
    def epsilon(self) -> float | None:
        """Epsilon of all releases, by RDP; None without a guarantee."""
        return self.header.epsilon(self._charges.repetitions)

    def charge(self, step: int, attempt: int, aggregate: str, *, first: bool = False) -> bool:
        """Charge a release, unless it was charged before; return False where its noise was used on another sum.

        `aggregate` is the hash of the noised sum; `attempt` counts the draws of noise for this step, where a repeated
        draw gives the same noise. With `first`, another release of this step is an error.
        """
        known = self._known(step)
        if aggregate not in known and self.header.simulated and attempt < len(known):
            return False
        if self._population is not None:
            require = None if self._budget is None else self._require_within_budget
            self._population.charge(self._run, [(step, aggregate)], require, first=first)
        elif aggregate not in known and self._budget is not None:
            self._require_within_budget(self._spent_with(step, aggregate))
        if aggregate not in self._charges.of(step):
            self._charges.add(step, aggregate)
            line = Release(release=self.releases, step=step, epsilon=self.epsilon, aggregate=aggregate)
            self.mark = append(self._path, self.mark, line.line())
        return True

    def repeats(self, step: int, aggregate: str) -> bool:
        """Return whether this step was released before, with another noised sum."""
        known = self._known(step)
        return bool(known) and aggregate not in known

    def may_release(self, step: int) -> bool:
        """Return whether the budget allows a release of this step, or has paid for it already."""
        paid = bool(self._known(step)) and self.header.simulated  # secure noise is charged again
        return paid or self._budget is None or self._within_budget(self._spent_with(step, ""))

    def note(self, entry: Resumption | RunEnd) -> None:
        """Add a line that is not a release."""
        self.mark = append(self._path, self.mark, entry.line())

    def note_saved(self, entry: Saved) -> None:
        """Write down the hashes of a checkpoint that will appear, unless they are there."""
        if entry not in self._saved:
            self._saved.add(entry)
            self.mark = append(self._path, self.mark, entry.line())

    def _known(self, step: int) -> frozenset[str]:
        """Return the sums that this run or a copy of it has released for a step."""
        copies = frozenset[str]() if self._population is None else self._population.released(self._run, step)
        return self._charges.of(step) | copies

    def _spent_with(self, step: int, aggregate: str) -> Spent:
        """Return what will have been spent on the users after one more release."""
        if self._population is not None:
            return self._population.spent_with(self._run, (step, aggregate))
        return self.header.spent_on(self._charges.repetitions_with([(step, aggregate)]))

    def _within_budget(self, spent: Spent) -> bool:
        if self._budget is None:
            return True
        delta = self._budget.target_delta or self.header.target_delta
        return rdp(spent, delta).epsilon <= self._budget.epsilon

    def _require_within_budget(self, spent: Spent) -> None:
        if not self._within_budget(spent):
            raise PrivacyError("Another release would spend more than privacy.budget allows. Nothing was released.")


def read_ledger(path: Path, *, repair: bool = False) -> LedgerContent | None:
    """Return the lines of a ledger whose chain holds; None where it has none.

    Raise PrivacyError with the number of a line that was changed or is damaged. An incomplete line at the end is left
    out; `repair` cuts it off.
    """
    data = read_bounded(path)
    whole = whole_lines(data)
    if len(whole) < len(data) and repair:
        os.truncate(path, len(whole))
    lines, hashes = read_lines(whole, EMPTY, path)
    if not lines:
        return None
    header = LedgerHeader.read(lines[0], path)
    entries = tuple(read_entry(line, path, number) for number, line in enumerate(lines[1:], 2))
    return LedgerContent(header, entries, hashes)


def require_same_mechanism(path: Path, header: LedgerHeader) -> None:
    """Raise PrivacyError where a ledger was begun with another mechanism; without a ledger, anything may begin."""
    content = read_ledger(path) if path.exists() else None
    if content is None:
        return
    begun, now = content.header, header
    free = {*Changes.model_fields, "run_id"}
    free |= set() if now.seed_model else {"earlier"}  # a resumed run does not look at its seed model again
    for key in LedgerHeader.model_fields:
        if key not in free and getattr(begun, key) != getattr(now, key):
            raise PrivacyError(
                f"{path} was begun with {key}={getattr(begun, key)}, not {getattr(now, key)}: a run keeps its "
                "mechanism. Choose another --run."
            )
