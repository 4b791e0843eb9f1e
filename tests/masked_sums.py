"""A masked sum without a network: clients with identity keys, who drop out or lie when a test says so."""

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sottovoce.deploy.masking.directory import IdentityDirectory
from sottovoce.deploy.masking.masking_client import MaskingClient
from sottovoce.deploy.masking.masking_server import MaskedSum, MaskingServer
from sottovoce.deploy.masking.masking_session import MaskingSession, SparseGraph

LARGEST = 2**38
PHASES = ("advertise", "share", "mask", "agree", "reveal")
_IDENTITIES = {f"client{number:03}": Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(99)}

DIRECTORY = IdentityDirectory({name: key.public_key().public_bytes_raw() for name, key in _IDENTITIES.items()})
verify = DIRECTORY.verify


def sign(name: str, statement: bytes) -> bytes:
    return _IDENTITIES[name].sign(statement)


def session_of(clients: int, length: int, *, step: int = 1, graph: SparseGraph | None = None) -> MaskingSession:
    return MaskingSession.of("run", step, list(_IDENTITIES)[:clients], length=length, largest=LARGEST, graph=graph)


def client_of(session: MaskingSession, name: str) -> MaskingClient:
    return MaskingClient(session, name, partial(sign, name), verify)


def updates_of(session: MaskingSession, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    extremes = np.array([LARGEST, -LARGEST, 0, 1, -1])
    return {
        name: np.where(rng.random(session.length) < 0.2, rng.choice(extremes, session.length), drawn)
        for name in session.names
        for drawn in [rng.integers(-LARGEST, LARGEST, session.length, endpoint=True)]
    }


class Federation:
    """One session, phase by phase."""

    def __init__(self, session: MaskingSession, updates: Mapping[str, np.ndarray]) -> None:
        self.session, self.updates = session, updates
        self.server = MaskingServer(session, verify)
        self.clients = {name: client_of(session, name) for name in session.names}
        self.answers: Mapping[str, bytes] = dict.fromkeys(session.names, b"")
        self.sent: dict[tuple[str, str], bytes] = {}  # by phase and name

    def messages(self, phase: str, absent: Iterable[str] = ()) -> dict[str, bytes]:
        """Return what the clients that are there send in a phase."""
        found = {}
        for name, answer in self.answers.items():
            if name not in absent:
                given = [answer] if phase != "advertise" else []
                given += [self.updates[name]] if phase == "mask" else []  # type: ignore[list-item]
                found[name] = getattr(self.clients[name], phase)(*given)
                self.sent[phase, name] = found[name]
        return found

    def phase(self, phase: str, absent: Iterable[str] = ()) -> None:
        """Go through one phase."""
        for name, message in self.messages(phase, absent).items():
            self.server.receive(name, message)
        self.answers = self.server.advance()

    def run(self, absent: Mapping[str, Iterable[str]] = {}) -> MaskedSum:
        """Go through all phases; who is absent in one does not come back."""
        for phase in PHASES:
            self.phase(phase, absent.get(phase, ()))
        return self.server.result()

    def until(self, phase: str) -> "Federation":
        """Go through all phases before this one."""
        for earlier in PHASES[: PHASES.index(phase)]:
            self.phase(earlier)
        return self
