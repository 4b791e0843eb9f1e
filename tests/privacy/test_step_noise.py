"""The noise of one release: its parts, and that it is complete and used once."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ledgers import header_of
from own_noise import Cancelling
from sottovoce import memory
from sottovoce.errors import PrivacyError
from sottovoce.model.partition import make_partition
from sottovoce.privacy import step_noise
from sottovoce.privacy.ledger import LEDGER_FILE, Ledger
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.privacy.noise import Gaussian, IndependentNoise, NoiseState
from sottovoce.privacy.privacy_options import NoiseAnalysis, Participation, Privacy
from sottovoce.privacy.release import release
from sottovoce.privacy.step_noise import DrawnNoise, NoisePart, NoiseRequest, draw_noise

NAMES, SIZES = ("blocks.0.w1.weight", "blocks.0.w2.weight", "output.bias"), (2500, 1499, 20)
D = sum(SIZES)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(step_noise, "PIECE", 1000)
    monkeypatch.setattr(memory, "_IN_CACHE", 300)  # noise is added in several parts


def request(noise=None, source="seeded", t=3, **privacy):
    noise = noise or Gaussian()
    options = Privacy(**{"clip_norm": 0.01, "clipping": "dim", "sigma_dp": 0.1, "noise": noise} | privacy)
    partition = make_partition(NAMES, SIZES, "tensor")
    mechanism = Mechanism(options, Participation(population=1000, cohort_size=20), partition, source)
    return NoiseRequest(mechanism, 5, t, noise.start(torch.zeros(D)))


def part(wanted, start, stop, room=None):
    work = wanted.draw(start, stop, stop - start if room is None else room)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def vector(noise, t=3):
    total = torch.zeros(D, dtype=torch.int64)
    noise.add_to_(total, t)
    return total


@pytest.mark.parametrize("processes", [1, 2, 3, 5, 8])
def test_any_number_of_processes_draws_the_same_bits(processes):
    wanted = request()
    cuts = wanted.cuts(processes)
    assert (cuts[0], cuts[-1]) == (0, D)
    pieces = [math.ceil((stop - start) / 1000) for start, stop in itertools.pairwise(cuts)]
    assert pieces[0] == min(pieces) >= max(pieces) - 1
    parts = [part(wanted, *ends) for ends in itertools.pairwise(cuts)]
    assert [one.drawn for one in parts] == np.diff(cuts).tolist()
    assert torch.equal(torch.cat([one.vector for one in parts]), vector(draw_noise(wanted)))


def test_noise_with_a_memory_is_drawn_as_a_whole_by_the_leader():
    wanted = request(Cancelling())
    assert wanted.cuts(3) == [0, D, D, D]
    assert part(wanted, D, D).drawn == 0
    assert torch.equal(draw_noise(wanted).next_state.vectors["last"], vector(draw_noise(wanted)))


@pytest.mark.parametrize("source", ["seeded", "secure"])
def test_pieces_steps_and_attempts_have_noise_of_their_own(source):
    drawn = [
        vector(draw_noise(replace(request(source=source, t=t), attempt=attempt)), t)
        for t, attempt in ((3, 0), (3, 1), (4, 0), (0, 3))
    ]
    pieces = torch.stack([piece for one in drawn for piece in one[:4000].split(1000)]).double()
    correlations = torch.corrcoef(pieces)[tuple(torch.triu_indices(len(pieces), len(pieces), 1))]
    assert float(correlations.abs().max()) * 1000**0.5 < 5
    assert all(one.unique().numel() == D for one in drawn)


def test_every_tensor_has_its_own_std_across_pieces():
    wanted = request(noise_analysis=NoiseAnalysis(group="w2", inside=0.0, outside=1.0))
    first, second, third = vector(draw_noise(wanted)).split(SIZES)
    assert not second.any()
    assert (first != 0).all()
    assert (third != 0).all()
    louder = request(noise_analysis=NoiseAnalysis(group="w2", inside=8.0, outside=1.0))
    first, second, _ = vector(draw_noise(louder)).double().split(SIZES)
    assert float(second.std() / first.std()) == pytest.approx(8, rel=0.1)


def test_where_sigma_is_zero_nothing_is_drawn(monkeypatch):
    monkeypatch.setattr(Gaussian, "draw", lambda *_: pytest.fail("drawn"))
    wanted = request(sigma_dp=0.0)
    assert (wanted.size, wanted.cuts(4)) == (0, [0] * 5)
    noise = draw_noise(wanted)
    assert noise.average_norms() is None
    assert not vector(noise).any()


def test_noise_that_is_not_complete_is_refused():
    wanted = request()
    for short in (part(wanted, 0, 4000), part(wanted, 0, 4000, room=D), NoisePart(torch.zeros(D), NoiseState())):
        with pytest.raises(PrivacyError, match=f"of {D} coordinates. Nothing is released"):
            DrawnNoise(wanted, short)


def test_noise_is_used_once_and_in_its_own_step():
    noise, total = draw_noise(request()), torch.zeros(D, dtype=torch.int64)
    with pytest.raises(PrivacyError, match="Step 4 cannot use the noise of step 3"):
        noise.add_to_(total, 4)
    assert not total.any()
    release(3, total, 20 * WEIGHTS, noise=noise)
    again = torch.zeros(D, dtype=torch.int64)
    with pytest.raises(PrivacyError, match="noise of step 3 was used before"):
        release(3, again, 20 * WEIGHTS, noise=noise)
    assert not again.any()


def test_noise_that_the_ledger_refuses_is_taken_back_and_drawn_again(tmp_path):
    wanted = request()
    header = header_of(wanted.mechanism)
    Ledger(tmp_path / LEDGER_FILE, header, None).charge(3, 0, "f" * 64)
    ledger = Ledger(tmp_path / LEDGER_FILE, header, None)  # resumed after a kill
    noise, users = draw_noise(wanted), torch.full((D,), 7)
    total = users.clone()
    found = release(3, total, 20 * WEIGHTS, noise=noise, ledger=ledger)
    second = vector(draw_noise(replace(wanted, attempt=1)))
    assert torch.equal(total, users + second)
    assert torch.equal(found.diagnosis.noise_norms, wanted.mechanism.average_norms(second))
    assert not torch.equal(second, vector(draw_noise(wanted)))
    assert ledger.releases == 2
    with pytest.raises(PrivacyError, match="was used before"):
        noise.add_to_(total, 3)


def test_a_kind_with_a_state_is_not_independent():
    with pytest.raises(TypeError, match="Growing is not independent noise"):

        class Growing(Gaussian):
            def start(self, theta):
                return NoiseState({"size": theta.new_ones(1)})

    assert issubclass(Gaussian, IndependentNoise)
