"""Who has which identity key: the enrolled clients' Ed25519 keys, by which clients recognise each other's messages.

A client that takes this list from the server alone trusts the server not to make clients up. Its `digest` is for
comparing: as part of a session's `run` it makes sure that all clients of a session hold the same list, and printed at
enrolment it lets people compare it by other means.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from sottovoce.deploy.masking.masking_session import SecureAggregationError


@dataclass(frozen=True)
class IdentityDirectory:
    """The public identity key of every client, 32 bytes each."""

    keys: Mapping[str, bytes]
    _loaded: dict[str, Ed25519PublicKey] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what are no keys, and a key that two clients have."""
        if len(set(self.keys.values())) != len(self.keys):
            raise SecureAggregationError("Two clients have one identity key.")
        try:
            self._loaded.update({name: Ed25519PublicKey.from_public_bytes(key) for name, key in self.keys.items()})
        except ValueError:
            raise SecureAggregationError("An identity key is not 32 bytes of an Ed25519 key.") from None

    @property
    def digest(self) -> str:
        """A hash of all names and keys, in 32 characters."""
        lines = "".join(f"{name}\n{key.hex()}\n" for name, key in sorted(self.keys.items()))
        return hashlib.sha256(lines.encode()).hexdigest()[:32]

    def verify(self, name: str, statement: bytes, signature: bytes) -> bool:
        """Return whether this client signed a statement; nobody's signature is that of a stranger."""
        key = self._loaded.get(name)
        if key is None:
            return False
        try:
            key.verify(signature, statement)
        except InvalidSignature:
            return False
        return True
