"""The ledger of a population: one budget for every run, copy, seed model and trial on the same users.

    PLACE/ledger.jsonl   a header with a random id, then a line for every run that begins and for every release of any
                         run, in a chain of hashes (`chain.py`)
    PLACE/salt           the secret key of the hashes of user sets

PLACE is the folder STORE.privacy beside the store, or where `privacy.ledger` points: several stores may share a ledger,
but a store has only one. Everything in it adds up, whichever users a run selects. To split the sum by who is in which
selection would make the end of a budget depend on single users. Only the owner can read the folder.

Guarantees:
- a release is on disk here before it is on disk in the ledger of its run, and so before anything depends on it;
- a release counts once, in whichever copy of a run it is (`charges.py`);
- several processes may charge at once: each does so under a lock and first reads what the others have written; a line
  that a killed process left incomplete is cut off;
- a ledger that is missing, a copy, or older than what a store or a run has seen of it, is an error and never a new
  beginning. A store remembers the ledger's id, place and end in STORE/privacy.json, if the store can be written.
"""

import contextlib
import errno
import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sottovoce.errors import DataError, PrivacyError
from sottovoce.files import make_folder, open_descriptor, write_json, written_whole
from sottovoce.privacy.acceptance import require_accepted
from sottovoce.privacy.accounting import Spent
from sottovoce.privacy.chain import EMPTY, Mark, append, read_lines, whole_lines
from sottovoce.privacy.charges import Charges
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.ledger_lines import read_line
from sottovoce.reading import read_bounded

FORMAT = "sottovoce-population-ledger-1"
WITNESS_FILE = "privacy.json"  # in a store
_LINES_FILE, _SALT_FILE = "ledger.jsonl", "salt"
_SALT_BYTES = 32


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Beginning(_Line):
    population_ledger: str
    id: str


class _RunLine(_Line):
    """A run makes its first release."""

    run: str  # the hash of its ledger's header
    users: str  # a salted hash of who they are
    place: str  # the run's folder, for people
    header: dict[str, Any]  # of its ledger


class _ChargeLine(_Line):
    """A run makes a release."""

    charge: str  # the run
    step: int = Field(ge=0)
    aggregate: str


class _Witness(BaseModel):
    """What a store remembers of its ledger."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ledger: str  # its id
    place: str
    lines: int
    head: str


@dataclass(frozen=True)
class RunCharges:
    """One run of a population's ledger, with all copies of it."""

    run: str
    users: str
    place: str
    header: LedgerHeader
    charges: Charges = field(default_factory=Charges)

    @property
    def spent(self) -> Spent:
        """What its releases cost; raises where it has no guarantee."""
        return self.header.own_cost(self.charges.repetitions)


def place_beside(store: Path) -> Path:
    """Return where the ledger of a store's users lies, unless `privacy.ledger` says otherwise."""
    return store.resolve().with_name(f"{store.resolve().name}.privacy")


class PopulationLedger:
    """The ledger of a population, open for reading and charging."""

    def __init__(self, place: Path, store: Path | None) -> None:
        """Open the ledger, or begin it, for runs on the users of a store.

        Raise PrivacyError where it is damaged, or where the store remembers another ledger or a longer one.
        """
        self.place, self._store = place.absolute(), store
        self._path = self.place / _LINES_FILE
        self._hashes: list[str] = []
        self._size, self.id = 0, ""
        self.runs: dict[str, RunCharges] = {}
        witness = _read_witness(store)  # first: another process may be beginning the ledger at this moment
        begun = self._begun()
        if witness is not None and not begun:
            raise PrivacyError(
                f"{self.place} is missing, but {store} was used with the ledger in {witness.place}, which has "
                f"{witness.lines} lines. Restore it, or say where it is with --set privacy.ledger=..."
            )
        if not begun:
            self._make_place()
        with self._locked(create=not begun):
            if not self._hashes:
                self._append({"population_ledger": FORMAT, "id": secrets.token_hex(16)})
            self._salt = self._read_salt()
            self._require_witnessed()
            self._write_witness()

    def _begun(self) -> bool:
        return self._path.exists() and self._path.stat().st_size > 0

    def _make_place(self) -> None:
        """Make the folder of a new ledger; raise where it holds anything else, so that nothing is taken over."""
        made = not self.place.exists()
        others = not made and (not self.place.is_dir() or {path.name for path in self.place.iterdir()} - {_LINES_FILE})
        if others and not self._begun():  # another process writes the first line before it makes anything else
            raise PrivacyError(
                f"{self.place} holds something, but no ledger: it was lost, or this is another folder. Restore it, or "
                "choose another privacy.ledger."
            )
        make_folder(self.place)
        if made:
            self.place.chmod(0o700)

    @classmethod
    def require(cls, place: Path, store: Path) -> None:
        """Raise DataError where there is neither a ledger nor a store that remembers one: nothing was charged yet."""
        if not (place / _LINES_FILE).exists() and not (store / WITNESS_FILE).exists():
            raise DataError(f"There is no ledger in {place}: no federated run has used {store}. Train one first.")

    def _require_witnessed(self) -> None:
        """Raise PrivacyError where the store remembers another ledger, or a longer one. This one is locked."""
        witness = _read_witness(self._store)
        if witness is None:
            return
        if witness.ledger != self.id:
            raise PrivacyError(
                f"{self._store} belongs to the ledger in {witness.place}, not to {self.place}. Use that one: --set "
                "privacy.ledger=..."
            )
        original = Path(witness.place) / _LINES_FILE
        if original.exists() and not original.samefile(self._path):
            raise PrivacyError(
                f"{self.place} is a copy of the ledger in {witness.place}: releases would be charged to one of the two "
                f"only. Use that one: --set privacy.ledger={witness.place}."
            )
        if not 0 < witness.lines <= len(self._hashes) or self._hashes[witness.lines - 1] != witness.head:
            raise PrivacyError(
                f"{self.place} is older than what {self._store} remembers of it, {witness.lines} lines. Restore the "
                "newest copy."
            )

    def users_hash(self, users: Iterable[str]) -> str:
        """Return the hash of a set of users, which says nothing to those who do not have the salt."""
        hasher = hmac.new(self._salt, digestmod=hashlib.sha256)
        for name in sorted(users):
            hasher.update(hashlib.sha256(name.encode()).digest())
        return hasher.hexdigest()

    def require_known(self, run: RunCharges) -> None:
        """Raise PrivacyError where a run charges another ledger, or has releases that are not in this one."""
        if run.header.population_ledger != self.id:
            raise PrivacyError(f"{run.place} charges another ledger than {self.place}. Give it with privacy.ledger.")
        missing = run.charges.pairs() - self._known(run).pairs() if run.header.guaranteed else set()
        if missing:
            raise PrivacyError(
                f"{self.place} lacks {len(missing)} releases of {run.place}: it is older than the run. Restore the "
                "newest copy."
            )

    def require_sum(self, header: LedgerHeader) -> None:
        """Raise PrivacyError where other runs on these users cannot be added up with a new one, and nobody said so."""
        others = [run for run in self.runs.values() if not _adds_up(run.header, header)]
        if others:
            other = others[0].header
            why = f"{other.unit}; {other.adjacency}" if other.guaranteed else other.guarantee.removeprefix("none: ")
            require_accepted(
                "unprotected_runs",
                header.accepted,
                f"{self.place} holds runs that do not add up with this one, such as {others[0].place} ({why}): no "
                "budget covers them.",
                "Remove privacy.budget, or use other users.",
            )

    def charge(
        self,
        run: RunCharges,
        releases: Iterable[tuple[int, str]],
        require: Callable[[Spent], None] | None = None,
        *,
        first: bool = False,
    ) -> None:
        """Charge releases of a run, except those that it, or a copy of it, has charged before.

        `require` is called with what all runs on these users will have spent. If it raises, nothing is charged. With
        `first`, neither is a release whose step has another one.
        """
        with self._locked():
            self._require_witnessed()
            new = {(step, aggregate) for step, aggregate in releases if aggregate not in self._known(run).of(step)}
            if first and any(self._known(run).of(step) for step, _ in new):
                raise PrivacyError("A copy of this run has just released the same step. Nothing was released.")
            if require is not None and new:
                require(self._sum_with(run, new))
            if run.run not in self.runs:
                self._append({"run": run.run, "users": run.users, "place": run.place, "header": run.header.line()})
            for step, aggregate in sorted(new) if run.header.guaranteed else ():  # otherwise one line says it all
                self._append({"charge": run.run, "step": step, "aggregate": aggregate})
            self._write_witness()

    def adopt(self, run: str, header: LedgerHeader, charges: Charges, place: Path) -> None:
        """Charge the releases of a run that was made with another ledger; who its users were is not known here."""
        self.require_earlier(header)
        self.charge(RunCharges(run, "", str(place.absolute()), header), charges.pairs())

    def require_earlier(self, header: LedgerHeader) -> None:
        """Raise PrivacyError where a private run that a run's seed model comes from is not in this ledger."""
        for earlier in header.earlier:
            known = self.runs.get(earlier.run)
            if known is None or len(known.charges) < earlier.releases:
                raise PrivacyError(
                    f"{self.place} lacks releases of a run that the seed model comes from (its ledger begins with "
                    f"{earlier.run[:8]}). Charge that run first: sotto privacy population STORE --charge RUN."
                )

    def released(self, run: RunCharges, step: int) -> frozenset[str]:
        """Return the sums that a run, or a copy of it, has released for a step."""
        with self._locked():
            return self._known(run).of(step)

    def spent_with(self, run: RunCharges, release: tuple[int, str]) -> Spent:
        """Return what all runs on these users will have spent after one more release of a run."""
        with self._locked():
            return self._sum_with(run, {release})

    def _known(self, run: RunCharges) -> Charges:
        """Return what a run and its copies have charged here."""
        return self.runs[run.run].charges if run.run in self.runs else Charges()

    def _sum_with(self, run: RunCharges, releases: set[tuple[int, str]]) -> Spent:
        own = run.header.own_cost(self._known(run).repetitions_with(releases))
        others = [one for one in self.runs.values() if one.run != run.run and _adds_up(one.header, run.header)]
        return sum((one.spent for one in others), own)

    @contextlib.contextmanager
    def _locked(self, *, create: bool = False) -> Iterator[None]:
        """Hold the ledger alone, having read all of it."""
        try:
            descriptor = open_descriptor(self._path, os.O_RDWR | (os.O_CREAT if create else 0))
        except FileNotFoundError:
            raise PrivacyError(f"{self._path} was removed while it was in use. Restore it.") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # ends with the process at the latest
            self._catch_up(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _catch_up(self, descriptor: int) -> None:
        """Read the lines that other processes have written, and cut off half a line."""
        size = os.fstat(descriptor).st_size
        if size < self._size:
            raise PrivacyError(f"{self._path} has become shorter while it was in use. Restore it.")
        data = os.pread(descriptor, size - self._size, self._size)
        whole = whole_lines(data)
        if len(whole) < len(data):
            os.ftruncate(descriptor, self._size + len(whole))
        lines, hashes = read_lines(whole, self._mark, self._path)
        for number, line in enumerate(lines, len(self._hashes) + 1):
            self._take(line, f"{self._path}: line {number}")
        self._size += len(whole)
        self._hashes += hashes

    @property
    def _mark(self) -> Mark:
        return Mark(len(self._hashes), self._hashes[-1]) if self._hashes else EMPTY

    def _take(self, line: dict[str, Any], where: str) -> None:
        """Count one line."""
        if not self.id:
            beginning = read_line(_Beginning, line, where)
            if beginning.population_ledger != FORMAT:
                raise PrivacyError(f"{self._path} is not a ledger of the form {FORMAT}.")
            self.id = beginning.id
        elif "run" in line:
            run = read_line(_RunLine, line, where)
            header = LedgerHeader.read(run.header, self._path)
            self.runs[run.run] = RunCharges(run.run, run.users, run.place, header)
        else:
            charge = read_line(_ChargeLine, line, where)
            if charge.charge not in self.runs:
                raise PrivacyError(f"{where} charges a run that has not begun. Restore the ledger.")
            self.runs[charge.charge].charges.add(charge.step, charge.aggregate)

    def _append(self, line: dict[str, Any]) -> None:
        """Write a line and count it. The ledger is locked."""
        mark = append(self._path, self._mark, line)
        self._take(line, str(self._path))
        self._hashes.append(mark.head)
        self._size = self._path.stat().st_size

    def _read_salt(self) -> bytes:
        path = self.place / _SALT_FILE
        if not self.runs and not path.exists():  # nothing was hashed with it yet
            with written_whole(path, private=True) as file:
                file.write(secrets.token_bytes(_SALT_BYTES))
        salt = read_bounded(path) if path.is_file() else b""
        if len(salt) != _SALT_BYTES:
            raise PrivacyError(f"{path} is missing or damaged. Restore it.")
        return salt

    def _write_witness(self) -> None:
        """Let the store remember the end of the ledger, which is locked; another process may be the first to do so."""
        if self._store is None:
            return
        path = self._store / WITNESS_FILE
        witness = _Witness(ledger=self.id, place=str(self.place), lines=self._mark.lines, head=self._mark.head)
        try:
            if path.exists():
                write_json(path, witness.model_dump(), private=True)
            else:
                _write_first(path, witness)
                self._require_witnessed()
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):  # a store that cannot be written
                raise


def _write_first(path: Path, witness: _Witness) -> None:
    """Write a witness, unless another process has just written one: a store has only one ledger."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(16)}.first")
    try:
        write_json(temporary, witness.model_dump(), private=True)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _adds_up(one: LedgerHeader, other: LedgerHeader) -> bool:
    """Return whether the releases of two runs compose: both with a guarantee, for one unit and one adjacency."""
    return one.guaranteed and (one.unit, one.adjacency) == (other.unit, other.adjacency)


def _read_witness(store: Path | None) -> _Witness | None:
    path = None if store is None else store / WITNESS_FILE
    if path is None or not path.exists():
        return None
    try:
        return _Witness.model_validate_json(read_bounded(path))
    except ValidationError:
        raise DataError(f"{path} is damaged. Restore it.") from None
