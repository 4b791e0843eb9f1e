"""The server's checks of an update: everything it can know without hearing the user.

Guarantees: what `checked_update` returns is one user's answer to the one task it was asked, and integers that satisfy
the bounds of `privacy/clipping.py` in exact arithmetic: layer by layer where clipping is, otherwise as a whole, and
where bounds adapt with counts of exactly the allowed size. So a hostile client moves the sum no further than an honest
one may. Everything else is refused, with a reason from `REASONS` that says nothing about the user's data.
"""

import hashlib
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from torch import Tensor

from sottovoce.deploy.messages import (
    PROTOCOL,
    UPDATE,
    BadMessage,
    Envelope,
    Integers,
    TaskHeader,
    decode_update,
    is_signed,
    protocol_of,
    read_update_header,
)
from sottovoce.privacy.mechanism import Mechanism

REASONS = {
    "unreadable": "it cannot be read",
    "old version": f"its client does not speak protocol {PROTOCOL}: upgrade the client",
    "unsigned": "the user's key has not signed it",
    "wrong run": "it is for another run",
    "wrong step": "it is for another step",
    "wrong user": "it names another user",
    "replayed": "it answers another task",
    "damaged": "its content is not what was signed",
    "wrong shape": "it is not one integer for every parameter",
    "out of range": "an integer is larger than clipping allows",
    "too long": "its norm is larger than clipping allows",
    "wrong count": "a count is neither plus nor minus the allowed number",
    "not masked": "it breaks the protocol of the masked sum, or its client has left it",
}
_LOW_BITS = 20
_EXACT = 1 << 22  # squares of 2^20 that int64 can add up


class Refused(Exception):  # noqa: N818 - an answer that adds nothing, not a fault of ours
    """An update that is not used; `reason` is a key of REASONS."""

    def __init__(self, reason: str) -> None:
        """Note why."""
        super().__init__(REASONS[reason])
        self.reason = reason


def checked_update(envelope: Envelope, task: TaskHeader, key: Ed25519PublicKey, mechanism: Mechanism) -> Tensor:
    """Return the integers of a user's answer to a task; raise Refused where anything is not as it must be."""
    if protocol_of(envelope) not in (PROTOCOL, None):
        raise Refused("old version")
    if not is_signed(envelope, key):
        raise Refused("unsigned")
    try:
        header = read_update_header(envelope)
    except BadMessage:
        raise Refused("unreadable") from None
    payload = envelope.parts.get(UPDATE, b"")
    for reason, given, expected in (
        ("wrong run", header.run, task.run),
        ("wrong step", header.step, task.step),
        ("wrong user", header.user, task.user),
        ("replayed", header.nonce, task.nonce),
        ("damaged", header.digest, _sha256(payload)),
    ):
        if given != expected:
            raise Refused(reason)
    try:
        update = decode_update(payload, sum(mechanism.summed.sizes))
    except BadMessage:
        raise Refused("wrong shape") from None
    require_clipped(update, mechanism)
    return torch.from_numpy(update)


def require_clipped(update: Integers, mechanism: Mechanism) -> None:
    """Raise Refused where integers are not what clipping makes of some delta; the sums of squares are exact."""
    partition, grid = mechanism.partition, mechanism.grid
    deltas, counts = np.split(update, [sum(partition.sizes)])
    bounds = squared_bounds(mechanism)
    largest = max(bounds)
    if len(deltas) and Fraction(max(int(deltas.max()), -int(deltas.min()))) ** 2 > largest:
        raise Refused("out of range")
    sums = [0] * len(bounds)
    for tensor, piece in enumerate(np.split(deltas, np.cumsum(partition.tensor_sizes)[:-1])):
        sums[partition.tensor_layers[tensor] if len(bounds) > 1 else 0] += sum_of_squares(piece)
    if any(total > bound for total, bound in zip(sums, bounds, strict=True)):
        raise Refused("too long")
    if grid is not None and not (np.abs(counts) == grid.count).all():
        raise Refused("wrong count")


def squared_bounds(mechanism: Mechanism) -> list[Fraction]:
    """Return the largest sum of squares of a user's integers: for every layer, or one number for all of them."""
    if mechanism.grid is not None:
        return [Fraction(norm) ** 2 for norm in mechanism.grid.norms]
    norms = mechanism.clip_norms or ()
    if mechanism.privacy.rule == "normalize" and mechanism.privacy.clip_norm is not None:
        norms = (mechanism.privacy.clip_norm,)  # a delta below C keeps its layers as they are
    unit = Fraction(mechanism.resolution) / Fraction(mechanism.participation.weight_bound)
    return [(Fraction(norm) / unit) ** 2 for norm in norms]


def sum_of_squares(values: Integers) -> int:
    """Return the sum of the squares of integers below 2^40, exactly."""
    total = 0
    for piece in _pieces(np.abs(values)):
        high, low = piece >> _LOW_BITS, piece & ((1 << _LOW_BITS) - 1)
        parts = (int(high @ high), int(high @ low), int(low @ low))
        total += (parts[0] << 2 * _LOW_BITS) + (parts[1] << (_LOW_BITS + 1)) + parts[2]
    return total


def _pieces(values: Integers) -> Iterator[Integers]:
    for first in range(0, len(values), _EXACT):
        yield values[first : first + _EXACT]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
