"""Audits of the real training: correct code stays below its claim, and every planted fault is found."""

import numpy as np
import pytest
import torch

import sottovoce as sv
from planted_faults import FAULTS
from sottovoce.auditing.audit_settings import audited_settings, flipped_coins
from sottovoce.auditing.auditor import audit
from sottovoce.auditing.canaries import Directions
from sottovoce.config import resolve
from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.federated import process_aggregator
from sottovoce.model.partition import make_partition
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy

ONE_RELEASE = {"z": 2.0, "sampling_prob": 1.0, "central_steps": 1}  # epsilon 1.99, and half the canaries take part
SAMPLED = {"z": 1.5, "sampling_prob": 0.05, "central_steps": 36}  # epsilon 1.06: a cohort that is reused reveals more


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("canaries")


PARTITION = make_partition(["front", "blocks.0.w1.weight", "output.bias"], [700, 250, 50], "tensor")


@pytest.mark.parametrize("clipping", ["global", "dim", "uniform"])
def test_the_attacker_knows_what_clipping_leaves_of_a_canary(clipping):
    privacy = Privacy(clip_norm=0.3, clipping=clipping, sigma_dp=0.1)
    mechanism = Mechanism(privacy, Participation(population=100, cohort_size=10), PARTITION)
    directions = Directions.draw(PARTITION, 20, seed=1)
    expected = directions.clipped(mechanism) * 0.3
    for number in range(20):
        total = torch.zeros(1000, dtype=torch.int64)
        delta = directions.delta_(torch.empty(1000), number, 0.3)
        add_clipped_(total, delta, 2**20, mechanism, mechanism.require_range(1))
        added = total.double().numpy() * mechanism.resolution
        assert added == pytest.approx(np.where(directions.owners == number, expected, 0.0), abs=1e-9)
        assert np.linalg.norm(added) == pytest.approx(0.3, rel=1e-6)  # a canary reaches C


def test_directions_are_orthogonal_and_use_every_coordinate_once():
    directions = Directions.draw(PARTITION, 30, seed=0)
    deltas = torch.stack([directions.delta_(torch.empty(1000), number, 1.0) for number in range(30)])
    products = deltas @ deltas.T
    assert torch.equal(products, torch.diag(torch.diag(products)))
    assert bool(((deltas != 0).sum(0) == 1).all())
    with pytest.raises(ConfigError, match="1001 canaries need as many parameters"):
        Directions.draw(PARTITION, 1001, seed=0)


def test_coins_are_fair_and_the_audits_own():
    coins = flipped_coins(3, 10_000)
    assert abs(coins.mean() - 0.5) < 0.02
    assert not np.array_equal(coins, flipped_coins(4, 10_000))


@pytest.mark.parametrize(
    "settings", [{}, {"participation": {"weight": "one", "weight_bound": 1, "weight_total": None}}]
)
def test_an_audit_keeps_z_and_q(settings):
    before = resolve("audit", settings)
    after = audited_settings(before, 300)
    old, new = (Mechanism(one.config.privacy, one.config.participation, PARTITION) for one in (before, after))
    assert new.z == pytest.approx(old.z)
    assert new.sampling_prob == pytest.approx(old.sampling_prob)
    assert new.population == 2400
    changed = audited_settings(before, 300, z=3.0, sampling_prob=0.5, central_steps=7)
    assert Mechanism(changed.config.privacy, changed.config.participation, PARTITION).z == pytest.approx(3.0)
    assert changed.config.participation.cohort_size == 1200
    assert changed.config.federated.central_steps == 7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"privacy": {"sigma_dp": 0.0}}, "no claim to audit: there is no noise"),
        ({"participation": {"sampling": "fixed"}}, "cannot have a fixed size"),
    ],
)
def test_what_cannot_be_audited_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        audit(resolve("audit", settings), canaries=10)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--z", 0), "z=0 > 0: without noise there is no claim to audit"),
        (("--sampling-prob", 2), "0 < sampling_prob=2 <= 1"),
        (("--confidence", 1), "confidence=1 < 1"),
        (("quick", "--set", "privacy.clipping=none"), "deltas are not clipped"),
    ],
)
def test_bad_input_is_one_line(sotto, words, message):
    outcome = sotto("privacy", "audit", *words)
    assert outcome.code == 1
    assert message in outcome.error


def test_correct_code_stays_below_its_claim(store):
    found = sv.audit(canaries=500, store=store, **ONE_RELEASE)
    assert found.claim == pytest.approx(1.993, abs=1e-3)
    assert not found.refuted
    assert 0 < found.bound < found.claim
    assert 0 < found.bound_of_any_mechanism < found.claim
    assert found.reach > 0.98


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "cohort reused"])
def test_a_fault_is_found_by_one_release(fault, store, monkeypatch):
    FAULTS[fault](monkeypatch)
    found = audit(canaries=500, store=store, **ONE_RELEASE)
    assert found.refuted
    assert found.bound > found.claim
    assert found.verdict == "VIOLATED"


def test_a_cohort_that_is_reused_is_found(store, monkeypatch):
    FAULTS["cohort reused"](monkeypatch)
    assert audit(canaries=1000, store=store, **SAMPLED).refuted


def test_weights_above_the_bound_are_an_error_of_clipping_already(store, monkeypatch):
    monkeypatch.setattr(process_aggregator, "user_weights", lambda _, cohort, __: np.full(len(cohort), 2**23))
    with pytest.raises(PrivacyError, match=r"above participation\.weight_bound"):
        audit(canaries=20, store=store, **ONE_RELEASE)


@pytest.mark.parametrize("fault", ["noise cut to a tenth", "clipping off"])
def test_a_fault_is_found_by_speakers(fault, store, monkeypatch):
    FAULTS[fault](monkeypatch)
    found = audit(canaries=100, kind="speakers", store=store, **ONE_RELEASE)
    assert found.refuted
    assert found.reach == pytest.approx(1.0)


def test_audits_leave_nothing_in_the_store_that_they_share_and_repeat(tmp_path):
    first = audit(canaries=50, store=tmp_path, **ONE_RELEASE)
    before = sorted(tmp_path.rglob("*"))
    assert audit(canaries=50, store=tmp_path, **ONE_RELEASE).guesses == first.guesses
    assert sorted(tmp_path.rglob("*")) == before


def test_secure_randomness_is_audited_too(store):
    found = audit(resolve("audit", {"randomness": {"source": "secure"}}), canaries=200, store=store, **ONE_RELEASE)
    assert found.bound_of_any_mechanism < found.claim
    assert found.mechanism["noise"] == "secure"


def test_the_command_prints_both_and_fails_where_the_claim_is_refuted(sotto, store, monkeypatch):
    words = (
        "privacy",
        "audit",
        "--canaries",
        500,
        "--z",
        2,
        "--sampling-prob",
        1,
        "--central-steps",
        1,
        "--store",
        store,
    )
    outcome = sotto(*words)
    assert outcome.code == 0
    assert "Verdict: not refuted" in outcome.stdout
    assert "proves nothing about what these canaries cannot see" in outcome.stderr
    FAULTS["clipping off"](monkeypatch)
    outcome = sotto(*words, "--json")
    assert outcome.code == 1
    assert outcome.document["verdict"] == "VIOLATED"
    assert outcome.document["bound"] > outcome.document["claim"]
    assert outcome.document["mechanism"]["z"] == pytest.approx(2.0)
    assert {"seed", "releases", "guesses", "proves", "reach"} <= outcome.document.keys()


@pytest.mark.slow
def test_twenty_audits_of_correct_code_stay_below_the_claim(store):
    for seed in range(20):
        found = audit(resolve("audit", {"seed": seed}), store=store)
        assert found.bound < found.claim
        assert found.bound_of_any_mechanism < found.claim


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_found_by_the_default_audit(fault, store, monkeypatch):
    FAULTS[fault](monkeypatch)
    assert audit(store=store).refuted
