"""The seam between a deployment and its transport: who can be asked, and how answers come back.

`fleet_aggregator.py` asks through a `Fleet`, clients answer through a `Connection`. `flower_fleet.py` and
`flower_connection.py` have them for Flower.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sottovoce.deploy.messages import Envelope
from sottovoce.errors import SottoError

HEARTBEAT_SECONDS = 20  # a client that is not heard for twice as long is gone


class LinkDownError(SottoError):
    """The other side cannot be reached now. Trying again later may help."""


class ConnectionLostError(LinkDownError):
    """The server knows this connection no more, as when it was started again. A new one is needed."""


class RefusedConnectionError(SottoError):
    """The other side does not want this connection. Trying again does not help."""


class UnknownKeyError(RefusedConnectionError):
    """The key is not enrolled; or the server has not noticed yet that an earlier connection with it has ended."""


def unreachable(server: str, error: Exception) -> SottoError:
    """Return the error for a server that could not be talked to: for now, or for good where it is not the right one."""
    reason = " ".join(str(error).split())[:200]
    if "certificate has expired" in reason:
        return RefusedConnectionError(f"The certificate of {server} has expired. Ask the operator for a new one.")
    if "certificate is not valid for" in reason:
        return RefusedConnectionError(f"The certificate of {server} is for another name. Use one that is in it.")
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return RefusedConnectionError(
            f"{server} has a certificate that --ca does not vouch for. Use the server's ca.crt."
        )
    return LinkDownError(f"{server} cannot be reached ({reason}).")


@dataclass(frozen=True)
class Answer:
    """What came back for one user: a message, or nothing that can be read."""

    user: str
    envelope: Envelope | None

    @property
    def size(self) -> int:
        """The bytes of its parts."""
        return 0 if self.envelope is None else sum(map(len, self.envelope.parts.values()))


@dataclass(frozen=True)
class Incoming:
    """A task as a client has received it; `ticket` is for the connection, which needs it to reply."""

    envelope: Envelope
    ticket: Any


class Fleet(Protocol):
    """The server's side: all clients."""

    def ask(self, tasks: Mapping[str, tuple[bytes, Envelope]], seconds: float) -> Iterator[Answer]:
        """Send every user's client its task; yield answers as they arrive, at most one per user, until time is up.

        Tasks are by user, with the key of the client's connection. Whoever is offline or leaves is not waited for.
        Afterwards, all tasks are withdrawn: an answer that comes later reaches nobody.
        """


class Connection(Protocol):
    """A client's side. After a LinkDownError that is no ConnectionLostError, the same call may be made again."""

    def receive(self) -> Incoming | None:
        """Return the next task; None where there is none now."""

    def reply(self, incoming: Incoming, envelope: Envelope) -> bool:
        """Send the answer to a task; return False where the task was withdrawn meanwhile."""
