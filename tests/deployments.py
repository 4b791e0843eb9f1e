"""Deployments on this machine for tests: a server's folder, users with stores and keys, and clients that serve them."""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

from sottovoce.config import Layer, parse_setting, resolve
from sottovoce.data.leaving_out import leave_out
from sottovoce.data.selection import Selection
from sottovoce.deploy.client_process import ClientOptions, run_client
from sottovoce.deploy.contributions import told_by
from sottovoce.deploy.enrolment import Enrolment
from sottovoce.deploy.keys import CA_CERT, make_certificates
from sottovoce.deploy.server_process import ServerOptions, run_server
from sottovoce.distributed import Group
from sottovoce.federated.federated_training import train_federated
from sottovoce.files import sha256_of
from sottovoce.runs.display import NoDisplay
from sottovoce.runs.folder import LAST

USERS = {"ann": 2, "bob": 3, "cat": 1, "dan": 2}
SETTINGS = (
    *("participation.population=4", "participation.cohort_size=4", "federated.local.steps=2", "batching.seconds=2"),
    *("federated.central_steps=3", "federated.checkpoint_every=1", "randomness.source=seeded"),
    *("model.blocks=1", "model.width=16", "model.heads=2", "model.mlp_width=32", "privacy.clipping=adaptive"),
)


def settings(*more):
    return resolve("quick", *map(parse_setting, (*SETTINGS, *more)))


def silent(line):
    """Say nothing."""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Deployment:
    """A server's folder, and a store and a folder of keys for each of some users."""

    def __init__(self, folder, store, users=USERS):
        self.folder, self.store, self.port = folder, store, free_port()
        self.server, self.run = folder / "server", folder / "run"
        make_certificates(self.server, ["localhost", "127.0.0.1"])
        self.tokens = Enrolment(self.server).issue(list(users))
        for user in users:
            (folder / user).mkdir()
            leave_out(store, [other for other in users if other != user], folder / user / "store")
            (folder / user / "token").write_text(self.tokens[user])

    def server_words(self, *more):
        """Return the words that start this server as a process."""
        words = ["sottovoce", "deploy", "server", "quick", "--folder", self.server, "--run", self.run]
        words += ["--listen", f"127.0.0.1:{self.port}", "--settle", "120", *more]
        return [*words, *(word for setting in SETTINGS for word in ("--set", setting))]

    def client_words(self, user, port=None):
        """Return the words that start a user's client as a process; another port is that of a relay."""
        own = self.folder / user
        words = ["sottovoce", "deploy", "client", "--store", own / "store", "--ca", self.server / CA_CERT]
        words += ["--server", f"127.0.0.1:{port or self.port}"]
        return [*words, "--keys", own / "keys", "--token-file", own / "token", "--poll", "0.2"]

    def client(self, user, tamper=None):
        own, place = self.folder / user, f"127.0.0.1:{self.port}"
        tokens = () if (own / "enrolled.json").exists() else (self.tokens[user],)
        options = ClientOptions(own / "store", place, self.server / CA_CERT, own, tokens, tamper=tamper)
        options.poll_seconds, options.max_offline_seconds = 0.1, 60
        return options

    def site(self):
        tokens = tuple(Enrolment(self.server).issue(list(USERS)).values())
        options = self.client("ann")
        options.store, options.folder, options.tokens, options.site = (
            self.store.path,
            self.folder / "site",
            tokens,
            True,
        )
        return options

    def serve(self, *more, **options):
        given = {"host": "127.0.0.1", "port": self.port, "deadline_seconds": 60, "settle_seconds": 60} | options
        return run_server(settings(*more), ServerOptions(self.server, self.run, **given), NoDisplay, silent)

    def simulated_sha256(self, *more):
        told = settings(*more).over(Layer({"data": {"train": Selection(store=self.store.path)}}, "a test"))
        train_federated(Group(), told, self.folder / "simulated", NoDisplay, make_aggregator=told_by(self.run))
        return sha256_of(self.folder / "simulated" / LAST / "model.safetensors")

    @property
    def sha256(self):
        return sha256_of(self.run / LAST / "model.safetensors")


@contextmanager
def clients(*options):
    """Run clients in threads, which end with the block."""
    stopping = threading.Event()

    def run(mine):
        with suppress(SystemExit):  # a client that a test lets leave
            run_client(mine, silent, stopping)

    threads = [threading.Thread(target=run, args=(mine,)) for mine in options]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join(60)


@contextmanager
def processes():
    """Give a dictionary for processes, which are killed when the block ends."""
    started = {}
    try:
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def start(words, log):
    """Start a module of this Python with these words; its output goes to a log."""
    with log.open("ab") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", *map(str, words)]
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)


def wait_for(true, log, seconds=200):
    """Wait until something is true; where that takes too long, the log says why."""
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up, log.read_text()
        time.sleep(0.05)


class Wire:
    """A TCP relay to a port of this machine that can be cut, as a cable can."""

    def __init__(self, port):
        self._to, self._pairs, self._lock = port, [], threading.Lock()
        self._plan = None  # when to cut it: the direction, after how many bytes, and for how long
        self.cuts, self._ended = 0, threading.Event()
        self._open()

    def _open(self):
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind(("127.0.0.1", getattr(self, "port", 0)))
        self.port = self._listening.getsockname()[1]
        self._listening.listen()
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def cut_after(self, direction, size, seconds):
        """Cut it in the middle of the next `size` bytes that go "up" or "down"; restore it after a while."""
        self._plan = [direction, size, seconds]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._ended.set()
        self.close()

    def close(self):
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts
        self._listening.close()
        with self._lock:
            for side in self._pairs:
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
                side.close()
            self._pairs.clear()

    def _accept(self, listening):
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._to))
                except OSError:  # the server is not there: nor is the relay
                    client.close()
                    continue
                with self._lock:
                    self._pairs += [client, server]
                for source, target, direction in ((client, server, "up"), (server, client, "down")):
                    threading.Thread(target=self._relay, args=(source, target, direction), daemon=True).start()

    def _relay(self, source, target, direction):
        with suppress(OSError):
            while data := source.recv(16384):
                if self._is_due(direction, len(data)):
                    self._cut()
                    return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def _is_due(self, direction, size):
        with self._lock:
            if self._plan is None or self._plan[0] != direction:
                return False
            self._plan[1] -= size
            return self._plan[1] < 0

    def _cut(self):
        seconds, self._plan = self._plan[2], None
        self.cuts += 1
        self.close()
        if not self._ended.wait(seconds):
            self._open()
