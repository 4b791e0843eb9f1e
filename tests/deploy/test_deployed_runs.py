"""Whole runs on real clients over TLS: equal to the simulation to the bit, whatever clients and the server suffer.

A client here is a thread with keys, a store and a connection of its own; in `test_deployment_faults.py`, a process.
"""

import threading

import pytest

from deployments import USERS, Deployment, clients, settings
from sottovoce.deploy.client_process import run_client
from sottovoce.deploy.contributions import CONTRIBUTIONS_FILE, Contributions, read_contributions
from sottovoce.deploy.lying import LIES
from sottovoce.deploy.masked_answers import MASKED_FILE
from sottovoce.deploy.server_process import ServerOptions, run_server
from sottovoce.errors import DataError, PrivacyError
from sottovoce.privacy.claims import claim_at, statement
from sottovoce.privacy.events import ZERO_OUT
from sottovoce.privacy.ledger import LEDGER_FILE, read_ledger
from sottovoce.runs.display import NoDisplay
from sottovoce.runs.verification import verified_account


@pytest.fixture
def deployment(make_store, tmp_path):
    folder = tmp_path / "deployment"
    folder.mkdir()
    return Deployment(folder, make_store(USERS))


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
    # One user more or less may decide whether a step fails, so that user's taking part is not protected.
    assert verified_account(deployment.run).header.adjacency == ZERO_OUT
    assert claim_at(verified_account(deployment.run), 700, 70_000).mechanism.adjacency == ZERO_OUT
    assert "Whether that user takes part is not protected" in statement(verified_account(deployment.run))


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


def test_a_line_that_a_kill_has_cut_makes_room_for_the_next(tmp_path):
    for step in range(2):
        Contributions(step, ("ann",), {}, ()).append_to(tmp_path)
    path = tmp_path / CONTRIBUTIONS_FILE
    path.write_bytes(path.read_bytes()[:-9])
    assert list(read_contributions(tmp_path)) == [0]
    Contributions(1, (), {"ann": "too long"}, ()).append_to(tmp_path)
    assert read_contributions(tmp_path)[1].refused == {"ann": "too long"}


def test_a_client_holds_one_user_unless_it_says_that_it_is_a_site(deployment):
    options = deployment.client("ann")
    options.store = deployment.store.path
    with pytest.raises(DataError, match="--site"):
        run_client(options, print, threading.Event())


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
