"""Populations: users and their utterances.

A user is a speaker with all of their audio. In the paper's IID control a user is a number instead: every utterance
belongs to a user drawn uniformly at random, so the utterances stay the same but no user is one speaker.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sottovoce.data.splits import split_by_fraction
from sottovoce.data.store import IntArray, Store
from sottovoce.errors import DataError
from sottovoce.features.logmel import SAMPLE_RATE_HZ

_HASHED_ROWS = 1 << 20  # at a time, to bound the memory


SPEAKER, SYNTHETIC_USER = "speaker", "synthetic user"


@dataclass(frozen=True)
class Population:
    """Users 0 to K - 1 and their utterances, as row numbers of a store.

    Example:
        population = Population.of(Store.open("stores/ls-100"))
        seed_speakers, federated_speakers = population.split("0.1", seed=0)
        control = federated_speakers.iid(seed=0)
    """

    store: Store
    unit: str  # what one user is: SPEAKER or SYNTHETIC_USER
    _offsets: IntArray
    _rows: IntArray | None = None  # None: all rows of the store, in order
    _speakers: Sequence[int] | IntArray | None = None  # the users' numbers in the store; None: users are not speakers

    @classmethod
    def of(cls, store: Store, speakers: Iterable[str] | None = None) -> "Population":
        """Return all speakers of a store as users, or the named speakers in the order of the store.

        A name that is not in the store, or is given twice, is an error.
        """
        if speakers is None:
            offsets = store.speaker_offsets
            return cls(store, SPEAKER, offsets, None, range(len(offsets) - 1))
        numbers = np.sort(store.speaker_numbers(speakers))
        starts, ends = store.speaker_offsets[numbers], store.speaker_offsets[numbers + 1]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends - starts)])
        # Row r of the population is row r + shift of the store; every speaker has one shift.
        rows = np.arange(offsets[-1], dtype=np.int64) + np.repeat(starts - offsets[:-1], ends - starts)
        return cls(store, SPEAKER, offsets, rows, numbers)

    def iid(self, seed: int) -> "Population":
        """Return the IID control: as many users and the same utterances, each given to a user drawn uniformly.

        An utterance's user follows from the seed and the names of its speaker and itself, so that whoever else is in
        the store moves nobody's utterances; only K does.
        """
        rows = np.sort(self.all_rows())
        index = self.store.index(["speaker", "utterance"]).take(pa.array(rows))
        names = zip(index["speaker"].to_pylist(), index["utterance"].to_pylist(), strict=True)
        users = np.array([_dealt(seed, *name, len(self)) for name in names], np.int64)
        order = np.argsort(users, kind="stable")
        counts = np.bincount(users, minlength=len(self))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return Population(self.store, SYNTHETIC_USER, offsets, rows[order])

    def trainable(self) -> "Population":
        """Return the same users without utterances whose target is not their whole text (`Store.full_references`)."""
        if not self.store.full_references:
            return self
        rows = self.all_rows()
        whole = ~np.isin(rows, list(self.store.full_references))
        if not whole.any():
            raise DataError(f"No model can write the whole text of any utterance of {self.store.path}. Use other data.")
        counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(whole)])
        offsets = counts[self._offsets - self._offsets[0]]
        return Population(self.store, self.unit, offsets, rows[whole], self._speakers)

    def unwritable(self) -> int:
        """Return the number of utterances whose text has characters that no model of this store can write."""
        return int(np.isin(self.all_rows(), list(self.store.full_references)).sum())

    def split(self, fraction: str | float = "0.1", seed: int = 0) -> "tuple[Population, Population]":
        """Return a random part of the speakers and the rest, as two disjoint populations (see `splits`).

        The same seed gives the same parts on every machine.
        """
        part, rest = split_by_fraction(self.speakers, fraction, seed)
        return Population.of(self.store, part), Population.of(self.store, rest)

    def __len__(self) -> int:
        """Return the number of users K."""
        return len(self._offsets) - 1

    @property
    def speakers(self) -> list[str]:
        """The speakers' names, in the order of the users; an error in the IID control, whose users are not speakers."""
        if self._speakers is None:
            raise DataError("The users of the IID control are not speakers. Use the population it was made from.")
        names: list[str] = self._names.take(pa.array(np.asarray(self._speakers))).to_pylist()
        return names

    def rows_of(self, user: int) -> IntArray:
        """Return the utterances of one user; a user of the IID control may have none."""
        first, last = int(self._offsets[user]), int(self._offsets[user + 1])
        return np.arange(first, last, dtype=np.int64) if self._rows is None else self._rows[first:last]

    def key_of(self, user: int) -> str:
        """Return a name for the user that does not depend on the other users.

        It is the speaker's name or, in the IID control, the user's number.
        """
        if self._speakers is None:
            return f"{self.unit} {user}"
        name: str = self._names[int(self._speakers[user])].as_py()
        return name

    def keys(self) -> Iterator[str]:
        """Yield the names of all users, in their order (see `key_of`)."""
        yield from (f"{self.unit} {user}" for user in range(len(self))) if self._speakers is None else self.speakers

    def heard(self) -> list[str]:
        """Return the names of all speakers who are heard, in the order of the store; in the IID control, too."""
        return self.store.speakers_of(self.all_rows()) if self._speakers is None else self.speakers

    @cached_property
    def _names(self) -> pa.Array:
        return self.store.speaker_names()

    def all_rows(self) -> IntArray:
        """Return the utterances of all users."""
        return np.arange(self._offsets[0], self._offsets[-1], dtype=np.int64) if self._rows is None else self._rows

    @cached_property
    def hash(self) -> str:
        """The SHA-256 that identifies the users, their utterances and the content of these.

        Digests of content hold ids and speakers' names, too. The hash is the same in every store that holds these
        users: whoever else is in the store makes no difference.
        """
        hasher = hashlib.sha256(f"{self.unit}\n".encode())
        hasher.update(np.ascontiguousarray(self.utterances_by_user(), dtype="<i8").tobytes())
        digests, rows = self.store.content_digests, self.all_rows()
        for first in range(0, len(rows), _HASHED_ROWS):
            hasher.update(np.ascontiguousarray(digests[rows[first : first + _HASHED_ROWS]]).tobytes())
        return hasher.hexdigest()

    def seconds_by_user(self) -> npt.NDArray[np.float64]:
        """Return the seconds of audio of every user."""
        seconds = self.store.index(["seconds"])["seconds"].to_numpy()[self.all_rows()]
        samples = np.rint(seconds * SAMPLE_RATE_HZ).astype(np.int64)  # sums of whole numbers are exact
        totals = np.concatenate([np.zeros(1, np.int64), np.cumsum(samples)])
        return np.asarray(np.diff(totals[self._offsets - self._offsets[0]]) / SAMPLE_RATE_HZ)

    def utterances_by_user(self) -> IntArray:
        """Return the number of utterances of every user."""
        return np.diff(self._offsets)


def _dealt(seed: int, speaker: str, utterance: str, users: int) -> int:
    """Return the user who gets an utterance in the IID control: uniform but for a part in 2^64 / K."""
    name = json.dumps(["iid-users", seed, speaker, utterance]).encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") * users >> 64
