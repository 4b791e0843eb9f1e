"""The server's side of a masked sum: it collects one message of each client, closes the phase, and answers all at once.

    server = MaskingServer(session, verify)
    for _ in range(5):                         # advertise, shares, masked, agreement, reveal
        ... server.receive(name, message) for whatever arrives, until `server.waiting` is empty or time is up
        answers = server.advance()             # what to send to whom; nothing after the last phase
    total, contributors = server.result()

The server holds no secret and draws nothing at random: its state follows from the messages that it received and when it
advanced. So a server that was killed replays them into a new object and goes on.

Guarantees:
- the sum equals the sum of the contributors' integers to the bit, if they followed the protocol;
- a message that breaks the protocol is refused (`SecureAggregationError`) and changes nothing; its sender may send
  another while the phase lasts, and counts as dropped otherwise. Wrong shares are recognised by the hashes that their
  dealers signed, wrong seeds and keys by a hash and the public key;
- with too few clients `advance` or `result` raises `TooFewClientsError`, and no single update can be computed;
- memory: one vector, and what clients sent besides vectors.

A client can still spoil the sum by masking something else than its update. Sums out of range are refused; others are
not noticed. That is the price of not seeing single updates.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sottovoce.deploy.masking.key_agreement import KEY_BYTES, derived, mask_key, public_key, shared_secret, usable
from sottovoce.deploy.masking.masking_session import MaskingSession, SecureAggregationError, TooFewClientsError
from sottovoce.deploy.masking.ring import add_mask_, add_packed_, signed
from sottovoce.deploy.masking.shamir import SHARE_BYTES, Interpolation
from sottovoce.deploy.masking.wire import (
    DIGEST_BYTES,
    KEYS_BYTES,
    SEALED_BYTES,
    Kind,
    Verify,
    bitmap,
    listed,
    open_client_message,
    seed_digest,
    server_message,
    share_digest,
)

_PHASES = (Kind.ADVERTISE, Kind.SHARES, Kind.MASKED, Kind.AGREEMENT, Kind.REVEAL)
_SEED_DIGEST_BYTES = 32


class MaskedSum(NamedTuple):
    """The sum of a session, and whose updates are in it."""

    total: npt.NDArray[np.int64]
    contributors: tuple[str, ...]


class MaskingServer:
    """One session, from the first keys to the sum."""

    def __init__(self, session: MaskingSession, verify: Verify) -> None:
        """Begin to wait for keys."""
        self.session, self._verify = session, verify
        self._phase = 0
        self._lists: list[frozenset[int]] = [frozenset(range(len(session.names)))]  # who went on after each phase
        self._arrived: set[int] = set()  # in this phase
        self._advertised: dict[int, bytes] = {}  # whole messages, for others to check
        self._keys: dict[int, bytes] = {}
        self._dealt: dict[int, memoryview] = {}  # hashes and sealed shares
        self._signatures: dict[int, bytes] = {}
        self._revealed: dict[int, dict[int, bytes]] = {}  # shares by dealer and holder
        self._present: dict[tuple[int, int], list[int]] = {}  # neighbours of a client that are on a list
        self._total = np.zeros(session.length, dtype=np.uint64)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The clients that may still send the message of this phase."""
        if self._phase == len(_PHASES):
            return ()
        return tuple(self.session.names[place] for place in sorted(self._lists[-1] - self._arrived))

    @property
    def expected_bytes(self) -> int:
        """The largest message of this phase, for a limit of the transport."""
        degree, n = self.session.degree, len(self.session.names)
        sizes = {
            Kind.ADVERTISE: KEYS_BYTES,
            Kind.SHARES: _SEED_DIGEST_BYTES + 2 * DIGEST_BYTES * (degree + 1) + SEALED_BYTES * degree,
            Kind.MASKED: self.session.length * self.session.ring_bytes,
            Kind.AGREEMENT: 3 * self.session.bitmap_bytes,
            Kind.REVEAL: (degree + 1) * (1 + SHARE_BYTES),
        }
        return 1024 + n + sizes[_PHASES[min(self._phase, len(_PHASES) - 1)]]

    def receive(self, name: str, message: bytes) -> None:
        """Take the message of a client, or refuse it."""
        place = self.session.place_of(name)
        if self._phase == len(_PHASES) or place not in self._lists[-1]:
            raise SecureAggregationError(f"{name!r} has dropped out of this masked sum, or is too late.")
        if place in self._arrived:
            raise SecureAggregationError(f"{name!r} has already sent its message.")
        kind = _PHASES[self._phase]
        size = self._body_bytes(kind, place)
        body, signature = open_client_message(message, kind, self.session, place, size, self._verify)
        if kind == Kind.ADVERTISE:
            self._take_keys(place, bytes(body), message)
        elif kind == Kind.SHARES:
            self._dealt[place] = body
        elif kind == Kind.MASKED:
            add_packed_(self._total, body, self.session.ring_bytes)
        elif kind == Kind.AGREEMENT:
            if body != self._agreement():
                raise SecureAggregationError(f"{name!r} has other lists of clients.")
            self._signatures[place] = signature
        else:
            self._take_shares(place, body)
        self._arrived.add(place)

    def advance(self) -> Mapping[str, bytes]:
        """End the phase and return the answer to every client that goes on; after the last phase there is none."""
        if self._phase == len(_PHASES):
            raise SecureAggregationError("This masked sum has ended.")
        if len(self._arrived) < self.session.quorum:
            raise TooFewClientsError(
                f"{len(self._arrived)} of {len(self.session.names)} clients are left in this masked sum, and "
                f"{self.session.quorum} are needed. It adds nothing."
            )
        kind = _PHASES[self._phase]
        self._lists.append(frozenset(self._arrived))
        self._phase, self._arrived = self._phase + 1, set()
        if kind == Kind.REVEAL:
            return {}
        return {self.session.names[place]: self._answer(kind, place) for place in sorted(self._lists[-1])}

    def result(self) -> MaskedSum:
        """Take off the masks that did not cancel and return the sum, once, after the last phase."""
        if self._phase != len(_PHASES) or len(self._total) != self.session.length:
            raise SecureAggregationError("The sum is there once, after the last phase.")
        total, self._total = self._total, np.zeros(0, dtype=np.uint64)
        shared, arrived = self._lists[2], self._lists[3]
        weights: dict[tuple[int, ...], Interpolation] = {}
        for place in sorted(arrived):
            seed = self._secret(place, "seed", weights)
            add_mask_(total, derived(seed, self.session.context, "self", place), -1)
        for place in sorted(shared - arrived):
            partners = [other for other in self.session.neighbours(place) if other in arrived]
            if partners:
                self._remove_pairs_(total, place, partners, self._secret(place, "key", weights))
        result = signed(total, self.session.ring_bytes)
        most = len(arrived) * self.session.largest
        if max(int(result.max()), -int(result.min())) > most:
            raise SecureAggregationError(
                "The masked sum is out of range: a client did not follow the protocol. The step adds nothing."
            )
        return MaskedSum(result, tuple(self.session.names[place] for place in sorted(arrived)))

    def _body_bytes(self, kind: Kind, place: int) -> int:
        """Return the exact size of a client's message, apart from head and signature."""
        if kind == Kind.SHARES:
            others = len(self._neighbours_in(place, 1))
            return _SEED_DIGEST_BYTES + 2 * DIGEST_BYTES * (others + 1) + SEALED_BYTES * others
        if kind == Kind.REVEAL:
            return (len(self._neighbours_in(place, 2)) + 1) * (1 + SHARE_BYTES)
        if kind == Kind.MASKED:
            return self.session.length * self.session.ring_bytes
        return KEYS_BYTES if kind == Kind.ADVERTISE else 3 * self.session.bitmap_bytes

    def _take_keys(self, place: int, keys: bytes, message: bytes) -> None:
        if not (usable(keys[:KEY_BYTES]) and usable(keys[KEY_BYTES:])) or keys in self._keys.values():
            raise SecureAggregationError(f"The keys of {self.session.names[place]!r} are not usable.")
        self._keys[place], self._advertised[place] = keys, bytes(message)

    def _take_shares(self, place: int, body: memoryview) -> None:
        """Keep the shares that a client reveals; refuse all where one is not what its dealer made."""
        size, found = 1 + SHARE_BYTES, {}
        for number, dealer in enumerate(sorted((*self._neighbours_in(place, 2), place))):
            entry = bytes(body[number * size : (number + 1) * size])
            if entry[0] == 0:
                continue
            purpose = "seed" if dealer in self._lists[3] else "key"
            digest = share_digest(self.session, purpose, dealer, place, entry[1:])
            if entry[0] != 1 or digest != self._expected_digest(dealer, place, purpose):
                raise SecureAggregationError(f"{self.session.names[place]!r} reveals a wrong share.")
            found[dealer] = entry[1:]
        for dealer, share in found.items():
            self._revealed.setdefault(dealer, {})[place] = share

    def _expected_digest(self, dealer: int, holder: int, purpose: str) -> bytes:
        """Return the hash of a share as its dealer signed it; the dealer's own share stands among its neighbours'."""
        others = self._neighbours_in(dealer, 1)
        number = bisect_left(others, holder) + (dealer < holder)
        first = _SEED_DIGEST_BYTES + DIGEST_BYTES * (2 * number + (purpose == "seed"))
        return bytes(self._dealt[dealer][first : first + DIGEST_BYTES])

    def _answer(self, kind: Kind, place: int) -> bytes:
        """Return what a client gets at the end of a phase."""
        here = bitmap(self._lists[-1], self.session)
        if kind == Kind.ADVERTISE:
            messages = listed(self._advertised[other] for other in self._neighbours_in(place, 1))
            return server_message(Kind.ROSTER, self.session, here, messages)
        if kind == Kind.SHARES:
            boxes = [self._box(other, place) for other in self._neighbours_in(place, 2)]
            return server_message(Kind.SEALED, self.session, here, *boxes)
        if kind == Kind.MASKED:
            return server_message(Kind.SURVIVORS, self.session, here)
        signatures = listed(self._signatures[other] for other in sorted(self._lists[-1]))
        return server_message(Kind.AGREED, self.session, here, signatures)

    def _box(self, dealer: int, receiver: int) -> bytes:
        """Return the shares that a dealer sealed for a receiver."""
        others = self._neighbours_in(dealer, 1)
        first = _SEED_DIGEST_BYTES + 2 * DIGEST_BYTES * (len(others) + 1) + SEALED_BYTES * bisect_left(others, receiver)
        return bytes(self._dealt[dealer][first : first + SEALED_BYTES])

    def _neighbours_in(self, place: int, number: int) -> list[int]:
        """Return the neighbours of a client that are on one of the lists, in order."""
        if (place, number) not in self._present:
            present = [other for other in self.session.neighbours(place) if other in self._lists[number]]
            self._present[place, number] = present
        return self._present[place, number]

    def _agreement(self) -> bytes:
        return b"".join(bitmap(places, self.session) for places in self._lists[1:4])

    def _secret(self, dealer: int, purpose: str, weights: dict[tuple[int, ...], Interpolation]) -> bytes:
        """Return a secret from its shares; weights of holders are kept for the next secret."""
        name, shares = self.session.names[dealer], self._revealed.get(dealer, {})
        if len(shares) < self.session.threshold:
            raise TooFewClientsError(
                f"{len(shares)} shares of a secret of {name!r} are there, and {self.session.threshold} are needed. "
                "The masked sum adds nothing."
            )
        holders = tuple(sorted(shares)[: self.session.threshold])
        if holders not in weights:
            weights[holders] = Interpolation(holders)
        secret = weights[holders].secret(shares, KEY_BYTES)
        if secret is None or not self._is_right(dealer, purpose, secret):
            raise SecureAggregationError(f"{name!r} dealt wrong shares of its secrets. The masked sum adds nothing.")
        return secret

    def _is_right(self, dealer: int, purpose: str, secret: bytes) -> bool:
        if purpose == "key":
            return public_key(secret) == self._keys[dealer][KEY_BYTES:]
        return seed_digest(self.session, dealer, secret) == bytes(self._dealt[dealer][:_SEED_DIGEST_BYTES])

    def _remove_pairs_(self, total: npt.NDArray[np.uint64], dropped: int, partners: list[int], private: bytes) -> None:
        """Take off the masks that a dropped client shared with those whose updates arrived."""
        for partner in partners:
            secret = shared_secret(private, self._keys[partner][KEY_BYTES:])
            if secret is None:
                raise SecureAggregationError(f"The keys of {self.session.names[partner]!r} are not usable.")
            key = mask_key(secret, self.session.context, dropped, partner)
            add_mask_(total, key, -1 if partner < dropped else 1)
