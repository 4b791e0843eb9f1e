"""The messages of a masked sum as bytes: fixed fields, exact sizes, every client's message signed.

A client's message is  magic | kind | context | sender | size of signature | signature | body;  the server's are
magic | kind | context | body.  A signature covers kind, context, sender and the hash of the body, so a message fits no
other session, phase or client. Nothing is parsed before its size is known to be right; all refusals are
`SecureAggregationError`.
"""

import hashlib
from collections.abc import Callable, Iterable
from enum import IntEnum

from sottovoce.deploy.masking.key_agreement import KEY_BYTES, TAG_BYTES
from sottovoce.deploy.masking.masking_session import MaskingSession, SecureAggregationError
from sottovoce.deploy.masking.shamir import SHARE_BYTES

Sign = Callable[[bytes], bytes]  # a statement, with the client's own identity key
Verify = Callable[[str, bytes, bytes], bool]  # whose, statement, signature

DIGEST_BYTES = 16
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
KEYS_BYTES = 2 * KEY_BYTES
_MAGIC = b"SVM1"
_CONTEXT_BYTES = 32
_MOST_SIGNATURE = 512
_SERVER_HEAD = len(_MAGIC) + 1 + _CONTEXT_BYTES
_CLIENT_HEAD = _SERVER_HEAD + 4


class Kind(IntEnum):
    """What a message is, in the order of a session: a client's, then the server's answer to all."""

    ADVERTISE = 1  # client: two public keys
    ROSTER = 2  # server: who is there, and the signed keys of one's neighbours
    SHARES = 3  # client: hashes of all shares, and the shares sealed for each neighbour
    SEALED = 4  # server: who shared, and what is sealed for this client
    MASKED = 5  # client: the masked update
    SURVIVORS = 6  # server: whose update arrived
    AGREEMENT = 7  # client: a signature of all three lists
    AGREED = 8  # server: the others' signatures
    REVEAL = 9  # client: a share of every neighbour, of its seed or of its key


_WORDS = {kind: kind.name.lower() for kind in Kind}


def statement(kind: Kind, session: MaskingSession, sender: int, body: bytes | memoryview) -> bytes:
    """Return what a client signs for a message."""
    return b"sottovoce masked sum" + bytes([kind]) + session.context + _two(sender) + hashlib.sha256(body).digest()


def client_message(kind: Kind, session: MaskingSession, sender: int, body: bytes, sign: Sign) -> bytes:
    """Return a signed message of a client."""
    signature = sign(statement(kind, session, sender, body))
    if not 0 < len(signature) <= _MOST_SIGNATURE:
        raise ValueError(f"A signature of {len(signature)} bytes does not fit.")
    head = _MAGIC + bytes([kind]) + session.context + _two(sender) + _two(len(signature))
    return b"".join((head, signature, body))


def open_client_message(
    data: bytes | memoryview, kind: Kind, session: MaskingSession, sender: int, size: int, verify: Verify
) -> tuple[memoryview, bytes]:
    """Return the body, of this many bytes, of a message that is this client's, and its signature."""
    view = memoryview(data)
    _require_head(view, kind, session, _CLIENT_HEAD)
    claimed, signed = _number(view[_SERVER_HEAD:]), _number(view[_SERVER_HEAD + 2 :])
    if claimed != sender:
        raise SecureAggregationError(f"A message of {session.names[sender]!r} is in the name of another client.")
    if not 0 < signed <= _MOST_SIGNATURE or len(view) != _CLIENT_HEAD + signed + size:
        raise SecureAggregationError(
            f"The message {_WORDS[kind]} of {session.names[sender]!r} has {len(view)} bytes, not the size that it must."
        )
    signature, body = bytes(view[_CLIENT_HEAD : _CLIENT_HEAD + signed]), view[_CLIENT_HEAD + signed :]
    if not verify(session.names[sender], statement(kind, session, sender, body), signature):
        raise SecureAggregationError(f"The signature of {session.names[sender]!r} is not valid.")
    return body, signature


def server_message(kind: Kind, session: MaskingSession, *parts: bytes) -> bytes:
    """Return a message of the server."""
    return b"".join((_MAGIC, bytes([kind]), session.context, *parts))


def open_server_message(data: bytes, kind: Kind, session: MaskingSession, size: int | None = None) -> memoryview:
    """Return the body of a message of the server; a size is required where it is known."""
    view = memoryview(data)
    _require_head(view, kind, session, _SERVER_HEAD)
    if size is not None and len(view) != _SERVER_HEAD + size:
        raise SecureAggregationError(f"The server's message {_WORDS[kind]} does not have the size that it must.")
    return view[_SERVER_HEAD:]


def _require_head(view: memoryview, kind: Kind, session: MaskingSession, size: int) -> None:
    if len(view) < size or view[: len(_MAGIC)] != _MAGIC or view[len(_MAGIC)] != kind:
        raise SecureAggregationError(f"Expected the message {_WORDS[kind]} of a masked sum.")
    if view[len(_MAGIC) + 1 : _SERVER_HEAD] != session.context:
        raise SecureAggregationError(f"The message {_WORDS[kind]} belongs to another step, run or session.")


def bitmap(places: Iterable[int], session: MaskingSession) -> bytes:
    """Return a set of clients as bits."""
    bits = sum(1 << place for place in places)
    return bits.to_bytes(session.bitmap_bytes, "little")


def from_bitmap(data: bytes | memoryview, session: MaskingSession) -> frozenset[int]:
    """Return the set of clients of these bits."""
    bits = int.from_bytes(data, "little")
    if bits >> len(session.names):
        raise SecureAggregationError("A list of clients names some who are not invited.")
    return frozenset(place for place in range(len(session.names)) if bits >> place & 1)


def listed(items: Iterable[bytes]) -> bytes:
    """Return byte strings one after another, each after its size."""
    return b"".join(_two(len(item)) + item for item in items)


def from_list(data: memoryview, count: int) -> list[bytes]:
    """Return this many byte strings, which must fill the data."""
    items, place = [], 0
    for _ in range(count):
        size = _number(data[place:])
        items.append(bytes(data[place + 2 : place + 2 + size]))
        place += 2 + size
    if place != len(data):
        raise SecureAggregationError("A list of a masked sum is cut off, or too long.")
    return items


def share_digest(session: MaskingSession, purpose: str, dealer: int, holder: int, share: bytes) -> bytes:
    """Return the hash by which the server knows the right share when it is revealed."""
    text = b"share/%b/%d/%d/" % (purpose.encode(), dealer, holder)
    return hashlib.sha256(session.context + text + share).digest()[:DIGEST_BYTES]


def seed_digest(session: MaskingSession, dealer: int, seed: bytes) -> bytes:
    """Return the hash by which the server knows the right seed of a self mask."""
    return hashlib.sha256(session.context + b"seed/%d/" % dealer + seed).digest()


def _two(number: int) -> bytes:
    return number.to_bytes(2, "big")


def _number(view: memoryview) -> int:
    return int.from_bytes(view[:2], "big")
