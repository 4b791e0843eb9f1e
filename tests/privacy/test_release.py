"""The release: its order, what it keeps to itself, and noise mechanisms of one's own with a state."""

import pytest
import torch

from ledgers import checkpoint, header_of, mechanism, opened, recogniser
from own_noise import Cancelling
from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import Event, rdp
from sottovoce.privacy.claims import open_account, statement
from sottovoce.privacy.events import ADD_OR_REMOVE, ZERO_OUT
from sottovoce.privacy.ledger import LEDGER_FILE, Ledger
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.privacy.noise import Gaussian, NoiseState
from sottovoce.privacy.privacy_options import Budget, Participation, Privacy
from sottovoce.privacy.release import release
from sottovoce.privacy.step_noise import NoiseRequest, draw_noise
from sottovoce.randomness import stream
from sottovoce.runs.verification import verify

PARTITION = recogniser().flat.partition("tensor")
D = sum(PARTITION.tensor_sizes)


def make(noise=None, **privacy):
    options = Privacy(clip_norm=0.01, clipping="dim", sigma_dp=0.1, noise=noise or Gaussian(), **privacy)
    return Mechanism(options, Participation(population=1000, cohort_size=20), PARTITION)


def sums(value=2**30):
    return torch.full((D,), value, dtype=torch.int64)


def released(mech, t=0, total=None, state=None, weight=20 * WEIGHTS, ledger=None):
    state = mech.privacy.noise.start(torch.zeros(D)) if state is None else state
    total = sums() if total is None else total
    return release(t, total, weight, noise=draw_noise(NoiseRequest(mech, 5, t, state)), ledger=ledger)


def test_it_is_shrunk_then_gets_its_noise_then_is_divided_by_the_public_divisor():
    participation = Participation(population=1000, cohort_size=20, q_min=0.01)
    mech = Mechanism(Privacy(clip_norm=0.01, clipping="dim", sigma_dp=0.1), participation, PARTITION)
    by_hand = (sums().double() * (10 / 40)).round().long()
    Gaussian().add_(
        by_hand, stds=mech.noise_stds, partition=PARTITION, rng=stream(5, "noise", 3, 0, 0), state=NoiseState()
    )
    found = released(mech, t=3, weight=40 * WEIGHTS)
    assert torch.equal(found.average, (by_hand.double() * (mech.resolution / 10)).float())
    assert found.diagnosis.users_divisor == 40
    signal = (sums().double() * (10 / 40)).round() * (mech.resolution / 10)
    assert found.diagnosis.signal_norms.tolist() == pytest.approx(PARTITION.norms(signal).tolist())
    noise = by_hand.double() * (mech.resolution / 10) - signal
    assert found.diagnosis.noise_norms.tolist() == pytest.approx(PARTITION.norms(noise).tolist())


def test_nothing_is_diagnosed_unless_asked_for():
    assert released(make(diagnostics=False)).diagnosis is None
    quiet = Mechanism(Privacy(), Participation(population=1000, cohort_size=20), PARTITION)
    assert released(quiet).diagnosis.noise_norms is None


def test_what_the_ledger_refuses_is_not_released(tmp_path):
    mech = mechanism(budget=Budget(epsilon=1e-9))
    ledger = opened(tmp_path, mech)
    with pytest.raises(PrivacyError, match="would spend more than privacy"):
        released(mech, ledger=ledger)
    assert ledger.releases == 0


def test_noise_with_a_memory_goes_from_release_to_release_and_is_accounted_as_it_says(tmp_path):
    mech = make(Cancelling())
    ledger = opened(tmp_path / "run", mech)
    first = released(mech, 0, ledger=ledger)
    second = released(mech, 1, state=first.noise_state, ledger=ledger)
    alone = released(mech, 1)
    assert not torch.equal(second.average, alone.average)
    noises = [one.average.double() - mech.average(sums()).double() for one in (first, second)]
    correlation = float(torch.corrcoef(torch.stack(noises))[0, 1])
    assert correlation == pytest.approx(-0.5 / (1.25**0.5), abs=0.15)
    # Two releases cost as much as the mechanism says, which is not twice one sampled Gaussian.
    assert ledger.epsilon == rdp({Event(mech.z / 2, 1.0): 1}, 1e-9).epsilon
    checkpoint(tmp_path / "run", 2, ledger)
    assert verify(tmp_path / "run").epsilon == ledger.epsilon
    account = open_account(tmp_path / "run")
    assert account.header.noise_mechanism == Cancelling()
    assert "Noise: Cancelling, once per release" in statement(account)


def test_noise_with_a_memory_is_never_drawn_again_for_a_step(tmp_path):
    mech = make(Cancelling())
    ledger = Ledger(tmp_path / LEDGER_FILE, header_of(mech), None)
    first = released(mech, 0, ledger=ledger)
    released(mech, 1, state=first.noise_state, ledger=ledger)
    again = Ledger(tmp_path / LEDGER_FILE, header_of(mech), None)
    same = released(mech, 1, state=first.noise_state, ledger=again)  # the same sum: the same release
    assert again.releases == 2
    assert torch.equal(same.average, released(mech, 1, state=first.noise_state).average)
    with pytest.raises(PrivacyError, match="cannot be drawn again"):
        released(mech, 1, total=sums(5), state=first.noise_state, ledger=again)
    assert again.releases == 2


def test_a_ledger_keeps_its_noise_mechanism(tmp_path):
    for one, other in ((Cancelling(), Gaussian()), (Gaussian(), Cancelling())):
        path = tmp_path / one.name / LEDGER_FILE
        path.parent.mkdir()
        Ledger(path, header_of(make(one)), None)
        with pytest.raises(PrivacyError, match="begun with noise_mechanism="):
            Ledger(path, header_of(make(other)), None)


def test_a_header_is_read_as_it_was_written_and_names_only_noise_that_is_not_the_usual(tmp_path):
    for noise, named in ((Gaussian(), False), (Cancelling(), True)):
        header = header_of(make(noise))
        assert ("noise_mechanism" in header.line()) == named
        assert LedgerHeader.read(header.line(), tmp_path) == header
    with pytest.raises(PrivacyError, match="the header is damaged at z"):
        LedgerHeader.read(header.line() | {"z": "x"}, tmp_path)
    with pytest.raises(PrivacyError, match="is not a ledger of the form"):
        LedgerHeader.read({"ledger": "other"}, tmp_path)


def test_a_claim_at_other_sizes_keeps_the_adjacency_of_its_run(tmp_path):
    for masked, adjacency in ((False, ADD_OR_REMOVE), (True, ZERO_OUT)):
        header = header_of(mechanism(all_or_nothing=masked))
        assert LedgerHeader.read(header.line(), tmp_path).at(100, 100_000, "it").adjacency == adjacency
