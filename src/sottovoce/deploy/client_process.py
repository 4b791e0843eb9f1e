"""The client of a deployment: it enrols once, then answers tasks until it is stopped.

It holds the audio of one user. A site that holds several says so (`site`), has a token for each, and still sends one
update per user. The client writes nothing but its keys and the note of its enrolment, and prints one line per event,
without figures about anybody's audio. When the server is away it waits and tries again.
"""

import base64
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, ValidationError

from sottovoce.data.store import Store
from sottovoce.deploy.enrolment import EnrolmentRequest
from sottovoce.deploy.flower_link import FlowerConnection, node_key_text
from sottovoce.deploy.keys import client_keys, public_bytes
from sottovoce.deploy.link import LinkDownError, RefusedConnectionError, UnknownKeyError, unreachable
from sottovoce.deploy.local_trainer import LocalTrainer
from sottovoce.deploy.masked_answers import MaskedAnswers
from sottovoce.deploy.masking.masking_session import SecureAggregationError
from sottovoce.deploy.messages import PROTOCOL, Envelope, RoundHeader, TaskHeader, read_round
from sottovoce.deploy.public_socket import ENROL, HELLO
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import write_json
from sottovoce.reading import BadDocument, parse_json, read_bounded
from sottovoce.version import VERSION

ENROLLED_FILE = "enrolled.json"
GRACE_SECONDS = 60.0  # an earlier process with the same key is forgotten within this time
_LONGEST_WAIT = 30.0

Say = Callable[[str], None]
Tamper = Callable[[TaskHeader, Envelope, Ed25519PrivateKey], Envelope]


class _Note(BaseModel):
    """What a client remembers of its enrolment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    users: tuple[str, ...]


@dataclass
class ClientOptions:
    """Everything that one client process needs."""

    store: Path
    server: str  # HOST:PORT
    ca: Path
    folder: Path  # of its keys
    tokens: Sequence[str] = ()  # to enrol; none where it has
    site: bool = False
    poll_seconds: float = 1.0
    max_offline_seconds: float | None = None  # give up when the server is away for so long; None: never
    protocol: int = PROTOCOL
    only_masked: bool = False  # refuse to send an update without masks
    before_round: Callable[[str], None] | None = None  # for tests of the server: where a client drops out
    tamper: Tamper | None = None  # for tests of the server: what a hostile client would do to its updates


def options_of(words: Mapping[str, str]) -> ClientOptions:
    """Return the options of a client from words as on the command line, such as --store."""
    token_file = words.get("--token-file")
    return ClientOptions(
        store=Path(words["--store"]),
        server=words["--server"],
        ca=Path(words["--ca"]),
        folder=Path(words["--keys"]),
        tokens=() if token_file is None else read_tokens(Path(token_file)),
        poll_seconds=float(words.get("--poll", "1")),
    )


def read_tokens(path: Path) -> list[str]:
    """Return the tokens in a file, one per line."""
    try:
        return [line.strip() for line in read_bounded(path).decode().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError):
        raise DataError(f"{path} cannot be read. Give a file with one token per line.") from None


def run_client(options: ClientOptions, say: Say, stopping: threading.Event | None = None) -> None:
    """Answer tasks until SIGTERM, Ctrl-C or `stopping`; an error that waiting cannot mend is raised.

    Whoever gives `stopping`, as for many clients in threads of one process, keeps the signals.
    """
    torch.set_num_threads(1)
    if stopping is None:
        stopping = _stopped_by_signals()
    store = Store.open(options.store)
    node, signing = client_keys(options.folder)
    speakers: list[str] = store.speaker_names().to_pylist()
    if len(speakers) > 1 and not options.site:
        raise DataError(
            f"{options.store} holds {len(speakers)} speakers, and a client holds one user. Give a store of one speaker "
            "or, where one client answers for several users, --site."
        )
    last_seen, wait, refused = time.monotonic(), 1.0, None
    trainer: LocalTrainer | None = None
    while not stopping.is_set():
        try:
            if trainer is None:
                users = _users(options, node, signing, say)
                if len(users) > 1 and not options.site:
                    raise DataError(f"{options.folder} is enrolled for {len(users)} users. Give --site.")
                trainer = LocalTrainer(store, speakers_of(users, speakers), signing)
                masks = MaskedAnswers(trainer, signing, options.folder)
            greet(options)
            with closing(FlowerConnection(options.server, options.ca, node)) as connection:
                say(f"Connected to {options.server}.")
                wait, refused = 1.0, None
                while not stopping.is_set():
                    _answer_one(connection, trainer, masks, options, signing, stopping, say)
                    last_seen = time.monotonic()
        except UnknownKeyError:
            refused = refused or time.monotonic()
            if time.monotonic() - refused > GRACE_SECONDS:
                raise
            stopping.wait(2.0)
        except LinkDownError as error:
            limit = options.max_offline_seconds
            if limit is not None and time.monotonic() - last_seen > limit:
                raise
            say(f"{error} Trying again in {wait:.0f} s.")
            stopping.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
    say("Stopped.")


def _stopped_by_signals() -> threading.Event:
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def _answer_one(
    connection: FlowerConnection,
    trainer: LocalTrainer,
    masks: MaskedAnswers,
    options: ClientOptions,
    signing: Ed25519PrivateKey,
    stopping: threading.Event,
    say: Say,
) -> None:
    """Answer the next task, or wait a moment where there is none."""
    incoming = connection.receive()
    if incoming is None:
        stopping.wait(options.poll_seconds)
        return
    try:
        task, update = _answer_to(incoming.envelope, trainer, masks, options, signing)
    except SecureAggregationError as error:  # the step goes on without this client, and the next one may be right
        connection.reply(incoming, Envelope(b"{}"))
        say(f"Not answered: {error}")
        return
    size = sum(map(len, update.parts.values()))
    sent = connection.reply(incoming, update)
    if not sent:
        say(f"Step {task.step + 1}: too late.")
    elif isinstance(task, TaskHeader):  # the other rounds of a masked sum are small
        say(f"Step {task.step + 1}: sent the {'masked ' * task.masked}update of {task.user}, {size:,} bytes.")


def _answer_to(
    envelope: Envelope,
    trainer: LocalTrainer,
    masks: MaskedAnswers,
    options: ClientOptions,
    signing: Ed25519PrivateKey,
) -> tuple[TaskHeader | RoundHeader, Envelope]:
    """Return what a message was, and the answer to it."""
    header = read_round(envelope)
    if header is not None:
        if options.before_round is not None:
            options.before_round(header.phase)
        return header, masks.round(header, envelope)
    task = trainer.read(envelope)
    if task.masked:
        if options.before_round is not None:
            options.before_round("mask")
        return task, masks.mask(task, envelope)
    if options.only_masked:
        raise SecureAggregationError("The server asks for an update without masks, which --only-masked forbids.")
    masks.require_new(task.run, task.step, task.user)
    task, update = trainer.answer(envelope)
    return task, update if options.tamper is None else options.tamper(task, update, signing)


def greet(options: ClientOptions) -> None:
    """Ask whether the server speaks this client's protocol; raise RefusedConnectionError where it does not."""
    _post(options, HELLO, {"protocol": options.protocol, "client": VERSION})


def speakers_of(users: Sequence[str], speakers: Sequence[str]) -> dict[str, str]:
    """Return the speaker of every user: a store's only one for an only user, or else the one of the user's name."""
    if len(users) == len(speakers) == 1:
        return {users[0]: speakers[0]}
    missing = [user for user in users if user not in speakers]
    if missing:
        raise DataError(f"The store has no speaker {missing[0]!r}. A site's users are named like its speakers.")
    return {user: user for user in users}


def _users(options: ClientOptions, node: ec.EllipticCurvePrivateKey, signing: Ed25519PrivateKey, say: Say) -> list[str]:
    """Return the users of this client, who are enrolled now or were before."""
    path = options.folder / ENROLLED_FILE
    if options.tokens:
        request = EnrolmentRequest(
            protocol=options.protocol,
            client=VERSION,
            tokens=tuple(options.tokens),
            node_key=node_key_text(node),
            signing_key=_text(public_bytes(signing)),
        )
        found = _post(options, ENROL, request.model_dump(mode="json"))
        write_json(path, {"users": found["users"]}, private=True)
        options.tokens = ()  # they work once
        say(f"Enrolled: {', '.join(found['users'])}.")
    if not path.exists():
        raise ConfigError("This client is not enrolled. Give the token that the operator issued, with --token.")
    try:
        return list(_Note.model_validate(parse_json(read_bounded(path))).users)
    except (BadDocument, ValidationError):
        raise DataError(f"{path} is damaged. Remove it, and enrol again with a new token.") from None


def _post(options: ClientOptions, path: str, document: dict[str, object]) -> dict[str, list[str]]:
    """Call the server's own interface; raise an error of ours where it refuses or is away."""
    try:
        context = ssl.create_default_context(cafile=os.fspath(options.ca))
    except (OSError, ssl.SSLError):
        raise ConfigError(f"{options.ca} is no certificate. Use the server's ca.crt.") from None
    try:
        with httpx.Client(verify=context, timeout=30.0, trust_env=False) as client:
            answer = client.post(f"https://{options.server}{path}", json=document)
    except httpx.TransportError as error:
        raise unreachable(options.server, error) from None
    try:
        content = answer.json()
    except ValueError:
        content = {}
    if answer.status_code >= 500:
        raise LinkDownError(f"{options.server} is not available now.")
    if answer.status_code != 200:
        raise RefusedConnectionError(str(content.get("error", f"{options.server} is no server of this package."))[:500])
    found: dict[str, list[str]] = content
    return found


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
