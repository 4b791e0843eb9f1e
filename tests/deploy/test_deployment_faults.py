"""What a deployment suffers: kills, cut links, full disks, liars, signals. Server and clients are processes.

In each case nothing hangs, a step ends with who is there, the run goes on, and whoever must know is told in one line.
"""

import os
import signal
import subprocess
import threading
from contextlib import contextmanager

import pytest

from deployments import USERS, Deployment, Wire, clients, processes, start, wait_for
from sottovoce.deploy.client_process import run_client
from sottovoce.deploy.contributions import read_contributions
from sottovoce.deploy.link import RefusedConnectionError
from sottovoce.deploy.lying import LIES
from sottovoce.runs.folder import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def deployment(make_store, tmp_path):
    return Deployment(tmp_path, make_store(USERS))


def saved_steps(run):
    checkpoint = Run(run).checkpoint
    return 0 if checkpoint is None else checkpoint.step


def test_links_are_cut_and_a_client_and_the_server_are_killed_in_a_step_and_the_run_ends_as_simulated(deployment):
    log = deployment.folder / "log"
    with Wire(deployment.port) as wire, processes() as started:
        started["server"] = start(deployment.server_words("--deadline", "60"), log)
        for user in USERS:
            started[user] = start(deployment.client_words(user, wire.port if user == "cat" else None), log)
        wait_for(lambda: "Enrolled: cat" in log.read_text(), log)
        wire.cut_after("down", 60_000, seconds=4)  # in the middle of the first model
        wait_for(lambda: wire.cuts == 1, log)
        wire.cut_after("up", 60_000, seconds=4)  # in the middle of an update
        wait_for(lambda: len(read_contributions(deployment.run)) == 1, log)
        started["bob"].send_signal(signal.SIGSTOP)  # so the server waits in the next step
        wait_for(lambda: saved_steps(deployment.run) == len(read_contributions(deployment.run)) < 3, log)
        started["bob"].send_signal(signal.SIGKILL)
        started["server"].send_signal(signal.SIGKILL)
        started["server"].wait()
        started["server"] = start(deployment.server_words("--deadline", "60"), log)
        assert started["server"].wait(600) == 0, log.read_text()
    steps = read_contributions(deployment.run)
    assert wire.cuts == 2
    assert all("cat" in answers.contributed for answers in steps.values())
    assert "bob" not in steps[2].contributed
    assert "is back." in log.read_text()
    assert deployment.sha256 == deployment.simulated_sha256()


def test_every_lie_in_one_step_is_refused_and_the_honest_are_added_up(make_store, tmp_path):
    lies = {name: reason for name, (_, reason) in LIES.items() if reason}
    users = dict.fromkeys(("ann", "bob", *lies), 1)
    deployment = Deployment(tmp_path, make_store(users), users)
    more = (f"participation.population={len(users)}", "participation.sampling=everyone", "federated.central_steps=1")
    liars = [deployment.client(name, LIES[name][0]) for name in lies]
    with clients(deployment.client("ann"), deployment.client("bob"), *liars):
        deployment.serve(*more, deadline_seconds=120)
    answers = read_contributions(deployment.run)[0]
    assert answers.contributed == ("ann", "bob")
    assert answers.refused == lies
    assert deployment.sha256 == deployment.simulated_sha256(*more)


def test_a_client_of_another_protocol_ends_with_a_line(deployment):
    log = deployment.folder / "log"
    with processes() as started:
        started["server"] = start(deployment.server_words(), log)
        wait_for(lambda: "Listening" in log.read_text(), log)
        options = deployment.client("ann")
        options.protocol = 1
        with pytest.raises(RefusedConnectionError, match="Install the same version of sottovoce on both sides"):
            run_client(options, print, threading.Event())


@contextmanager
def small_disk(folder, kilobytes):
    """Mount a small disk at a folder while the block lasts."""
    folder.mkdir(exist_ok=True)
    options = ["-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", *options], check=False).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder):
    """Leave no byte free on a disk; return the file that takes them."""
    with (folder / "ballast").open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return folder / "ballast"


def test_a_server_whose_disk_is_full_ends_with_a_line_and_goes_on_when_there_is_space(deployment):
    log, disk = deployment.folder / "log", deployment.folder / "disk"
    deployment.run = disk / "run"
    with small_disk(disk, 8192), clients(*map(deployment.client, USERS)):
        with processes() as started:
            started["server"] = start(deployment.server_words("--deadline", "60"), log)
            wait_for(lambda: read_contributions(deployment.run), log)
            ballast = fill(disk)
            assert started["server"].wait(120) == 1
        last = log.read_text().splitlines()[-1]
        assert "No space left on device" in last
        assert "Traceback" not in log.read_text()
        ballast.unlink()
        deployment.serve()
        assert saved_steps(deployment.run) == 3
        told = deployment.simulated_sha256()
        assert deployment.sha256 == told or len(ledger_steps(deployment.run)) > 3  # a step charged twice has new noise


def ledger_steps(run):
    from sottovoce.privacy.ledger import LEDGER_FILE, read_ledger

    return [line.step for line in read_ledger(run / LEDGER_FILE).releases]


def test_a_client_whose_disk_is_full_ends_with_a_line_and_can_still_use_its_token(deployment):
    log, own = deployment.folder / "log", deployment.folder / "ann" / "keys"
    client = deployment.folder / "client.log"
    with small_disk(own, 64), processes() as started:
        started["server"] = start(deployment.server_words(), log)
        wait_for(lambda: "Listening" in log.read_text(), log)
        ballast = fill(own)
        started["ann"] = start(deployment.client_words("ann"), client)
        assert started["ann"].wait(120) == 1
        assert "No space left on device" in client.read_text()
        assert len(client.read_text().splitlines()) == 1
        ballast.unlink()
        started["ann"] = start(deployment.client_words("ann"), client)
        wait_for(lambda: "Connected" in client.read_text(), client, 60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_server_and_a_client_with_a_line(deployment, number):
    logs = {name: deployment.folder / f"{name}.log" for name in ("server", "ann", "bob")}
    with processes() as started:
        started["bob"] = start(deployment.client_words("bob", port=1), logs["bob"])  # nobody is there
        started["server"] = start(deployment.server_words(), logs["server"])
        started["ann"] = start(deployment.client_words("ann"), logs["ann"])
        wait_for(lambda: "Connected" in logs["ann"].read_text(), logs["ann"])
        wait_for(lambda: "Trying again" in logs["bob"].read_text(), logs["bob"])
        for name in ("ann", "bob", "server"):
            started[name].send_signal(number)
            started[name].wait(60)
        codes = {name: process.returncode for name, process in started.items()}
    assert (codes["ann"], codes["bob"]) == (0, 0)
    assert [logs[name].read_text().splitlines()[-1] for name in ("ann", "bob")] == ["Stopped."] * 2
    assert codes["server"] in (0, 128 + number)
    assert "The same command goes on" in logs["server"].read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_demonstration_and_all_its_processes(tmp_path, number):
    log = tmp_path / "log"
    with processes() as started:
        started["demo"] = start(["sottovoce", "deploy", "demo", "--out", tmp_path / "demo"], log)
        wait_for(lambda: "Started" in log.read_text(), log)
        wait_for((tmp_path / "demo" / "clients" / "7" / "client.log").exists, log)
        started["demo"].send_signal(number)
        assert started["demo"].wait(90) == 128 + signal.SIGTERM
    assert "Stopped, with all processes" in log.read_text().splitlines()[-1]
    left = subprocess.run(["pgrep", "-f", str(tmp_path / "demo")], capture_output=True, text=True, check=False)
    assert left.stdout == ""
