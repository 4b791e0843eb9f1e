"""A client's side of a masked sum (Bonawitz et al. 2017, with the check against a server that shows different lists).

    advertise()               two fresh public keys, signed
    share(roster)             shares of its seed and of its private masking key, sealed for each neighbour
    mask(sealed, update)      update + mask(seed) + sum over neighbours of +-mask(key of the pair)
    agree(survivors)          its signature of who shared and whose update arrived
    reveal(agreed)            for every neighbour one share: of the seed if its update arrived, of the key if not

Each is called once, in this order. Guarantees, whatever the server and other clients send:
- anything wrong ends the session for good: `SecureAggregationError` is raised, and no later call answers;
- one list of survivors decides which kind of share is revealed, so nobody ever gets both kinds for one client from
  here, and nothing is revealed before a quorum has signed exactly this list;
- keys are accepted only with the signature of the invited client's identity key, so a server cannot put in its own;
- the update leaves only under masks, and only if a quorum's sum hides it.

All secrets come from one seed of 32 bytes from the operating system's generator. `to_bytes` writes the state between
two messages, for clients that are a new process for each: it holds secrets. Write it to disk before a message is sent.
"""

import secrets
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from sottovoce.deploy.masking.key_agreement import (
    KEY_BYTES,
    derived,
    mask_key,
    public_key,
    seal,
    shared_secret,
    unseal,
)
from sottovoce.deploy.masking.masking_session import FEWEST, MaskingSession, SecureAggregationError
from sottovoce.deploy.masking.ring import add_mask_, key_stream, packed
from sottovoce.deploy.masking.shamir import SHARE_BYTES, random_bytes, split
from sottovoce.deploy.masking.wire import (
    KEYS_BYTES,
    SEALED_BYTES,
    Kind,
    Sign,
    Verify,
    bitmap,
    client_message,
    from_bitmap,
    from_list,
    open_client_message,
    open_server_message,
    seed_digest,
    share_digest,
    statement,
)


class _Next(IntEnum):
    """The call that comes next."""

    ADVERTISE = 0
    SHARE = 1
    MASK = 2
    AGREE = 3
    REVEAL = 4
    NONE = 5


class _State(BaseModel):
    """What a client knows between two messages."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", extra="forbid")

    context: bytes
    place: int
    seed: bytes
    next: _Next = _Next.ADVERTISE
    lists: list[frozenset[int]] = []  # who advertised keys, who shared secrets, whose update arrived
    keys: dict[int, bytes] = {}  # the two public keys of each neighbour
    held: dict[int, bytes] = {}  # the two shares of each neighbour's secrets, and of one's own


class MaskingClient:
    """One client in one session."""

    def __init__(
        self,
        session: MaskingSession,
        name: str,
        sign: Sign,
        verify: Verify,
        *,
        fewest: int = FEWEST,
        seed: bytes | None = None,
    ) -> None:
        """Join a session of at least `fewest` clients; a seed is given in tests only."""
        if len(session.names) < fewest:
            raise SecureAggregationError(
                f"A masked sum of {len(session.names)} clients is too small; {fewest} is least."
            )
        self.session, self.place = session, session.place_of(name)
        self._sign, self._verify = sign, verify
        seed = secrets.token_bytes(KEY_BYTES) if seed is None else seed
        self._state = _State(context=session.context, place=self.place, seed=seed)

    def advertise(self) -> bytes:
        """Return the message that begins the session."""
        self._begin(_Next.ADVERTISE)
        return self._message(Kind.ADVERTISE, self._own_keys(), _Next.SHARE)

    def share(self, roster: bytes) -> bytes:
        """Check who else is there and return shares of one's secrets, sealed for them."""
        self._begin(_Next.SHARE)
        session, place = self.session, self.place
        body = open_server_message(roster, Kind.ROSTER, session)
        self._keep_list(body[: session.bitmap_bytes], frozenset(range(len(session.names))))
        others = self._neighbours_in(0)
        messages = from_list(body[session.bitmap_bytes :], len(others))
        for other, message in zip(others, messages, strict=True):
            keys, _ = open_client_message(message, Kind.ADVERTISE, session, other, KEYS_BYTES, self._verify)
            self._state.keys[other] = bytes(keys)
        if len({self._own_keys(), *self._state.keys.values()}) != len(others) + 1:
            raise SecureAggregationError("Two clients of a masked sum have the same keys.")
        by_purpose = {purpose: self._split(purpose) for purpose in ("key", "seed")}
        self._state.held[place] = by_purpose["key"][place] + by_purpose["seed"][place]
        parts = [seed_digest(session, place, self._secret("seed"))]
        for holder in sorted((*others, place)):
            parts += [
                share_digest(session, purpose, place, holder, by_purpose[purpose][holder]) for purpose in by_purpose
            ]
        for other in others:
            text = by_purpose["key"][other] + by_purpose["seed"][other]
            parts.append(seal(self._shared(other, "seal"), session.context, place, other, text))
        return self._message(Kind.SHARES, b"".join(parts), _Next.MASK)

    def mask(self, sealed: bytes, update: npt.NDArray[np.int64]) -> bytes:
        """Keep the others' shares and return the masked update."""
        self._begin(_Next.MASK)
        session, place = self.session, self.place
        if update.dtype != np.int64 or update.shape != (session.length,):
            raise SecureAggregationError(f"Expected an update of {session.length} integers.")
        if max(int(update.max()), -int(update.min())) > session.largest:
            raise SecureAggregationError("An update is larger than its range. Nothing is sent.")
        body = open_server_message(sealed, Kind.SEALED, session)
        self._keep_list(body[: session.bitmap_bytes], self._state.lists[0])
        others = self._neighbours_in(1)
        open_server_message(sealed, Kind.SEALED, session, session.bitmap_bytes + len(others) * SEALED_BYTES)
        total = update.view(np.uint64).copy()
        add_mask_(total, derived(self._secret("seed"), session.context, "self", place), 1)
        for number, other in enumerate(others):
            first = session.bitmap_bytes + number * SEALED_BYTES
            box = bytes(body[first : first + SEALED_BYTES])
            shares = unseal(self._shared(other, "seal"), session.context, other, place, box)
            if shares is not None:  # a liar's shares are missing in the end; others have theirs
                self._state.held[other] = shares
            key = mask_key(self._shared(other, "key"), session.context, place, other)
            add_mask_(total, key, 1 if place < other else -1)
        return self._message(Kind.MASKED, packed(total, session.ring_bytes), _Next.AGREE)

    def agree(self, survivors: bytes) -> bytes:
        """Return a signature of the three lists of this session."""
        self._begin(_Next.AGREE)
        body = open_server_message(survivors, Kind.SURVIVORS, self.session, self.session.bitmap_bytes)
        self._keep_list(body, self._state.lists[1])
        return self._message(Kind.AGREEMENT, self._agreement(), _Next.REVEAL)

    def reveal(self, agreed: bytes) -> bytes:
        """Check that a quorum has signed the same lists and return one share of every neighbour that shared."""
        self._begin(_Next.REVEAL)
        session = self.session
        body = open_server_message(agreed, Kind.AGREED, session)
        signers = from_bitmap(body[: session.bitmap_bytes], session)
        if len(signers) < session.quorum or not signers <= self._state.lists[2]:
            raise SecureAggregationError("Too few clients agree on whose updates arrived. Nothing is revealed.")
        signatures = from_list(body[session.bitmap_bytes :], len(signers))
        for signer, signature in zip(sorted(signers), signatures, strict=True):
            text = statement(Kind.AGREEMENT, session, signer, self._agreement())
            if not self._verify(session.names[signer], text, signature):
                raise SecureAggregationError(
                    f"{session.names[signer]!r} has not signed the same lists of clients. Nothing is revealed."
                )
        parts = []
        for other in sorted((*self._neighbours_in(1), self.place)):
            held = self._state.held.get(other, b"")
            share = held[SHARE_BYTES:] if other in self._state.lists[2] else held[:SHARE_BYTES]
            parts.append(bytes([bool(share)]) + share.ljust(SHARE_BYTES, b"\0"))
        return self._message(Kind.REVEAL, b"".join(parts), _Next.NONE)

    def _begin(self, call: _Next) -> None:
        """Allow this call once, at its turn; whatever fails from here on ends the session."""
        if self._state.next != call:
            raise SecureAggregationError(
                f"{call.name.lower()} is not the next call of this masked sum, or it has ended."
            )
        self._state.next = _Next.NONE

    def _message(self, kind: Kind, body: bytes, following: _Next) -> bytes:
        message = client_message(kind, self.session, self.place, body, self._sign)
        self._state.next = following
        return message

    def _keep_list(self, data: memoryview, earlier: frozenset[int]) -> None:
        """Keep the next list of clients: part of the one before, a quorum, with this client and its shares' holders."""
        listed_now = from_bitmap(data, self.session)
        if self.place not in listed_now or not listed_now <= earlier:
            raise SecureAggregationError("A list of clients leaves out this one, or adds some who were not there.")
        if len(listed_now) < self.session.quorum:
            raise SecureAggregationError(f"Only {len(listed_now)} clients are left; {self.session.quorum} are needed.")
        self._state.lists.append(listed_now)
        if len(self._neighbours_in(-1)) + 1 < self.session.threshold:
            raise SecureAggregationError("Too few neighbours of this client are left.")

    def _neighbours_in(self, number: int) -> list[int]:
        """Return the neighbours that are on one of the lists, in order."""
        return [other for other in self.session.neighbours(self.place) if other in self._state.lists[number]]

    def _agreement(self) -> bytes:
        return b"".join(bitmap(places, self.session) for places in self._state.lists)

    def _secret(self, purpose: str) -> bytes:
        """Return one of this client's secrets: the private keys `seal` and `key`, and the `seed` of its own mask."""
        return derived(self._state.seed, self.session.context, f"own {purpose}", self.place)

    def _own_keys(self) -> bytes:
        return public_key(self._secret("seal")) + public_key(self._secret("key"))

    def _split(self, purpose: str) -> dict[int, bytes]:
        """Return the shares of a secret, by holder. They depend on who holds them, not on who else does."""
        holders, threshold = (*self._neighbours_in(0), self.place), self.session.threshold
        randomness = key_stream(self._secret(f"shares of {purpose}"), random_bytes(threshold))
        return split(self._secret(purpose), holders, threshold, randomness)

    def _shared(self, other: int, purpose: str) -> bytes:
        """Return the secret shared with a neighbour, for sealing shares or for masks."""
        keys = self._state.keys[other]
        shared = shared_secret(self._secret(purpose), keys[:KEY_BYTES] if purpose == "seal" else keys[KEY_BYTES:])
        if shared is None:
            raise SecureAggregationError(f"The keys of {self.session.names[other]!r} are not usable.")
        return shared

    def to_bytes(self) -> bytes:
        """Return the state between two messages. It holds secrets."""
        return self._state.model_dump_json().encode()

    @classmethod
    def from_bytes(cls, data: bytes, session: MaskingSession, name: str, sign: Sign, verify: Verify) -> "MaskingClient":
        """Return the client that wrote this state, in its session."""
        client = cls(session, name, sign, verify, seed=bytes(KEY_BYTES))
        try:
            client._state = _State.model_validate_json(data)
        except ValidationError:
            raise SecureAggregationError("The kept state of a masked sum is damaged.") from None
        if client._state.context != session.context or client._state.place != client.place:
            raise SecureAggregationError("The kept state belongs to another masked sum.")
        return client
