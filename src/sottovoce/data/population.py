"""Populations: users with their utterances, disjoint splits of whole speakers, and the IID control.

A user is a speaker with all of its audio. A split takes whole speakers, chosen by a hash of the seed and the speaker's
name: it is the same on every machine, whatever the order of the speakers, and a 5 % part lies inside the 10 % part of
the same seed. The IID control of the paper gives every utterance a user drawn uniformly: same utterances, no speakers.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.data.store import IntArray, Store
from sottovoce.errors import ConfigError, DataError
from sottovoce.features.logmel import SAMPLE_RATE_HZ
from sottovoce.randomness import rank, stream


@dataclass(frozen=True)
class Population:
    """Users 0 to K - 1 and their utterances, as row numbers of a store."""

    store: Store
    unit: str
    _offsets: IntArray
    _rows: IntArray | None = None  # None: the rows are the store's own, in order
    _speakers: Sequence[int] | IntArray | None = None  # the users' numbers in the store; None: users are not speakers

    def __len__(self) -> int:
        """Return the number of users K."""
        return len(self._offsets) - 1

    def rows_of(self, user: int) -> IntArray:
        """Return the utterances of one user; a user of the IID control may have none."""
        first, last = int(self._offsets[user]), int(self._offsets[user + 1])
        return np.arange(first, last, dtype=np.int64) if self._rows is None else self._rows[first:last]

    def key_of(self, user: int) -> str:
        """Return what names a user whoever else is there: the speaker's name, or the number of a synthetic user."""
        if self._speakers is None:
            return f"{self.unit} {user}"
        name: str = self._names[int(self._speakers[user])].as_py()
        return name

    @cached_property
    def _names(self) -> pa.Array:
        return self.store.speaker_names()

    def all_rows(self) -> IntArray:
        """Return the utterances of all users."""
        return np.arange(self._offsets[0], self._offsets[-1], dtype=np.int64) if self._rows is None else self._rows

    @property
    def hash(self) -> str:
        """What tells this population from others: its store's content, its users and their utterances."""
        hasher = hashlib.sha256(self.store.info.hash.encode())
        hasher.update(np.ascontiguousarray(self._offsets).tobytes())
        hasher.update(b"" if self._rows is None else np.ascontiguousarray(self._rows).tobytes())
        return hasher.hexdigest()

    def seconds_by_user(self) -> npt.NDArray[np.float64]:
        """Return how many seconds of audio each user has."""
        seconds = self.store.index(["seconds"])["seconds"].to_numpy()[self.all_rows()]
        samples = np.rint(seconds * SAMPLE_RATE_HZ).astype(np.int64)  # sums of whole numbers are exact
        totals = np.concatenate([np.zeros(1, np.int64), np.cumsum(samples)])
        return np.asarray(np.diff(totals[self._offsets - self._offsets[0]]) / SAMPLE_RATE_HZ)

    def utterances_by_user(self) -> IntArray:
        """Return how many utterances each user has."""
        return np.diff(self._offsets)


def speakers_population(store: Store, speakers: Iterable[str] | None = None) -> Population:
    """Return all speakers of a store as users, or those named."""
    if speakers is None:
        offsets = store.speaker_offsets
        return Population(store, "speaker", offsets, None, range(len(offsets) - 1))
    numbers = np.sort(speaker_numbers(store, speakers))
    starts, ends = store.speaker_offsets[numbers], store.speaker_offsets[numbers + 1]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends - starts)])
    # Row r of the population is row r + shift of the store, with one shift for each speaker.
    rows = np.arange(offsets[-1], dtype=np.int64) + np.repeat(starts - offsets[:-1], ends - starts)
    return Population(store, "speaker", offsets, rows, numbers)


def iid_population(population: Population, seed: int) -> Population:
    """Return the IID control: as many users and the same utterances, each given to a user drawn uniformly."""
    rows = np.sort(population.all_rows())
    users = stream(seed, "iid-users").integers(len(population), size=len(rows))
    order = np.argsort(users, kind="stable")
    counts = np.bincount(users, minlength=len(population))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Population(population.store, "synthetic user", offsets, rows[order])


def speaker_numbers(store: Store, speakers: Iterable[str]) -> IntArray:
    """Return the numbers of named speakers; a name that is not in the store, or twice in the list, is an error."""
    wanted = list(speakers)
    numbers = pc.index_in(pa.array(wanted, pa.string()), value_set=store.speaker_names())
    if numbers.null_count:
        missing = [name for name, number in zip(wanted, numbers, strict=True) if not number.is_valid]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(f"Speaker {missing[0]!r}{more} not in {store.path}. See `sotto data inspect {store.path}`.")
    found: IntArray = numbers.to_numpy().astype(np.int64)
    if len(np.unique(found)) != len(found):
        raise DataError(f"The list of speakers for {store.path} names someone twice. Name each speaker once.")
    return found


def split_by_fraction(speakers: Sequence[str], fraction: str, seed: int) -> tuple[list[str], list[str]]:
    """Return a random part of the speakers (rounded down, as in the paper: 10 % of 34,753 are 3,475) and the rest."""
    try:
        share = Fraction(fraction)  # exact: 0.29 of 100 speakers are 29
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"Expected a fraction such as 0.1 or 1/20, not {fraction!r}.") from None
    if not 0 < share < 1:
        raise ConfigError(f"Expected 0 < fraction={fraction} < 1.")
    return split_by_count(speakers, int(share * len(speakers)), seed)


def split_by_count(speakers: Sequence[str], count: int, seed: int) -> tuple[list[str], list[str]]:
    """Return `count` random speakers and the rest, both sorted."""
    if not 0 < count < len(speakers):
        raise ConfigError(f"Expected 0 < count={count} < {len(speakers)} speakers: both parts need someone.")
    order = rank(seed, "split", speakers)
    return sorted(order[:count]), sorted(order[count:])


def split_by_list(speakers: Sequence[str], chosen: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the chosen speakers and the rest."""
    unknown = set(chosen) - set(speakers)
    if unknown:
        raise DataError(f"Speaker {min(unknown)!r} of the list is not in the store. Check the list.")
    rest = sorted(set(speakers) - set(chosen))
    if not rest or not chosen:
        raise ConfigError(f"The list names {len(set(chosen))} of {len(speakers)} speakers: both parts need someone.")
    return sorted(set(chosen)), rest


def split_by_column(store: Store, column: str, value: str) -> tuple[list[str], list[str]]:
    """Return the speakers whose utterances have `value` in a column of the index, and the rest.

    A speaker with both kinds of utterances would be on both sides, which no split may do: that is an error.
    """
    if column not in store.index_columns():
        raise DataError(f"{store.path} has no column {column!r}. It has: {', '.join(store.index_columns())}.")
    if pa.types.is_nested(store.index_schema().field(column).type):
        raise DataError(f"{column!r} holds lists, not single values. Split by another column or by a list of speakers.")
    matches = pc.fill_null(pc.equal(pc.cast(store.index([column])[column], pa.string()), value), False)
    table = store.index(["speaker"]).append_column("match", matches)
    groups = table.group_by("speaker", use_threads=False)
    found = groups.aggregate([("match", "any"), ("match", "all")])
    names, some, every = (found[name].to_pylist() for name in ("speaker", "match_any", "match_all"))
    if mixed := [name for name, a, e in zip(names, some, every, strict=True) if a and not e]:
        raise DataError(
            f"Speaker {mixed[0]!r} has utterances with and without {column}={value}. Split by a list instead."
        )
    chosen = [name for name, match in zip(names, every, strict=True) if match]
    if not chosen or len(chosen) == len(names):
        raise DataError(f"{len(chosen)} of {len(names)} speakers have {column}={value}: both parts need someone.")
    return split_by_list(names, chosen)
