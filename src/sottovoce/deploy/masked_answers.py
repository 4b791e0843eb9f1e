"""A client's part in masked steps: it answers the rounds of one session per step, and remembers that on disk.

    KEYS/masked.json   the last step of each run for which a masked update was made, by run and user; for its owner only

The difference of two sums over almost the same clients would be one client's update. So a step is noted before its
masked update is sent, and no other session, nor a plain task, of that step or an earlier one is answered, also after a
restart. A client that restarts within a session has dropped out of it.
"""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, ValidationError

from sottovoce.deploy.keys import public_bytes
from sottovoce.deploy.local_trainer import LocalTrainer
from sottovoce.deploy.masked_collection import session_run
from sottovoce.deploy.masking.directory import IdentityDirectory
from sottovoce.deploy.masking.masking_client import MaskingClient
from sottovoce.deploy.masking.masking_session import MaskingSession, SecureAggregationError
from sottovoce.deploy.messages import IDENTITIES, MESSAGE, PROTOCOL, SESSION, Envelope, RoundHeader, TaskHeader
from sottovoce.errors import DataError
from sottovoce.files import write_json
from sottovoce.reading import BadDocument, parse_json, read_bounded

MASKED_FILE = "masked.json"
_KEY_BYTES = 32


class _Masked(BaseModel):
    """The last masked step, by run and user."""

    model_config = ConfigDict(extra="forbid")

    steps: dict[str, dict[str, int]] = {}


class MaskedAnswers:
    """The sessions that the users of one client are in."""

    def __init__(self, trainer: LocalTrainer, key: Ed25519PrivateKey, folder: Path) -> None:
        """Answer with this key for the trainer's users; notes are in the folder of the keys."""
        self._trainer, self._key, self._path = trainer, key, folder / MASKED_FILE
        self._clients: dict[str, MaskingClient] = {}
        self._runs: dict[str, str] = {}  # of the session that each user is in

    def round(self, header: RoundHeader, envelope: Envelope) -> Envelope:
        """Return the answer to a round without a model; raise SecureAggregationError where there must be none."""
        if header.phase == "advertise":
            self._clients[header.user] = self._joined(header, envelope)
            self._runs[header.user] = header.run
            return _answer(header, self._clients[header.user].advertise())
        client, message = self._client_of(header.user), envelope.parts.get(MESSAGE, b"")
        if header.phase == "share":
            return _answer(header, client.share(message))
        if header.phase == "agree":
            return _answer(header, client.agree(message))
        if header.phase == "reveal":
            return _answer(header, client.reveal(message))
        raise SecureAggregationError("A masked update was asked for without a model.")

    def mask(self, task: TaskHeader, envelope: Envelope) -> Envelope:
        """Train, note the step, and return the masked update."""
        client = self._client_of(task.user)
        if (client.session.step, self._runs[task.user]) != (task.step, task.run):
            raise SecureAggregationError("The model is for another run or step than the masked sum.")
        self.require_new(task.run, task.step, task.user)
        message = client.mask(envelope.parts.get(MESSAGE, b""), self._trainer.integers(task, envelope))
        self._note(task)
        header = RoundHeader(protocol=PROTOCOL, run=task.run, step=task.step, user=task.user, phase="mask")
        return _answer(header, message)

    def require_new(self, run: str, step: int, user: str) -> None:
        """Raise SecureAggregationError where a masked update of this step, or a later one, was made before."""
        if step <= self._read().steps.get(run, {}).get(user, -1):
            raise SecureAggregationError(f"A masked update of {user} for step {step + 1} was made before.")

    def _joined(self, header: RoundHeader, envelope: Envelope) -> MaskingClient:
        """Return this client in a new session, which must be what the round says, among everybody's own keys."""
        session = MaskingSession.from_bytes(envelope.parts.get(SESSION, b""))
        keys = envelope.parts.get(IDENTITIES, b"")
        if len(keys) != _KEY_BYTES * len(session.names):
            raise SecureAggregationError("A masked sum needs one identity key for every client.")
        pieces = [keys[first : first + _KEY_BYTES] for first in range(0, len(keys), _KEY_BYTES)]
        directory = IdentityDirectory(dict(zip(session.names, pieces, strict=True)))
        if session.run != session_run(header.run, directory) or session.step != header.step:
            raise SecureAggregationError("An invitation to a masked sum is for another run, step or list of keys.")
        if session.degree != len(session.names) - 1:
            raise SecureAggregationError("A masked sum must be one in which all clients share masks.")
        if directory.keys.get(header.user) != public_bytes(self._key) or header.user not in self._trainer.users:
            raise SecureAggregationError("An invitation to a masked sum has another key for this client.")
        self.require_new(header.run, header.step, header.user)
        return MaskingClient(session, header.user, self._key.sign, directory.verify)

    def _client_of(self, user: str) -> MaskingClient:
        if user not in self._clients:
            raise SecureAggregationError("A round of a masked sum that this client has not joined.")
        return self._clients[user]

    def _note(self, task: TaskHeader) -> None:
        noted = self._read()
        noted.steps.setdefault(task.run, {})[task.user] = task.step
        try:
            write_json(self._path, noted.model_dump(mode="json"), private=True)
        except OSError as error:
            raise SecureAggregationError(
                f"{self._path} cannot be written ({error.strerror}), so nothing is sent. Free some space."
            ) from None

    def _read(self) -> _Masked:
        if not self._path.exists():
            return _Masked()
        try:
            return _Masked.model_validate(parse_json(read_bounded(self._path)))
        except (BadDocument, ValidationError):
            raise DataError(f"{self._path} is damaged. Restore it from a copy, or enrol again with new keys.") from None


def _answer(header: RoundHeader, message: bytes) -> Envelope:
    return header.sealed({MESSAGE: message})
