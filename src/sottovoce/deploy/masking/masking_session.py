"""What is agreed before the masked sum of a step: who is invited, how many are needed, and what is added up.

A session serves one sum. Everything in it enters `context`, a hash that every signature, key and ciphertext of the
session is bound to, so nothing fits another step, run, cohort or attempt.

`quorum` clients must have taken part in every phase, or the session ends without revealing anything. It is more than
two thirds of the invited: up to n - quorum may drop out, and a server with fewer than 2 * quorum - n clients on its
side cannot show two halves of a cohort different lists of survivors. `threshold` shares open the secret of a client. In
the complete graph all clients hold shares of all others, and the two numbers are the same.

Cohorts of more than about a hundred can be `sparse` (Bell et al. 2020): every client shares masks and secrets with
`degree` others only, its neighbours on a random ring. `sparse_graph` chooses the degree for assumed shares of colluding
and dropping clients, with failure probabilities of 2^-40 and 2^-20 over the ring. The server chooses the ring, so
sparse graphs protect against a curious server, not against one that breaks the protocol.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sottovoce.deploy.masking.ring import ring_bytes
from sottovoce.errors import PrivacyError

FEWEST, MOST = 3, 4096  # clients of a session
_NAME_BYTES = 64
_NONCE_BYTES = 32
_SECURITY_BITS, _CORRECTNESS_BITS = 40, 20
_VERSION = b"sottovoce masking session 1"


class SecureAggregationError(PrivacyError):
    """A message or session that breaks the protocol. The one who raises it has revealed nothing by it."""


class TooFewClientsError(SecureAggregationError):
    """Too many clients dropped out: this sum cannot be had any more, and no update has been revealed."""


class SparseGraph(NamedTuple):
    """How many neighbours a client has, and how many shares of its secrets open them."""

    degree: int
    threshold: int


def least_quorum(clients: int) -> int:
    """Return the smallest number above two thirds."""
    return 2 * clients // 3 + 1


@dataclass(frozen=True)
class MaskingSession:
    """The public facts of one masked sum. Server and clients must hold the same ones."""

    run: str
    step: int
    names: tuple[str, ...]  # the invited clients, sorted
    length: int  # of the vectors
    largest: int  # what a client may add to a coordinate, in size
    quorum: int
    threshold: int
    degree: int  # neighbours of every client; n - 1 is the complete graph
    nonce: bytes

    @classmethod
    def of(
        cls,
        run: str,
        step: int,
        names: Iterable[str],
        *,
        length: int,
        largest: int,
        graph: SparseGraph | None = None,
        nonce: bytes | None = None,
    ) -> "MaskingSession":
        """Return a new session of these clients; without a sparse graph, everyone shares masks with everyone."""
        invited = tuple(sorted(names))
        quorum = least_quorum(len(invited))
        degree, threshold = graph or (len(invited) - 1, quorum)
        nonce = secrets.token_bytes(_NONCE_BYTES) if nonce is None else nonce
        return cls(run, step, invited, length, largest, quorum, threshold, degree, nonce)

    def __post_init__(self) -> None:
        """Refuse sessions that protect less than is promised, whoever made them."""
        n = len(self.names)
        if not FEWEST <= n <= MOST:
            raise TooFewClientsError(f"A masked sum is of {FEWEST} to {MOST} clients, not {n}.")
        if list(self.names) != sorted(set(self.names)) or not all(map(_is_name, (self.run, *self.names))):
            raise SecureAggregationError("Names of clients are not sorted, or not 1 to 64 bytes of printable text.")
        if not (0 <= self.step < 2**63 and 0 < self.length < 2**32 and 0 < self.largest < 2**63):
            raise SecureAggregationError("The step, length or range of a masked sum is out of bounds.")
        if not least_quorum(n) <= self.quorum <= n or len(self.nonce) != _NONCE_BYTES:
            raise SecureAggregationError(f"A quorum of {self.quorum} of {n} is not more than two thirds.")
        complete = self.degree == n - 1
        if not complete and not (2 <= self.degree < n - 1 and self.degree % 2 == 0):
            raise SecureAggregationError(f"{n} clients cannot have {self.degree} neighbours each.")
        least = self.quorum if complete else self.degree // 2 + 1
        if not least <= self.threshold <= self.degree + 1:
            raise SecureAggregationError(f"A threshold of {self.threshold} shares is less than {least}.")
        if n * self.largest >= 2**63:
            raise SecureAggregationError("The sum of all clients does not fit into 64 bits.")

    @cached_property
    def context(self) -> bytes:
        """The hash that binds everything to this session."""
        return hashlib.sha256(self.to_bytes()).digest()

    @cached_property
    def ring_bytes(self) -> int:
        """Bytes on the wire for a coordinate."""
        return ring_bytes(len(self.names), self.largest)

    @property
    def bitmap_bytes(self) -> int:
        """The size of a set of clients on the wire."""
        return -(-len(self.names) // 8)

    def place_of(self, name: str) -> int:
        """Return the number of a client in this session."""
        if name not in self._places:
            raise SecureAggregationError(f"{name!r} is not invited to this step.")
        return self._places[name]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def neighbours(self, place: int) -> tuple[int, ...]:
        """Return the clients with whom one shares masks and secrets, in order."""
        n = len(self.names)
        if self.degree == n - 1:
            return tuple(other for other in range(n) if other != place)
        at, reach = self._ring.index(place), self.degree // 2
        return tuple(sorted(self._ring[(at + step) % n] for step in range(-reach, reach + 1) if step))

    @cached_property
    def _ring(self) -> list[int]:
        """The clients in a random order that follows from the context."""
        return sorted(
            range(len(self.names)), key=lambda place: hashlib.sha256(b"%b/%d" % (self.context, place)).digest()
        )

    def to_bytes(self) -> bytes:
        """Return the session as bytes: what the server sends as an invitation."""
        fields = [self.step, self.length, self.largest, self.quorum, self.threshold, self.degree, len(self.names)]
        texts = [text.encode() for text in (self.run, *self.names)]
        numbers = b"".join(field.to_bytes(8, "big") for field in fields)
        return _VERSION + self.nonce + numbers + b"".join(len(text).to_bytes(1, "big") + text for text in texts)

    @classmethod
    def from_bytes(cls, data: bytes) -> "MaskingSession":
        """Return the session of an invitation, checked."""
        head = len(_VERSION) + _NONCE_BYTES + 7 * 8
        if not head < len(data) <= head + (MOST + 1) * (_NAME_BYTES + 1) or not data.startswith(_VERSION):
            raise SecureAggregationError("This is no invitation to a masked sum, or of another version.")
        nonce = data[len(_VERSION) : len(_VERSION) + _NONCE_BYTES]
        numbers = [int.from_bytes(data[place : place + 8], "big") for place in range(head - 7 * 8, head, 8)]
        step, length, largest, quorum, threshold, degree, count = numbers
        texts, place = [], head
        while place < len(data):
            size = data[place]
            texts.append(data[place + 1 : place + 1 + size].decode("utf-8", errors="replace"))
            place += 1 + size
        if len(texts) != count + 1 or place != len(data):
            raise SecureAggregationError("An invitation to a masked sum is cut off.")
        session = cls(texts[0], step, tuple(texts[1:]), length, largest, quorum, threshold, degree, nonce)
        if session.to_bytes() != data:
            raise SecureAggregationError("An invitation to a masked sum has names that are not text.")
        return session


def _is_name(text: str) -> bool:
    return text.isprintable() and 0 < len(text.encode()) <= _NAME_BYTES


def sparse_graph(clients: int, colluding: float = 0.2, dropping: float = 0.2) -> SparseGraph | None:
    """Return the sparsest graph that is safe for these shares of clients; None where only the complete one is.

    With probability 1 - 2^-40 over the random ring, for honest clients of any choice: no client has `threshold`
    colluding holders of its shares, and the honest clients that stay are connected by masks. With probability
    1 - 2^-20 every client has `threshold` holders that stay.
    """
    from scipy.stats import hypergeom  # noqa: PLC0415 - a second to load

    bad, gone = int(colluding * clients), int(dropping * clients)
    for degree in range(8, clients - 1, 2):
        # A cut of the ring needs two runs of degree / 2 clients that all collude or have dropped out.
        if clients * ((bad + gone) / clients) ** (degree // 2) > 2.0**-_SECURITY_BITS:
            continue
        for threshold in range(degree // 2 + 1, degree + 1):
            if clients * hypergeom.sf(threshold - 1, clients - 1, bad, degree) <= 2.0**-_SECURITY_BITS:
                too_few = hypergeom.cdf(threshold - 1, clients - 1, clients - 1 - gone, degree)
                if clients * too_few <= 2.0**-_CORRECTNESS_BITS:
                    return SparseGraph(degree, threshold)
                break
    return None
