"""Hostile clients, for the demonstration and for tests of the server: what they could do to a signed update.

    python -m sottovoce.deploy.lying LIE --store STORE --server HOST:PORT ...

is the client of `sotto deploy client` with the same options, whose updates are one of `LIES`.
"""

import hashlib
import sys
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sottovoce.deploy.messages import (
    UPDATE,
    Envelope,
    TaskHeader,
    UpdateHeader,
    decode_update,
    encode_update,
    integers_in,
    read_update_header,
    sign,
)
from sottovoce.privacy.mechanism import FRACTION_BITS

Lie = Callable[[TaskHeader, Envelope, Ed25519PrivateKey], Envelope]


def _integers(envelope: Envelope) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    payload = envelope.parts[UPDATE]
    return decode_update(payload, integers_in(payload))


def _resigned(envelope: Envelope, payload: bytes, key: Ed25519PrivateKey, **changes: object) -> Envelope:
    """Return a message with another content or header, whose signature and digest are right."""
    header = read_update_header(envelope).model_dump() | {"digest": hashlib.sha256(payload).hexdigest()} | changes
    return sign(UpdateHeader.model_validate(header), payload, key)


def _oversized(_task: TaskHeader, envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    return _resigned(envelope, encode_update(_integers(envelope) * 1000 + 2**37), key)


def _too_long(_task: TaskHeader, envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    update = _integers(envelope)  # every integer is within its range, but all of them together are not
    return _resigned(envelope, encode_update(np.full_like(update, int(2 * 2**FRACTION_BITS / len(update) ** 0.5))), key)


def _not_a_number(_task: TaskHeader, envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    payload = envelope.parts[UPDATE]
    floats = np.full(integers_in(payload), np.nan)
    return _resigned(envelope, payload[:5] + floats.tobytes(), key)


def _wrong_shape(_task: TaskHeader, envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    return _resigned(envelope, encode_update(_integers(envelope)[:-1]), key)


def _wrong_step(task: TaskHeader, envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    return _resigned(envelope, envelope.parts[UPDATE], key, step=task.step + 1)


def _wrong_run(_task: TaskHeader, envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    return _resigned(envelope, envelope.parts[UPDATE], key, run="another")


def _wrong_user(_task: TaskHeader, envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    return _resigned(envelope, envelope.parts[UPDATE], key, user="another")


def _replayed(_task: TaskHeader, envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    return _resigned(envelope, envelope.parts[UPDATE], key, nonce="of an earlier task")


def _old_version(_task: TaskHeader, envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    return _resigned(envelope, envelope.parts[UPDATE], key, protocol=0)


def _unsigned(_task: TaskHeader, envelope: Envelope, _key: Ed25519PrivateKey) -> Envelope:
    return Envelope(envelope.header, envelope.parts)


def _forged(_task: TaskHeader, envelope: Envelope, _key: Ed25519PrivateKey) -> Envelope:
    return sign(read_update_header(envelope), envelope.parts[UPDATE], Ed25519PrivateKey.generate())


def _damaged(_task: TaskHeader, envelope: Envelope, _key: Ed25519PrivateKey) -> Envelope:
    payload = envelope.parts[UPDATE]
    return Envelope(envelope.header, {UPDATE: payload[:-1] + bytes([payload[-1] ^ 1])}, envelope.signature)


def _garbage(_task: TaskHeader, _envelope: Envelope, key: Ed25519PrivateKey) -> Envelope:
    return Envelope(b"\x80\x04cos\nsystem\n", {UPDATE: b"\xff" * 99}, key.sign(b"something else"))


def _slow(_task: TaskHeader, envelope: Envelope, _key: Ed25519PrivateKey) -> Envelope:
    time.sleep(3600)
    return envelope


# Each lie, and the reason that the server refuses it for; a slow client is not refused, but not waited for either.
LIES: dict[str, tuple[Lie, str]] = {
    "oversized": (_oversized, "out of range"),
    "too-long": (_too_long, "too long"),
    "nan": (_not_a_number, "wrong shape"),
    "wrong-shape": (_wrong_shape, "wrong shape"),
    "wrong-step": (_wrong_step, "wrong step"),
    "wrong-run": (_wrong_run, "wrong run"),
    "wrong-user": (_wrong_user, "wrong user"),
    "replayed": (_replayed, "replayed"),
    "old-version": (_old_version, "old version"),
    "unsigned": (_unsigned, "unsigned"),
    "forged": (_forged, "unsigned"),
    "damaged": (_damaged, "damaged"),
    "garbage": (_garbage, "unsigned"),
    "slow": (_slow, ""),
}


def main() -> None:
    """Run a hostile client."""
    from sottovoce.deploy import client_process  # noqa: PLC0415 - Flower is not needed for the lies themselves

    words = iter(sys.argv[2:])
    given = dict(zip(words, words, strict=True))
    options = client_process.options_of(given)
    options.tamper = LIES[sys.argv[1]][0]
    client_process.run_client(options, print)


if __name__ == "__main__":
    main()
