"""What server and clients tell each other: a task down, a signed update up, and nothing else.

An `Envelope` is a header of JSON, a signature and named parts of raw bytes. The transport (`flower_records.py`) carries
envelopes and looks into none. Nothing is unpickled, and no array header is parsed: sizes follow from the model.

    down   TaskHeader    parts: theta (float32, what trains), frozen (float32, what does not; only where there is any)
    up     UpdateHeader  part:  update (the clipped integers), signed by the client's key over the whole header,
                         which holds the SHA-256 of the part

With secure aggregation, five rounds take the place of an update. What is in their part `message` is signed by itself.

    down   RoundHeader   parts: session and identities (32 bytes a key) at first, later message
    down   TaskHeader    for the round `mask`; parts: theta, frozen, message
    up     RoundHeader   part:  message

`encode_update` and `decode_update` are the one place where an update becomes bytes and back.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sottovoce.deploy import integer_coding
from sottovoce.reading import BadDocument, parse_json
from sottovoce.version import VERSION

PROTOCOL = 2  # of tasks, updates and enrolment; a peer with another number is refused
THETA, FROZEN, UPDATE = "theta", "frozen", "update"
SESSION, IDENTITIES, MESSAGE = "session", "identities", "message"
LARGEST_HEADER = 1 << 20
_COUNT_BYTES = 4
_SIGNED = b"sottovoce update\n"  # what a signature is for: no other document of ours begins like this

Phase = Literal["advertise", "share", "mask", "agree", "reveal"]  # the rounds of a masked sum
Integers = npt.NDArray[np.int64]
Header = TypeVar("Header", bound=BaseModel)


class BadMessage(ValueError):  # noqa: N818 - a finding, which the caller turns into a refusal
    """A message that cannot be read, in a few words."""


@dataclass(frozen=True)
class Envelope:
    """A message as the transport carries it."""

    header: bytes
    parts: Mapping[str, bytes] = field(default_factory=dict)
    signature: bytes = b""


class TaskHeader(BaseModel):
    """What a client is asked to do. All of it is public."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: int
    run: str  # the run's name, from the server's own random bits
    step: int = Field(ge=0)
    user: str
    nonce: str  # fresh for every task: an update that repeats it answers this task and no other
    theta: str  # SHA-256 of the part
    bounds: tuple[float, ...] | None = None  # C_h of this step, where they adapt
    languages: tuple[str, ...]  # of the tokens
    settings: dict[str, Any]  # the public part of the configuration
    masked: bool = False  # whether this is the round `mask` of a masked sum

    def sealed(self, parts: Mapping[str, bytes]) -> Envelope:
        """Return the task as a message."""
        return Envelope(_canonical(self), parts)


class RoundHeader(BaseModel):
    """One round of a masked sum, as a question and as its answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: int
    run: str
    step: int = Field(ge=0)
    user: str
    phase: Phase

    def sealed(self, parts: Mapping[str, bytes]) -> Envelope:
        """Return the round as a message."""
        return Envelope(_canonical(self), parts)


class UpdateHeader(BaseModel):
    """Which task an update answers. Nothing here is computed from audio but the digest of the clipped integers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: int
    client: str  # the version of the client's software
    run: str
    step: int
    user: str
    nonce: str
    digest: str  # SHA-256 of the part `update`


def read_task(envelope: Envelope) -> TaskHeader:
    """Return the header of a task; raise BadMessage where it cannot be read or theta is not the one it names."""
    header = _read(TaskHeader, envelope.header)
    if hashlib.sha256(envelope.parts.get(THETA, b"")).hexdigest() != header.theta:
        raise BadMessage("the model is damaged")
    return header


def read_round(envelope: Envelope) -> RoundHeader | None:
    """Return the header of a round of a masked sum; None where a message is something else."""
    try:
        return _read(RoundHeader, envelope.header)
    except BadMessage:
        return None


def signed_update(task: TaskHeader, update: Integers, key: Ed25519PrivateKey) -> Envelope:
    """Return a client's answer to a task: its clipped integers, signed."""
    payload = encode_update(update)
    header = UpdateHeader(
        protocol=PROTOCOL,
        client=VERSION,
        run=task.run,
        step=task.step,
        user=task.user,
        nonce=task.nonce,
        digest=hashlib.sha256(payload).hexdigest(),
    )
    return sign(header, payload, key)


def sign(header: UpdateHeader, payload: bytes, key: Ed25519PrivateKey) -> Envelope:
    """Return a signed message with this header and payload, whether or not they belong together."""
    content = _canonical(header)
    return Envelope(content, {UPDATE: payload}, key.sign(_SIGNED + content))


def is_signed(envelope: Envelope, key: Ed25519PublicKey) -> bool:
    """Return whether the owner of a key has signed the header, and with it the digest of the update."""
    try:
        key.verify(envelope.signature, _SIGNED + envelope.header)
    except InvalidSignature:
        return False
    return True


def read_update_header(envelope: Envelope) -> UpdateHeader:
    """Return the header of an update; raise BadMessage where it cannot be read."""
    return _read(UpdateHeader, envelope.header)


def protocol_of(envelope: Envelope) -> object:
    """Return the protocol that a header names, whatever else it holds; None where it names none."""
    try:
        document = parse_json(envelope.header[:LARGEST_HEADER])
    except BadDocument:
        return None
    return document.get("protocol") if isinstance(document, dict) else None


def encode_update(update: Integers) -> bytes:
    """Return integers as bytes, without loss: how many there are (4 bytes, little-endian), then their code."""
    return len(update).to_bytes(_COUNT_BYTES, "little") + integer_coding.encode(update)


def decode_update(payload: bytes, size: int) -> Integers:
    """Return the `size` integers of `encode_update`; raise BadMessage where there are more, fewer or others."""
    if integers_in(payload) != size:
        raise BadMessage(f"expected {size} integers")
    try:
        return integer_coding.decode(payload[_COUNT_BYTES:], size, integer_coding.LARGEST_CODED)
    except integer_coding.IntegerCodingError:
        raise BadMessage(f"expected the code of {size} integers") from None


def integers_in(payload: bytes) -> int:
    """Return how many integers an update says that it holds."""
    return int.from_bytes(payload[:_COUNT_BYTES], "little")


def _canonical(header: BaseModel) -> bytes:
    return json.dumps(header.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()


def _read(kind: type[Header], content: bytes) -> Header:
    if len(content) > LARGEST_HEADER:
        raise BadMessage("the header is too long")
    try:
        return kind.model_validate(parse_json(content))
    except (BadDocument, ValidationError):
        raise BadMessage("the header cannot be read") from None
