"""Masked steps of server and clients, without a network: one session per step, and nothing where too few stay."""

import base64
import hashlib

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sottovoce.deploy.enrolment import EnrolledUser
from sottovoce.deploy.keys import public_bytes
from sottovoce.deploy.link import Answer
from sottovoce.deploy.masked_answers import MASKED_FILE, MaskedAnswers
from sottovoce.deploy.masked_collection import collect_masked, largest_of
from sottovoce.deploy.masking.masking_session import SecureAggregationError
from sottovoce.deploy.messages import PROTOCOL, Envelope, TaskHeader, read_round, read_task
from sottovoce.errors import DataError
from sottovoce.model.partition import make_partition
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy

SIZES = (1, 7, 40)
NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gus")


def mechanism(clipping):
    layers = make_partition([f"layer{number}" for number in range(len(SIZES))], SIZES, "tensor")
    privacy = Privacy(clip_norm=0.3, clipping=clipping, sigma_dp=0.001)
    return Mechanism(privacy, Participation(population=100, cohort_size=10), layers)


class Trained:
    """Users whose local work is done: large deltas, so that clipping is at work."""

    def __init__(self, user, rules):
        self.users = frozenset([user])
        delta = torch.randn(sum(SIZES), generator=torch.Generator().manual_seed(NAMES.index(user))) * 100
        total = torch.zeros(sum(rules.summed.sizes), dtype=torch.int64)
        add_clipped_(total, delta, WEIGHTS, rules, rules.require_range(1))
        self.update = total.numpy()

    def integers(self, task, envelope):
        return self.update


class Fleet:
    """Clients in this process, some of which leave before a round."""

    def __init__(self, folder, rules, leaving=None):
        self.rules, self.leaving, self.gone = rules, leaving or {}, set()
        self.keys = {name: Ed25519PrivateKey.generate() for name in NAMES}
        self.trained = {name: Trained(name, rules) for name in NAMES}
        self.folders = {name: folder / name for name in NAMES}
        for own in self.folders.values():
            own.mkdir()
        self.restart()

    def restart(self):
        self.clients = {name: MaskedAnswers(self.trained[name], self.keys[name], self.folders[name]) for name in NAMES}

    def tasks(self, names=NAMES, step=3):
        found = {}
        for user in names:
            key = base64.b64encode(public_bytes(self.keys[user])).decode()
            header = TaskHeader(
                **{"protocol": PROTOCOL, "run": "r" * 32, "step": step, "user": user, "nonce": "n", "settings": {}},
                **{"theta": hashlib.sha256(b"").hexdigest(), "languages": ("en",), "masked": True},
            )
            record = EnrolledUser(node_key="", signing_key=key, enrolled_at="")
            found[user] = record, header, header.sealed({"theta": b""})
        return found

    def ask(self, tasks, seconds):
        for user, (_, envelope) in tasks.items():
            header = read_round(envelope)
            phase = "mask" if header is None else header.phase
            if self.leaving.get(user) == phase:
                self.gone.add(user)
            if user not in self.gone:
                yield Answer(user, self.answer(user, header, envelope))

    def answer(self, user, header, envelope):
        try:
            if header is not None:
                return self.clients[user].round(header, envelope)
            return self.clients[user].mask(read_task(envelope), envelope)
        except SecureAggregationError:
            return Envelope(b"{}")

    def step(self, **options):
        return collect_masked(self, self.tasks(**options), self.rules, 60)

    def plain(self, names):
        return sum(self.trained[name].update for name in names)


@pytest.mark.parametrize("clipping", ["dim", "global", "adaptive"])
def test_the_masked_sum_is_the_plain_one_of_those_whose_update_arrived(tmp_path, clipping):
    fleet = Fleet(tmp_path, mechanism(clipping), {"bob": "mask", "cat": "reveal"})
    found = fleet.step()
    assert found.contributed == ("ann", "cat", "dan", "eve", "fay", "gus")
    assert np.array_equal(found.total, fleet.plain(found.contributed))
    assert max(abs(trained.update).max() for trained in fleet.trained.values()) <= largest_of(fleet.rules)


@pytest.mark.parametrize("phase", ["advertise", "share", "mask", "agree", "reveal"])
def test_with_too_few_left_a_step_adds_nothing(tmp_path, phase):
    fleet = Fleet(tmp_path, mechanism("dim"), dict.fromkeys(NAMES[:3], phase))
    found = fleet.step()
    assert (found.contributed, found.total.any()) == ((), False)


def test_a_cohort_of_two_adds_nothing_and_nobody_is_asked(tmp_path):
    fleet = Fleet(tmp_path, mechanism("dim"))
    assert fleet.step(names=NAMES[:2]).contributed == ()
    assert fleet.step(names=NAMES[:3]).contributed == NAMES[:3]


def test_a_client_masks_once_in_a_step_also_after_a_restart(tmp_path):
    fleet = Fleet(tmp_path, mechanism("dim"), dict.fromkeys(NAMES[:3], "agree"))  # the first session fails late
    assert fleet.step().contributed == ()
    fleet.leaving, fleet.gone = {}, set()
    fleet.restart()
    again = fleet.step()
    assert again.contributed == ()
    assert again.refused == dict.fromkeys(NAMES, "not masked")
    with pytest.raises(SecureAggregationError, match="before"):  # nor is a plain task of the step answered
        fleet.clients["ann"].require_new("r" * 32, 3, "ann")
    assert fleet.step(step=4).contributed == NAMES
    assert fleet.step(step=3).contributed == ()
    note = fleet.folders["ann"] / MASKED_FILE
    assert note.stat().st_mode & 0o777 == 0o600
    note.write_text("{")
    with pytest.raises(DataError, match="damaged"):
        fleet.step(step=5)


def test_a_model_for_a_run_whose_name_begins_alike_gets_no_masked_update(tmp_path):
    """It would be noted under the other name, and the step of the true one could be masked again."""
    fleet = Fleet(tmp_path, mechanism("dim"))
    mask = fleet.clients["ann"].mask
    fleet.clients["ann"].mask = lambda task, envelope: mask(task.model_copy(update={"run": "r" * 31}), envelope)
    assert "ann" not in fleet.step().contributed
    assert not (fleet.folders["ann"] / MASKED_FILE).exists()


def test_counts_that_no_users_could_have_add_nothing(tmp_path):
    fleet = Fleet(tmp_path, mechanism("adaptive"))
    fleet.trained["ann"].update[-1] = largest_of(fleet.rules)
    assert largest_of(fleet.rules) > 13 * abs(fleet.trained["bob"].update[-1])
    assert fleet.step().contributed == ()


def test_a_server_that_names_another_key_for_a_client_gets_no_answer_from_it(tmp_path):
    fleet = Fleet(tmp_path, mechanism("dim"))
    tasks = fleet.tasks()
    fleet.keys["ann"] = Ed25519PrivateKey.generate()
    fleet.restart()
    found = collect_masked(fleet, tasks, fleet.rules, 60)
    assert found.refused == {"ann": "not masked"}
    assert found.contributed == NAMES[1:]
