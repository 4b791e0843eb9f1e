"""How a client becomes known to its server: it uses its tokens once, and asks whether both speak one protocol.

KEYS/enrolled.json   the users whom this client answers for, as the server has named them; for its owner only
"""

import os
import ssl
from collections.abc import Sequence
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, ValidationError

from sottovoce.deploy.enrolment import EnrolmentRequest
from sottovoce.deploy.keys import connection_text, public_text
from sottovoce.deploy.link import LinkDownError, RefusedConnectionError, unreachable
from sottovoce.deploy.messages import PROTOCOL
from sottovoce.deploy.public_paths import ENROL, HELLO
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import write_json
from sottovoce.reading import BadDocument, parse_json, read_bounded
from sottovoce.version import VERSION

ENROLLED_FILE = "enrolled.json"
_SECONDS = 30.0  # for one call


class _Note(BaseModel):
    """What a client remembers of its enrolment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    users: tuple[str, ...]


def read_tokens(path: Path) -> list[str]:
    """Return the tokens in a file: the last word of every line, which may begin with the user's name."""
    try:
        lines = [line.split() for line in read_bounded(path).decode().splitlines()]
    except (OSError, UnicodeDecodeError):
        raise DataError(f"{path} cannot be read. Give a file with one token per line.") from None
    tokens = [words[-1] for words in lines if words]
    if not tokens:
        raise DataError(f"{path} holds no token. Give a file with one token per line.")
    return tokens


def is_enrolled(folder: Path) -> bool:
    """Return whether a folder of keys has been enrolled."""
    return (folder / ENROLLED_FILE).exists()


def enrolled_users(folder: Path) -> list[str]:
    """Return the users of a client that is enrolled."""
    if not is_enrolled(folder):
        raise ConfigError(f"{folder} is not enrolled. Give the token that the operator issued, with --token-file.")
    path = folder / ENROLLED_FILE
    try:
        return list(_Note.model_validate(parse_json(read_bounded(path))).users)
    except (BadDocument, ValidationError):
        raise DataError(f"{path} is damaged. Remove it, and enrol again with a new token.") from None


class ServerCalls:
    """The calls to a server's own interface."""

    def __init__(self, server: str, ca: Path, protocol: int = PROTOCOL) -> None:
        """Talk to HOST:PORT, and trust this authority only."""
        self._server, self._protocol = server, protocol
        try:
            self._context = ssl.create_default_context(cafile=os.fspath(ca))
        except (OSError, ssl.SSLError):
            raise ConfigError(f"{ca} is no certificate. Use the server's ca.crt.") from None

    def greet(self) -> None:
        """Ask whether the server speaks this client's protocol; raise RefusedConnectionError where it does not."""
        self._post(HELLO, {"protocol": self._protocol, "client": VERSION})

    def enrol(
        self, folder: Path, tokens: Sequence[str], node: ec.EllipticCurvePrivateKey, signing: Ed25519PrivateKey
    ) -> list[str]:
        """Use up tokens, and note in the folder of the keys whom they stand for.

        Where the answer was lost, or could not be written, the same call with the same keys gets it again.
        """
        request = EnrolmentRequest(
            protocol=self._protocol,
            client=VERSION,
            tokens=tuple(tokens),
            node_key=connection_text(node),
            signing_key=public_text(signing),
        )
        try:
            note = _Note.model_validate(self._post(ENROL, request.model_dump(mode="json")))
        except ValidationError:
            raise RefusedConnectionError(f"{self._server} is no server of this package.") from None
        write_json(folder / ENROLLED_FILE, note.model_dump(mode="json"), private=True)
        return list(note.users)

    def _post(self, path: str, document: dict[str, object]) -> dict[str, object]:
        """Call the server; raise an error of ours where it refuses or is away."""
        try:
            with httpx.Client(verify=self._context, timeout=_SECONDS) as client:
                answer = client.post(f"https://{self._server}{path}", json=document)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise unreachable(self._server, error) from None
        try:
            content = answer.json()
        except ValueError:
            content = {}
        if answer.status_code >= 500:
            raise LinkDownError(f"{self._server} is not available now.")
        if answer.status_code != 200 or not isinstance(content, dict):
            reason = content.get("error") if isinstance(content, dict) else None
            raise RefusedConnectionError(str(reason or f"{self._server} is no server of this package.")[:500])
        found: dict[str, object] = content
        return found
