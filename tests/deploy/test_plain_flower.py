"""The app folder on stock Flower: SuperLink, two SuperNodes and `flwr run`, equal to the simulation to the bit."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from sottovoce.config import Layer, parse_setting, resolve
from sottovoce.data.leaving_out import leave_out
from sottovoce.data.selection import Selection
from sottovoce.deploy import plain_app
from sottovoce.deploy.contributions import read_contributions, told_by
from sottovoce.deploy.enrolment import Enrolment
from sottovoce.deploy.flower_apps import GridFleet
from sottovoce.deploy.flower_records import to_records
from sottovoce.deploy.keys import PUBLIC_KEYS, client_keys
from sottovoce.deploy.link import Answer
from sottovoce.deploy.messages import Envelope
from sottovoce.distributed import Group
from sottovoce.federated.federated_training import train_federated
from sottovoce.files import sha256_of
from sottovoce.runs.display import NoDisplay
from sottovoce.runs.folder import LAST

USERS = {"ann": 2, "bob": 3}
SETTINGS = (
    *("participation.population=2", "participation.sampling=everyone", "federated.local.steps=2"),
    *("federated.central_steps=2", "federated.evaluate_every=100", "randomness.source=seeded"),
)
BIN = Path(sys.executable).parent


class Processes:
    """Commands of Flower in the background, with a home of their own; all end with the block."""

    def __init__(self, folder):
        self.folder, self.started = folder, []
        quiet = (
            ("TELEMETRY_ENABLED", "0"),
            ("DISABLE_UPDATE_CHECK", "1"),
            ("DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "1"),
        )
        self.environment = {**os.environ, **{f"FLWR_{name}": value for name, value in quiet}, "OMP_NUM_THREADS": "1"}
        self.environment |= {"FLWR_HOME": str(folder / "home"), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    def __enter__(self):
        return self

    def start(self, *words):
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen([*map(str, words)], stdout=log, stderr=subprocess.STDOUT, env=self.environment)
        self.started.append(process)
        return process

    def __exit__(self, *error):
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for free in sockets:
        free.bind(("127.0.0.1", 0))
    ports = [free.getsockname()[1] for free in sockets]
    for free in sockets:
        free.close()
    return ports


def wait_for(port):
    give_up = time.monotonic() + 200
    while time.monotonic() < give_up:
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the port did not open")


class Grid:
    """Nodes 2 and 3 in place of Flower's: the first answers for ann, the second never."""

    def __init__(self):
        self.sent = []

    def get_node_ids(self):
        return [2, 3]

    def push_messages(self, messages):
        self.sent += messages
        return [str(len(self.sent) - len(messages) + place) for place in range(len(messages))]

    def pull_messages(self, numbers):
        asked = self.sent[int(numbers[0])]
        if asked.metadata.dst_node_id == 3:
            return []
        users = RecordDict({"users": ConfigRecord({"users": ["ann"]})})
        answer = users if asked.metadata.message_type == "query" else to_records(Envelope(b"ann"))
        asked.metadata.__dict__["_message_id"] = numbers[0]
        return [Message(answer, reply_to=asked)]


def test_a_node_that_never_answers_does_not_cost_the_others_their_step(monkeypatch):
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)  # as in an app of Flower
    fleet, task = GridFleet(Grid()), (b"", Envelope(b"task"))
    assert list(fleet.ask({"ann": task}, 60)) == [Answer("ann", Envelope(b"ann"))]  # without waiting for others
    began = time.monotonic()
    assert list(fleet.ask({"ann": task, "bob": task}, 2)) == [Answer("ann", Envelope(b"ann"))]
    assert time.monotonic() - began < 2


@pytest.mark.slow
def test_stock_flower_runs_the_app_and_the_model_equals_the_simulated_one(make_store, tmp_path):
    store, app = make_store(USERS), tmp_path / "app"
    shutil.copytree(Path(plain_app.__file__).with_name("flower_app"), app)
    for user in USERS:
        leave_out(store, [other for other in USERS if other != user], tmp_path / f"{user}-store")
        client_keys(tmp_path / f"{user}-keys")
        Enrolment(tmp_path / "server").admit(user, tmp_path / f"{user}-keys" / PUBLIC_KEYS)
    port, *node_ports = free_ports(1 + len(USERS))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        f'[superlink.plain]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    given = {"preset": "quick", "folder": tmp_path / "server", "run": tmp_path / "run", "settings": "; ".join(SETTINGS)}
    config = " ".join([*(f'{key}="{value}"' for key, value in given.items()), "deadline=300.0"])
    with Processes(tmp_path) as processes:
        processes.start("flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", port)
        wait_for(port)
        for user, own in zip(USERS, node_ports, strict=True):
            place = f'store="{tmp_path / user}-store" keys="{tmp_path / user}-keys" user="{user}"'
            words = ["--superlink", f"127.0.0.1:{port}", "--host", "127.0.0.1", "--port", own, "--node-config", place]
            processes.start("flower-supernode", "--insecure", *words)
        for own in node_ports:
            wait_for(own)
        run = processes.start("flwr", "run", app, "plain", "--stream", "--run-config", config)
        assert run.wait(900) == 0, (tmp_path / "log").read_text()
    assert [answers.contributed for answers in read_contributions(tmp_path / "run").values()] == [tuple(USERS)] * 2
    told = resolve("quick", *map(parse_setting, SETTINGS)).over(Layer({"data": {"train": Selection(store=store.path)}}))
    train_federated(Group(), told, tmp_path / "simulated", NoDisplay, make_aggregator=told_by(tmp_path / "run"))
    models = [tmp_path / run / LAST / "model.safetensors" for run in ("run", "simulated")]
    assert sha256_of(models[0]) == sha256_of(models[1])
