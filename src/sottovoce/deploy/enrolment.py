"""Enrolment: one-time tokens, and who has used them with which keys.

The operator issues a token for a user and hands it over by a channel of their own. The client sends it once, with its
public keys. From then on the user is known by these keys; another token for the same user replaces them.

    SERVER/enrolment.json   tokens as SHA-256 only, and every enrolled user with two public keys; for its owner only

Several processes may change the file: the server, and commands that issue and revoke. Each change is read, made and
written under a lock.
"""

import base64
import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sottovoce.deploy.keys import verifying_key
from sottovoce.errors import DataError, SottoError
from sottovoce.files import make_folder, taken, write_json
from sottovoce.reading import BadDocument, parse_json, read_bounded

ENROLMENT_FILE = "enrolment.json"
_LOCK = ".enrolment.lock"
_PATIENCE_SECONDS = 20.0
_TOKEN_BYTES = 32
LONGEST_NAME = 200


class EnrolledUser(BaseModel):
    """One user, and the keys of the client that holds the user's audio. A site's users share the keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node_key: str  # of the connection: what Flower makes of the public key, in base64
    signing_key: str  # of updates: 32 bytes in base64
    enrolled_at: str
    token: str = ""  # the SHA-256 of the token that was used: its client may ask again whom it stands for

    @property
    def node_bytes(self) -> bytes:
        """The key of the connection."""
        return base64.b64decode(self.node_key)

    @property
    def signing_bytes(self) -> bytes:
        """The key of updates."""
        return base64.b64decode(self.signing_key)

    def has_keys_of(self, other: "EnrolledUser") -> bool:
        """Return whether both have the same keys."""
        return (self.node_key, self.signing_key) == (other.node_key, other.signing_key)


class EnrolmentRequest(BaseModel):
    """What a client sends to enrol: tokens, one for each of its users, and its public keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: int
    client: str = Field(max_length=100)
    tokens: tuple[str, ...] = Field(min_length=1, max_length=100_000)
    node_key: str = Field(max_length=4096)
    signing_key: str = Field(max_length=256)


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tokens: dict[str, str] = {}  # the SHA-256 of a token that is not used yet: its user
    users: dict[str, EnrolledUser] = {}


class RefusedEnrolmentError(SottoError):
    """A token that is unknown or used, or keys that are none."""


class Enrolment:
    """The file of one deployment."""

    def __init__(self, folder: Path) -> None:
        """Use the file in a server's folder; it need not exist."""
        self._folder, self._path = folder, folder / ENROLMENT_FILE

    def issue(self, users: Sequence[str]) -> dict[str, str]:
        """Return a new token for every user, by name; only its hash is kept. An older unused token stops working."""
        for user in users:
            require_name(user)
        tokens = {user: secrets.token_urlsafe(_TOKEN_BYTES) for user in users}
        with self._changing() as document:
            document.tokens = {known: user for known, user in document.tokens.items() if user not in tokens}
            document.tokens |= {_hashed(token): user for user, token in tokens.items()}
        return tokens

    def revoke(self, user: str) -> None:
        """Forget a user's keys and unused tokens. In a run that has begun the user is not asked in later steps."""
        with self._changing() as document:
            waiting = [known for known, name in document.tokens.items() if name == user]
            if document.users.pop(user, None) is None and not waiting:
                raise DataError(f"There is no user {user!r} in {self._path}. See `sotto deploy status`.")
            for known in waiting:
                del document.tokens[known]

    def enrol(self, request: EnrolmentRequest) -> list[str]:
        """Use up tokens; return the users they stand for, who now have these keys. All of them, or none.

        The same tokens with the same keys get the same answer again: the first one may have been lost on its way.
        """
        try:
            user_keys = _record(request)
        except ValueError:
            raise RefusedEnrolmentError("The keys cannot be read.") from None
        hashes = dict.fromkeys(map(_hashed, request.tokens))
        with self._changing() as document:
            used = {record.token: user for user, record in document.users.items() if record.has_keys_of(user_keys)}
            users = {hashed: document.tokens.get(hashed) or used.get(hashed) for hashed in hashes}
            names = list(dict.fromkeys(user for user in users.values() if user is not None))
            if None in users.values():
                raise RefusedEnrolmentError("The token is unknown, or was used before. Ask the operator for a new one.")
            _require_own_keys(document, user_keys, names)
            for hashed in users.keys() & document.tokens.keys():
                document.users[document.tokens.pop(hashed)] = user_keys.model_copy(update={"token": hashed})
        return names

    def admit(self, user: str, keys: Path) -> None:
        """Enrol a user with the public keys in a client's public.json, without a token."""
        require_name(user)
        try:
            document = parse_json(read_bounded(keys))
            request = EnrolmentRequest.model_validate({"protocol": 0, "client": "", "tokens": [user], **document})
            record = _record(request)
        except (OSError, BadDocument, ValidationError, TypeError, ValueError):
            raise DataError(f"{keys} holds no public keys. Give the public.json of a client's keys.") from None
        with self._changing() as changed:
            changed.users[user] = record

    @property
    def users(self) -> dict[str, EnrolledUser]:
        """Everybody who is enrolled, by name, in the order of names."""
        return dict(sorted(self._read().users.items()))

    @property
    def waiting(self) -> list[str]:
        """The users whose token has not been used yet."""
        return sorted(self._read().tokens.values())

    def _read(self) -> _Document:
        if not self._path.exists():
            return _Document()
        try:
            return _Document.model_validate(parse_json(read_bounded(self._path)))
        except (BadDocument, ValidationError):
            raise DataError(f"{self._path} is damaged. Restore it from a copy.") from None

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_Document]:
        """Give the document to change, alone; it is written when the block ends without an error."""
        make_folder(self._folder)
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while True:
            with taken(self._folder / _LOCK) as free:
                if free:
                    document = self._read()
                    yield document
                    write_json(self._path, document.model_dump(mode="json"), private=True)
                    return
            if time.monotonic() > give_up:
                raise DataError(f"{self._path} is held by another process. Try again.")
            time.sleep(0.05)


def require_name(user: str) -> None:
    """Raise DataError where a name could not be shown or written in one line."""
    if not user or len(user) > LONGEST_NAME or not user.isprintable() or user != user.strip():
        raise DataError(f"{user[:LONGEST_NAME]!r} is no name for a user. Use letters, digits and signs, in one line.")


def _record(request: EnrolmentRequest) -> EnrolledUser:
    """Return the keys of a request; raise ValueError where they are none."""
    now = time.strftime("%FT%TZ", time.gmtime())
    record = EnrolledUser(node_key=request.node_key, signing_key=request.signing_key, enrolled_at=now)
    verifying_key(record.signing_bytes)
    _ = record.node_bytes
    return record


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _require_own_keys(document: _Document, keys: EnrolledUser, names: Sequence[str]) -> None:
    """Raise where one of two keys is that of another client: public keys are no secret, and a client has both."""
    for user, record in document.users.items():
        same = record.node_bytes == keys.node_bytes, record.signing_bytes == keys.signing_bytes
        if user not in names and any(same) and not all(same):
            raise RefusedEnrolmentError("A key belongs to another client. Remove this client's keys, and enrol again.")
