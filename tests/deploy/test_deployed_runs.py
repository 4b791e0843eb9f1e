"""Whole runs on real clients over TLS: equal to the simulation to the bit, whatever clients and the server suffer.

In the quick tests a client is a thread with keys, a store and a connection of its own; in the slow ones, a process.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from sottovoce.config import Layer, parse_setting, resolve
from sottovoce.data.leaving_out import leave_out
from sottovoce.data.selection import Selection
from sottovoce.deploy.client_process import ClientOptions, run_client
from sottovoce.deploy.contributions import CONTRIBUTIONS_FILE, read_contributions, told_by
from sottovoce.deploy.enrolment import Enrolment
from sottovoce.deploy.keys import CA_CERT, make_certificates
from sottovoce.deploy.lying import LIES
from sottovoce.deploy.masked_answers import MASKED_FILE
from sottovoce.deploy.server_process import ServerOptions, run_server
from sottovoce.distributed import Group
from sottovoce.errors import DataError, PrivacyError
from sottovoce.federated.federated_training import train_federated
from sottovoce.files import sha256_of
from sottovoce.privacy.ledger import LEDGER_FILE, read_ledger
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


@pytest.fixture
def deployment(make_store, tmp_path):
    folder = tmp_path / "deployment"
    folder.mkdir()
    return Deployment(folder, make_store(USERS))


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


def test_a_deployed_run_equals_its_simulation_and_a_liar_adds_nothing(deployment):
    honest = [deployment.client(user) for user in ("ann", "bob", "dan")]
    with clients(*honest, deployment.client("cat", LIES["too-long"][0])):
        deployment.serve()
    steps = read_contributions(deployment.run)
    assert [steps[step].contributed for step in range(3)] == [("ann", "bob", "dan")] * 3
    assert [dict(steps[step].refused) for step in range(3)] == [{"cat": "too long"}] * 3
    assert deployment.sha256 == deployment.simulated_sha256()
    assert (deployment.run / CONTRIBUTIONS_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_masked_run_equals_its_simulation_with_a_dropout_before_and_one_after_the_masked_update(make_store, tmp_path):
    users = dict.fromkeys(("ann", "bob", "cat", "dan", "eve", "fay", "gus"), 1)
    deployment = Deployment(tmp_path, make_store(users), users)
    options = {user: deployment.client(user) for user in users}
    options["bob"].before_round, options["cat"].before_round = leaves_at("mask"), leaves_at("agree")
    options["ann"].only_masked = True
    more = ("participation.population=7", "participation.cohort_size=7", "federated.central_steps=2")
    with clients(*options.values()):
        deployment.serve(*more, secure_aggregation=True, deadline_seconds=150)
    steps = read_contributions(deployment.run)
    assert steps[0].contributed == ("ann", "cat", "dan", "eve", "fay", "gus")
    assert steps[1].contributed == ("ann", "dan", "eve", "fay", "gus")
    assert steps[1].silent == ("bob", "cat")
    assert deployment.sha256 == deployment.simulated_sha256(*more)
    assert (deployment.folder / "ann" / MASKED_FILE).stat().st_mode & 0o777 == 0o600


def leaves_at(phase):
    """Return what makes a client leave before it answers a round of a masked sum."""

    def leave(begun):
        if begun == phase:
            raise SystemExit

    return leave


def test_users_who_share_a_key_cannot_be_masked(deployment):
    with clients(deployment.site()), pytest.raises(PrivacyError, match="keys of its own"):
        deployment.serve(secure_aggregation=True)


@pytest.mark.slow
def test_a_step_ends_at_its_deadline_with_who_is_there_and_the_run_goes_on(deployment):
    ended = threading.Event()

    def late(task, envelope, key):
        ended.wait(300)
        return envelope

    with clients(*(deployment.client(user) for user in ("ann", "bob", "cat")), deployment.client("dan", late)):
        deployment.serve("federated.central_steps=1", deadline_seconds=8)
        ended.set()
    assert "dan" in read_contributions(deployment.run)[0].silent
    with clients(deployment.site()):  # the server goes on; all users have moved to one client, with new keys
        deployment.serve("federated.central_steps=2", deadline_seconds=120)
    assert read_contributions(deployment.run)[1].contributed == tuple(USERS)
    assert deployment.sha256 == deployment.simulated_sha256("federated.central_steps=2")
    assert [line.step for line in read_ledger(deployment.run / LEDGER_FILE).releases] == [0, 1]


def test_what_a_server_could_not_check_or_must_not_know_is_refused_before_anybody_is_asked(deployment):
    with clients(*map(deployment.client, USERS)):
        with pytest.raises(PrivacyError, match="More users"):
            deployment.serve("participation.population=3", "participation.cohort_size=2")
        with pytest.raises(PrivacyError, match="how much audio"):
            deployment.serve("participation.weight=seconds", "participation.weight_total=10")
    assert not (deployment.run / CONTRIBUTIONS_FILE).exists()


def test_a_client_holds_one_user_unless_it_says_that_it_is_a_site(deployment):
    options = deployment.client("ann")
    options.store = deployment.store.path
    with pytest.raises(DataError, match="--site"):
        run_client(options, print, threading.Event())


def start(words, log):
    with log.open("ab") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", *words]
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)


@pytest.mark.slow
def test_processes_a_client_and_the_server_are_killed_in_a_step_and_the_run_ends_as_simulated(deployment):
    words = ["sottovoce", "deploy", "server", "quick", "--folder", deployment.server, "--run", deployment.run]
    words += ["--listen", f"127.0.0.1:{deployment.port}", "--deadline", "40", "--settle", "120"]
    words = [*map(str, words), *(word for setting in SETTINGS for word in ("--set", setting))]
    log = deployment.folder / "log"
    processes = {"server": start(words, log)}
    for user in USERS:
        own, kind = deployment.folder / user, ["sottovoce", "deploy", "client"]
        given = ["--store", own / "store", "--server", f"127.0.0.1:{deployment.port}"]
        given += ["--ca", deployment.server / CA_CERT]
        more = ["--keys", own, "--token-file", own / "token", "--poll", "0.2"]
        processes[user] = start([*kind, *map(str, [*given, *more])], log)
    try:
        wait_for_steps(deployment.run, 1, log)
        processes["bob"].send_signal(signal.SIGKILL)
        processes["server"].send_signal(signal.SIGKILL)  # it has begun the second step
        processes["server"].wait()
        processes["server"] = start(words, log)
        assert processes["server"].wait(600) == 0, log.read_text()
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    assert "bob" not in read_contributions(deployment.run)[2].contributed
    assert deployment.sha256 == deployment.simulated_sha256()


def wait_for_steps(run, steps, log):
    give_up = time.monotonic() + 400
    while len(read_contributions(run)) < steps:
        assert time.monotonic() < give_up, log.read_text()
        time.sleep(0.05)


@pytest.mark.slow
def test_the_demonstration_ends_with_equal_models(sotto, tmp_path):
    shown = sotto("deploy", "demo", "--out", tmp_path / "demo", "--json").document
    assert shown["deployed_sha256"] == shown["simulated_sha256"]
    assert shown["clients"] == 8
    assert {reason for step in shown["steps"] for reason in step["refused"].values()} == {"out of range"}
    assert any(shown["killed"] in step["silent"] for step in shown["steps"])


@pytest.mark.slow
def test_a_secure_run_says_nothing_about_who_took_part_but_to_the_operator(deployment):
    said = []
    options = ServerOptions(deployment.server, deployment.run, "127.0.0.1", deployment.port, settle_seconds=60)
    with clients(*map(deployment.client, USERS)):
        run_server(settings("randomness.source=secure", "federated.central_steps=1"), options, NoDisplay, said.append)
    assert read_contributions(deployment.run)[0].contributed
    assert not [line for line in said if "contributed" in line]
    assert not read_ledger(deployment.run / LEDGER_FILE).header.simulated
    public = (deployment.run / "metrics.jsonl").read_text() + (deployment.run / LEDGER_FILE).read_text()
    assert not [user for user in USERS if user in public]
    assert (deployment.server / "ledger").is_dir()
