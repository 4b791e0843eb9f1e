"""The client of a deployment: it enrols once, then answers tasks until it is stopped.

It holds the audio of one user. A site that holds several says so (`site`), has a token for each, and still sends one
update per user. The client writes nothing but its keys and the notes beside them, and prints one line per event,
without figures about anybody's audio. When the server or the link is away it waits and tries again: an update that was
ready, or half sent, then arrives as long as its step lasts.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from sottovoce.data.store import Store
from sottovoce.deploy.client_enrolment import ServerCalls, enrolled_users, read_tokens
from sottovoce.deploy.flower_connection import FlowerConnection
from sottovoce.deploy.keys import client_keys
from sottovoce.deploy.link import Connection, ConnectionLostError, LinkDownError, UnknownKeyError
from sottovoce.deploy.local_trainer import LocalTrainer
from sottovoce.deploy.messages import PROTOCOL
from sottovoce.deploy.task_answers import Tamper, TaskAnswer, TaskAnswers
from sottovoce.errors import DataError

GRACE_SECONDS = 60.0  # an earlier process with the same key is forgotten within this time
_LONGEST_WAIT = 30.0
_LEAVING = "Leaving after this update. Ctrl-C again stops at once.\n"

Say = Callable[[str], None]


@dataclass
class ClientOptions:
    """Everything that one client process needs."""

    store: Path
    server: str  # HOST:PORT
    ca: Path
    folder: Path  # of its keys
    tokens: Sequence[str] = ()  # to enrol; none where it has
    site: bool = False
    poll_seconds: float = 4.0  # between questions for work, at most: below the 5 s after which httpx ends a connection
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
        poll_seconds=float(words.get("--poll", "4")),
    )


def run_client(options: ClientOptions, say: Say, stopping: threading.Event | None = None) -> None:
    """Answer tasks until SIGTERM, Ctrl-C or `stopping`; an error that waiting cannot mend is raised.

    Whoever gives `stopping`, as for many clients in threads of one process, keeps the signals.
    """
    torch.set_num_threads(1)
    if stopping is None:
        with _stopped_by_signals() as asked:
            _ClientLoop(options, say, asked).run()
    else:
        _ClientLoop(options, say, stopping).run()


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that SIGTERM or Ctrl-C sets; the second signal acts as it did before."""
    stopping, before = threading.Event(), dict[int, Any]()

    def stop(number: int, _frame: FrameType | None) -> None:
        stopping.set()
        signal.signal(number, before[number])
        if number == signal.SIGINT:
            sys.stderr.write(_LEAVING)

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, stop)
    try:
        yield stopping
    finally:
        for listened, handler in before.items():
            signal.signal(listened, handler)


def speakers_of(users: Sequence[str], speakers: Sequence[str]) -> dict[str, str]:
    """Return the speaker of every user: a store's only one for an only user, or else the one of the user's name."""
    if len(users) == len(speakers) == 1:
        return {users[0]: speakers[0]}
    missing = [user for user in users if user not in speakers]
    if missing:
        raise DataError(f"The store has no speaker {missing[0]!r}. A site's users are named like its speakers.")
    return {user: user for user in users}


class _ClientLoop:
    """One client, from its start to its end."""

    def __init__(self, options: ClientOptions, say: Say, stopping: threading.Event) -> None:
        """Open the store and the keys."""
        self._options, self._say, self._stopping = options, say, stopping
        self._store = Store.open(options.store)
        self._speakers: list[str] = self._store.speaker_names().to_pylist()
        if len(self._speakers) > 1 and not options.site:
            raise DataError(
                f"{options.store} holds {len(self._speakers)} speakers, and a client holds one user. Give a store of "
                "one speaker or, where one client answers for several users, --site."
            )
        self._calls = ServerCalls(options.server, options.ca, options.protocol)
        self._node, self._signing = client_keys(options.folder)
        self._answers: TaskAnswers | None = None  # once the client is enrolled
        self._last_seen, self._wait = time.monotonic(), 1.0
        self._refused_since: float | None = None
        self._idle = options.poll_seconds  # until the next question for work

    def run(self) -> None:
        """Connect, answer, and connect again, until asked to stop."""
        while not self._stopping.is_set():
            try:
                with closing(self._connected()) as connection:
                    self._say(f"Connected to {self._options.server}.")
                    self._answer_all(connection)
            except UnknownKeyError:
                self._refused_since = self._refused_since or time.monotonic()
                if time.monotonic() - self._refused_since > GRACE_SECONDS:
                    raise
                self._stopping.wait(2.0)
            except LinkDownError as error:
                self._wait_after(error)
        self._say("Stopped.")

    def _connected(self) -> FlowerConnection:
        """Return a connection; the first one enrols the client."""
        options = self._options
        if self._answers is None:
            if options.tokens:
                users = self._calls.enrol(options.folder, options.tokens, self._node, self._signing)
                options.tokens = ()  # they work once
                self._say(f"Enrolled: {', '.join(users)}.")
            users = enrolled_users(options.folder)
            if len(users) > 1 and not options.site:
                raise DataError(f"{options.folder} is enrolled for {len(users)} users. Give --site.")
            trainer = LocalTrainer(self._store, speakers_of(users, self._speakers), self._signing)
            self._answers = TaskAnswers(
                trainer, self._signing, options.folder, options.only_masked, options.before_round, options.tamper
            )
        self._calls.greet()
        return FlowerConnection(options.server, options.ca, self._node)

    def _answer_all(self, connection: Connection) -> None:
        """Answer tasks until asked to stop, or until the server knows the connection no more."""
        self._reached()
        unsent: TaskAnswer | None = None
        while not self._stopping.is_set():
            try:
                if unsent is None:
                    unsent = self._next(connection)
                if unsent is not None:
                    sent = connection.reply(unsent.incoming, unsent.answer)
                    if line := unsent.told(sent=sent):
                        self._say(line)
                    unsent = None
            except ConnectionLostError:
                raise
            except LinkDownError as error:
                self._wait_after(error)
            else:
                if self._wait > 1.0:
                    self._say(f"{self._options.server} is back.")
                self._reached()

    def _next(self, connection: Connection) -> TaskAnswer | None:
        """Return the answer to the next task; wait a moment where there is none."""
        incoming = connection.receive()
        if incoming is None or self._answers is None:
            self._stopping.wait(self._idle)
            self._idle = min(2 * self._idle, self._options.poll_seconds)
            return None
        self._idle = self._options.poll_seconds / 8  # the next round of a masked sum may come soon
        return self._answers.to(incoming)

    def _reached(self) -> None:
        self._last_seen, self._wait, self._refused_since = time.monotonic(), 1.0, None

    def _wait_after(self, error: LinkDownError) -> None:
        """Wait before the next attempt; raise the error where the server has been away for too long."""
        limit = self._options.max_offline_seconds
        if limit is not None and time.monotonic() - self._last_seen > limit:
            raise error
        self._say(f"{error} Trying again in {self._wait:.0f} s.")
        self._stopping.wait(self._wait)
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
