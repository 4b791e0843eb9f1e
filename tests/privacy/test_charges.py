"""What releases cost: each counts once, and a cohort that is released twice costs more than two cohorts."""

import math

import pytest

from ledgers import charged, header_of, mechanism, opened
from own_noise import Cancelling
from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import Event, Spent, pld, rdp
from sottovoce.privacy.charges import Charges, cost
from sottovoce.privacy.mechanism import plain_mechanism
from sottovoce.privacy.privacy_options import Privacy


def test_a_release_counts_once():
    charges = Charges([(0, "a"), (1, "b"), (0, "a"), (1, "c"), (2, "d")])
    assert len(charges) == 4
    assert charges.repetitions == {1: 2, 2: 1}
    assert charges.of(1) == {"b", "c"}
    assert charges.of(7) == frozenset()
    assert Charges(charges.pairs()).repetitions == charges.repetitions


def test_a_cohort_that_is_released_twice_is_one_event_with_less_noise():
    seeded, secure = header_of(mechanism()), header_of(mechanism("secure"))
    assert cost(seeded, {1: 5, 2: 3}).events == {Event(2.0, 0.02): 5, Event(2.0 / math.sqrt(2), 0.02): 3}
    assert cost(secure, {1: 5, 2: 3}).events == {Event(2.0, 0.02): 11}  # every draw has a cohort of its own
    assert cost(secure, {1: 5, 2: 3}).extra == 11 * secure.sampler_epsilon
    assert cost(seeded, {}) == Spent({})


def test_ten_steps_that_were_released_twice_cost_what_they_cost():
    header = header_of(plain_mechanism(3e-6, 204_800, 69_506_000))  # z = 0.6144, q = 0.00295
    assert pld(cost(header, {2: 10}), 1e-9).epsilon == pytest.approx(8.87, abs=0.01)
    assert pld(cost(header, {1: 20}), 1e-9).epsilon == pytest.approx(4.08, abs=0.01)  # if each had its own cohort


def test_noise_with_a_memory_is_never_released_twice_for_a_step():
    mech = mechanism()
    options = Privacy(clip_norm=0.01, clipping="dim", sigma_dp=0.1, noise=Cancelling())
    header = header_of(type(mech)(options, mech.participation, mech.partition))
    assert cost(header, {1: 3}).events == {Event(mech.z / 2, 1.0): 1}
    with pytest.raises(PrivacyError, match="released twice with noise that has a memory"):
        cost(header, {1: 2, 2: 1})


def test_without_a_guarantee_there_is_no_cost():
    with pytest.raises(PrivacyError, match="no epsilon"):
        cost(header_of(mechanism(sigma_dp=0.0)), {1: 1})


def test_the_ledger_charges_a_repeated_cohort_by_its_noise(tmp_path):
    mark = charged(tmp_path, 1).mark
    opened(tmp_path, saved=mark).charge(1, 0, "a" * 64)
    again = opened(tmp_path, saved=mark)
    assert not again.charge(1, 0, "b" * 64)
    assert again.charge(1, 1, "b" * 64)
    z, q = mechanism().z, mechanism().sampling_prob
    assert again.epsilon == rdp({Event(z, q): 1, Event(z / math.sqrt(2), q): 1}, 1e-9).epsilon
    assert again.epsilon > rdp({Event(z, q): 3}, 1e-9).epsilon
