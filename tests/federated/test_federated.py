"""Federated training as a user runs it, and the limits in which it must be something simpler."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ledgers import header_of
from sottovoce.data.batching import Batching
from sottovoce.data.population import Population
from sottovoce.data.text import TokenSet
from sottovoce.distributed import Group
from sottovoce.errors import DataError, PrivacyError
from sottovoce.features.specaugment import SpecAugment
from sottovoce.federated.client import Client, planned_batches
from sottovoce.federated.diagnostics import Figures
from sottovoce.federated.engine import Engine
from sottovoce.federated.federated_options import Local
from sottovoce.federated.local_rules import FedProx
from sottovoce.federated.process_aggregator import ProcessAggregator, local_cost, share_out
from sottovoce.federated.step import central_step
from sottovoce.federated.weights import user_weights
from sottovoce.model.recogniser import Recogniser
from sottovoce.model.transformer_options import TransformerOptions
from sottovoce.optim import Adam, Averaging, Lamb, Sgd
from sottovoce.privacy import step_noise
from sottovoce.privacy.bounds_state import BOUNDS, start_bounds_
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.privacy.noise import NoiseState
from sottovoce.privacy.privacy_options import Budget, Participation, Privacy
from sottovoce.randomness import stream

SMALL = TransformerOptions(blocks=2, width=16, heads=2, mlp_width=32, dropout=0.1, layer_drop=0.3)


@pytest.fixture
def users(make_store):
    return Population.of(make_store({"a": 4, "b": 3, "c": 2, "d": 1}))


def recogniser(options=SMALL):
    return Recogniser.make(options, TokenSet(("en",))).initialise(0)


def client(users, local, augment=None):
    return Client(users.store, Batching(seconds=3), local, augment, seed=1)


def engine(users, local, privacy, participation, server, options=SMALL, augment=None, partition="tensor"):
    model = recogniser(options)
    mechanism = Mechanism(privacy, participation, model.flat.partition(partition))
    state = server.start(model.flat.theta)
    start_bounds_(state, mechanism)
    aggregator = ProcessAggregator(Group(), users, model, client(users, local, augment), mechanism)
    return Engine(aggregator, model, mechanism, server, state, users=len(users), seed=1)


EVERYONE = Participation(population=4, sampling="everyone")


NOISE = {"clip_norm": 0.01, "sigma_dp": 0.01, "layer_weights": {"mlp": 2.0}}
SECONDS = {"weight": "seconds", "weight_bound": 2.0, "weight_total": 8.0}


@pytest.mark.parametrize("server", [Lamb(), Sgd()])
@pytest.mark.parametrize(
    ("privacy", "participation", "partition"),
    [
        *(({"clipping": name}, {}, "tensor") for name in ("none", "global", "uniform", "dim", "weighted")),
        ({"clipping": "dim", "rule": "normalize"}, {}, "tensor"),
        ({"clipping": "uniform"}, {}, "block"),
        ({"clipping": "weighted"}, {}, "kind"),
        ({"clipping": "dim"}, {"sampling": "fixed"}, "tensor"),
        ({"clipping": "dim"}, {"sampling": "everyone"}, "tensor"),
        ({"clipping": "dim"}, SECONDS, "tensor"),
        ({"clipping": "dim"}, {"q_min": 0.1}, "tensor"),
        ({"clipping": "global"}, {**SECONDS, "q_min": 0.2}, "tensor"),
        ({"clipping": "adaptive"}, {}, "tensor"),
        ({"clipping": "adaptive_global"}, {"sampling": "fixed"}, "tensor"),
        ({"clipping": "adaptive"}, {**SECONDS, "q_min": 0.2}, "block"),
    ],
)
def test_the_engine_is_the_algorithm_to_the_bit(users, privacy, participation, partition, server):
    local = Local(lr=0.1, steps=3, rule=FedProx(mu=0.1))
    fast = engine(
        users,
        local,
        Privacy(**NOISE, **privacy),
        Participation(**{"population": 4, "cohort_size": 2, **participation}),
        server,
        augment=SpecAugment(),
        partition=partition,
    )
    slow = recogniser()
    theta, state, noise_state = slow.flat.theta.clone(), server.start(slow.flat.theta), NoiseState()
    start_bounds_(state, fast.mechanism)
    for t in range(4):
        fast.step(t, 0.01)
        noise_state = central_step(
            t,
            theta,
            population=users,
            recogniser=slow,
            client=client(users, local, SpecAugment()),
            mechanism=fast.mechanism,
            server=server,
            state=state,
            noise_state=noise_state,
            central_lr=0.01,
            seed=1,
        )
    assert torch.equal(fast.theta, theta)
    assert torch.equal(fast.recogniser.flat.theta, theta)
    if fast.mechanism.privacy.adapts:
        assert torch.equal(fast.state.vectors[BOUNDS], state.vectors[BOUNDS])
        assert len(set(state.vectors[BOUNDS].tolist())) == len(fast.mechanism.clip_norms)  # each went its own way
    assert not torch.equal(theta, recogniser().flat.theta)


def test_noise_in_many_pieces_is_the_same_in_the_engine_and_in_the_algorithm(users, monkeypatch):
    monkeypatch.setattr(step_noise, "PIECE", 1000)
    test_the_engine_is_the_algorithm_to_the_bit(users, {"clipping": "dim"}, {}, "tensor", Sgd())


def test_noise_that_the_server_corrects_for_is_the_same_in_the_engine_and_in_the_algorithm(users):
    analysed = {"clipping": "dim", "noise_analysis": {"group": "mlp", "inside": 1, "outside": 0.5}}
    test_the_engine_is_the_algorithm_to_the_bit(users, analysed, {}, "tensor", Lamb(noise_correction=True))


def test_the_server_knows_the_noise_of_the_average(users):
    participation = Participation(population=4, cohort_size=2, **SECONDS, q_min=0.2)
    run = engine(users, Local(steps=1), Privacy(**NOISE, clipping="dim"), participation, Lamb())
    run.step(0, 0.01)
    assert run.state.noise_stds == pytest.approx([1e-4] * len(run.mechanism.partition.tensors), rel=1e-12)


@pytest.mark.parametrize("server", [Lamb(), Sgd()])
def test_averaging_changes_the_model_and_not_the_training(users, server):
    options = (users, Local(steps=1), Privacy(**NOISE, clipping="dim"), EVERYONE, server)
    plain, averaged = engine(*options), replace(engine(*options), averaging=Averaging(begin=1))
    thetas = []
    for t in range(4):
        for one in (plain, averaged):
            one.step(t, 0.01)
        thetas.append(plain.theta.clone())
        assert torch.equal(averaged.theta, plain.theta)
        expected = torch.stack(thetas[1:] or thetas).double().mean(0)
        assert (averaged.recogniser.flat.theta - expected).abs().max() < 1e-6
    assert not torch.equal(averaged.recogniser.flat.theta, plain.theta)


def test_no_clip_no_noise_one_local_step_is_plain_averaging(users):
    options = SMALL.model_copy(update={"dropout": 0.0, "layer_drop": 0.0})
    local = Local(lr=0.5, steps=1, gradient_clip=None)
    run = engine(users, local, Privacy(), EVERYONE, Sgd(momentum=0.0), options)
    before = run.theta.clone()
    run.step(0, 1.0)
    model, worker = recogniser(options), client(users, local)
    gradients = []
    for user in range(4):
        (batch,) = worker.batches(0, users.key_of(user), users.rows_of(user), model.encoder)
        worker.step_(model, before, batch, worker.start_(model, before, 0, users.key_of(user)))
        gradients.append(model.flat.gradient.clone())
    expected = before - 0.5 * torch.stack(gradients).mean(0)
    assert (run.theta - expected).abs().max() < 1e-6
    assert not torch.equal(run.theta, before)


def test_lamb_with_trust_ratio_one_is_adam(users):
    thetas = []
    for server in (Lamb(trust=False, xi=1e-8), Adam()):
        run = engine(users, Local(steps=1), Privacy(), EVERYONE, server)
        for t in range(2):
            run.step(t, 0.01)
        thetas.append(run.theta)
    assert torch.equal(*thetas)


def test_q_min_divides_by_those_who_came(users):
    thetas = []
    for participation in (EVERYONE, Participation(population=4, cohort_size=4, q_min=0.2)):
        run = engine(
            users, Local(steps=1), Privacy(clip_norm=10.0, clipping="global"), participation, Sgd(momentum=0.0)
        )
        run.step(0, 1.0)
        thetas.append(run.theta)
    assert (thetas[0] - thetas[1]).abs().max() < 1e-6
    assert not torch.equal(thetas[0], recogniser().flat.theta)


def test_q_one_is_everyone(users):
    thetas = []
    for participation in (EVERYONE, Participation(population=4, cohort_size=4)):
        run = engine(users, Local(steps=1), Privacy(clip_norm=0.1, clipping="dim"), participation, Lamb())
        assert run.step(0, 0.01).cohort == 4
        thetas.append(run.theta)
    assert torch.equal(*thetas)


def test_iid_and_speakers_have_the_same_utterances(users):
    mixed = users.iid(3)
    assert sorted(mixed.all_rows().tolist()) == sorted(users.all_rows().tolist())
    assert len(mixed) == len(users)


def test_an_empty_cohort_is_noise_only(users):
    privacy = Privacy(clip_norm=0.01, clipping="global", sigma_dp=1.0)
    run = engine(users, Local(steps=1), privacy, Participation(population=10**9, cohort_size=1), Sgd(momentum=0.0))
    before = run.theta.clone()
    figures = run.step(0, 1.0)
    assert figures.cohort == 0
    moved = (run.theta - before).double()
    assert moved.std().item() == pytest.approx(0.01, rel=0.1)
    assert figures.line(diagnostics=True)["not_private"]["loss"] is None
    quiet = engine(users, Local(steps=1), Privacy(), Participation(population=10**9, cohort_size=1), Sgd(momentum=0.0))
    quiet.step(0, 1.0)
    assert torch.equal(quiet.theta, before)


@pytest.mark.parametrize("randomness", ["seeded", "secure"])
def test_every_step_layer_and_coordinate_has_noise_of_its_own(users, randomness):
    privacy = Privacy(clip_norm=0.01, clipping="dim", sigma_dp=1.0)
    run = engine(users, Local(steps=1), privacy, Participation(population=10**9, cohort_size=1), Sgd(momentum=0.0))
    run.mechanism = run.aggregator.mechanism = replace(run.mechanism, source=randomness)
    noises = []
    for t in range(3):
        before = run.theta.clone()
        run.step(t, 1.0)
        noises.append((run.theta - before).double())

    def correlation(one, other):
        return float(torch.corrcoef(torch.stack([one, other]))[0, 1]) * len(one) ** 0.5  # about standard normal

    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs(correlation(noises[one], noises[other])) < 5
    layers = [layer for layer in torch.split(noises[0], run.mechanism.partition.tensor_sizes) if len(layer) > 1]
    for place, one in enumerate(layers):
        assert one.unique().numel() > 0.9 * one.numel()
        for other in layers[:place]:
            length = min(len(one), len(other))
            assert length < 16 or abs(correlation(one[:length], other[:length])) < 6
    for lag in (1, 2, 16):
        assert abs(correlation(noises[0][lag:], noises[0][:-lag])) < 5


def test_without_one_user_the_sum_moves_by_at_most_the_bound(users, make_store):
    # Through local training with dropout, layer drop and SpecAugment: the others do the same whoever is there.
    privacy = Privacy(clip_norm=0.01, clipping="dim")
    participation = Participation(population=4, cohort_size=4)
    moves = {}
    for names in ("abcd", "bcd", "acd", "abd", "abc"):
        run = engine(
            Population.of(users.store, names),
            Local(lr=0.1, steps=3),
            privacy,
            participation,
            Sgd(momentum=0.0),
            augment=SpecAugment(),
        )
        before = run.theta.double()
        run.step(0, 1.0)
        moves[names] = 4 * (before - run.theta.double())  # the sum over users
    for names, move in moves.items():
        if len(names) == 3:
            assert 0.005 < float((moves["abcd"] - move).norm()) <= 0.01 * (1 + 1e-4)


def test_noise_is_drawn_anew_where_it_was_used_on_another_sum(users, tmp_path):
    privacy = Privacy(clip_norm=0.01, clipping="dim", sigma_dp=1.0)
    nobody = Participation(population=10**9, cohort_size=1)
    path = tmp_path / "ledger.jsonl"

    def step(*, with_ledger):
        run = engine(users, Local(steps=1), privacy, nobody, Sgd(momentum=0.0))
        before = run.theta.clone()
        if with_ledger:
            header = header_of(run.mechanism)
            run.ledger = Ledger(path, header, None)
            if run.ledger.releases == 0:  # a release of this step with another sum, before a kill
                run.ledger.charge(0, 0, "f" * 64)
                run.ledger = Ledger(path, header, None)
        run.step(0, 1.0)
        return (run.theta - before).double()

    used, anew, again = step(with_ledger=False), step(with_ledger=True), step(with_ledger=True)
    assert torch.equal(anew, again)  # the second draw was charged too, and is matched
    assert len(path.read_text().splitlines()) == 3
    assert anew.std().item() == pytest.approx(0.01, rel=0.1)
    assert abs(float(torch.corrcoef(torch.stack([used, anew]))[0, 1])) * len(used) ** 0.5 < 5


def test_nothing_moves_before_the_release_is_charged(users, tmp_path):
    privacy = Privacy(clip_norm=0.01, clipping="dim", sigma_dp=1.0, budget=Budget(epsilon=1e-6))
    run = engine(users, Local(steps=1), privacy, Participation(population=4, cohort_size=2), Sgd(momentum=0.0))
    run.ledger = Ledger(tmp_path / "ledger.jsonl", header_of(run.mechanism), None, budget=privacy.budget)
    before = run.theta.clone()
    with pytest.raises(PrivacyError, match="would spend more than privacy"):
        run.step(0, 1.0)
    assert torch.equal(run.theta, before)


def test_no_user_counts_more_than_the_bound(users):
    options = Participation(population=4, cohort_size=4, weight="utterances", weight_bound=2.0, weight_total=8.0)
    assert user_weights(users, np.arange(4), options).tolist() == [WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS // 2]
    seconds = options.model_copy(update={"weight": "seconds", "weight_bound": 3.0})
    expected = np.minimum(users.seconds_by_user() / 3.0, 1.0) * WEIGHTS
    assert user_weights(users, np.arange(4), seconds) == pytest.approx(expected, rel=0.05)
    mechanism = Mechanism(Privacy(clip_norm=1.0, clipping="dim"), options, recogniser().flat.partition())
    total, delta = torch.zeros_like(recogniser().flat.theta, dtype=torch.int64), recogniser().flat.theta
    with pytest.raises(PrivacyError, match="is above participation"):
        add_clipped_(total, delta, WEIGHTS + 1, mechanism, 2**62)
    assert not total.any()


def test_cohorts_differ_from_step_to_step(users):
    mechanism = Mechanism(Privacy(), Participation(population=1000, cohort_size=100), recogniser().flat.partition())
    first, second = (set(mechanism.draw_cohort(1000, stream(1, "cohort", t)).tolist()) for t in (0, 1))
    assert len(first & second) < 40  # about 10 by chance


def test_a_user_whose_delta_is_not_finite_counts_as_nothing(users):
    privacy = Privacy(clip_norm=0.01, clipping="dim")
    run = engine(users, Local(lr=1e38, steps=3, gradient_clip=None), privacy, EVERYONE, Sgd(momentum=0.0))
    before = run.theta.clone()
    figures = run.step(0, 1.0)
    assert figures.line(diagnostics=True)["not_private"]["failed_users"] == 4
    assert torch.equal(run.theta, before)


def test_the_proximal_term_pulls_back(users):
    rows = users.rows_of(0)
    norms = []
    for mu in (0.0, 1.0, 20.0):
        worker, model = client(users, Local(lr=0.01, steps=6, rule=FedProx(mu=mu))), recogniser()
        theta = model.flat.theta.clone()
        state = worker.start_(model, theta, 0, users.key_of(0))
        for number, batch in enumerate(worker.batches(0, users.key_of(0), rows, model.encoder)):
            worker.step_(model, theta, batch, state)
            if number == 0:
                norms.append([float(worker.finish_(model, theta, state).norm())])
        norms[-1].append(float(worker.finish_(model, theta, state).norm()))
    first, last = zip(*norms, strict=True)
    assert first[0] == first[1] == first[2]  # at distance 0 the term is 0
    assert last[0] > last[1] > last[2]


def test_local_work_goes_by_steps_or_by_epochs():
    rows, frames = np.arange(7), np.full(7, 100)
    by_steps = planned_batches(rows, frames, Batching(seconds=2), Local(steps=9), stream(0, "x"))
    assert len(by_steps) == 9  # four batches make an epoch; then a new, differently shuffled one begins
    assert sorted(np.concatenate([batch.rows for batch in by_steps[:4]]).tolist()) == rows.tolist()
    by_epochs = planned_batches(rows, frames, Batching(seconds=2), Local(epochs=3), stream(0, "x"))
    assert np.bincount(np.concatenate([batch.rows for batch in by_epochs])).tolist() == [3] * 7
    assert planned_batches(rows[:0], frames[:0], Batching(), Local(), stream(0, "x")) == []
    assert Local().passes == 10


@pytest.mark.parametrize("local", [Local(steps=3), Local(epochs=2)])
def test_the_plan_of_one_utterance_needs_no_stream(users, local):
    worker, rows = client(users, local), users.rows_of(0)[:1]
    drawn = planned_batches(rows, users.store.frames_of(rows), worker.batching, local, stream(0, "x"))
    assert [batch.rows.tolist() for batch in worker.planned(0, "a", rows)] == [batch.rows.tolist() for batch in drawn]


def test_the_cost_of_local_work_is_that_of_its_batches(users):
    worker, encoder = client(users, Local(steps=5)), recogniser().encoder
    for user in range(len(users)):
        batches = list(worker.batches(4, users.key_of(user), users.rows_of(user), encoder))
        frames = [micro.batch.frames for batch in batches for micro in batch.micro]
        assert len(frames) == 5
        assert local_cost(users, user, worker, 4, padded=False) == sum(int(own.sum()) for own in frames) + 5 * 200
        whole = replace(worker, batching=Batching(seconds=3, max_padding=1.0))
        padded = sum(len(own) * int(own.max()) for own in frames)
        assert local_cost(users, user, whole, 4, padded=True) == padded + 5 * 200


@pytest.mark.parametrize("place", [0, 1, 2, -2, -1])
@pytest.mark.parametrize("bit", [0, 11, 31])
def test_processes_that_hold_different_models_are_noticed(users, monkeypatch, place, bit):
    worker = engine(users, Local(steps=1), Privacy(), EVERYONE, Sgd())
    notes = []

    def beside_the_first(_, note):
        notes.append(note)
        return torch.stack([notes[0], note])

    monkeypatch.setattr(Group, "gather_rows", beside_the_first)

    def exchange(theta):
        figures = Figures(worker.mechanism.partition)
        worker.aggregator.collect(0, theta, np.array([], dtype=np.int64), figures)

    exchange(worker.theta)
    exchange(worker.theta.clone())
    other = worker.theta.clone()
    other.view(torch.int32)[place] ^= -(2**31) if bit == 31 else 2**bit
    with pytest.raises(DataError, match="hold different models"):
        exchange(other)


def test_longest_users_first_and_evenly():
    costs = [7, 1, 5, 5, 2, 9, 3]
    shares = share_out(costs, 3)
    assert sorted(np.concatenate(shares).tolist()) == list(range(7))
    loads = [sum(costs[place] for place in share) for share in shares]
    assert max(loads) <= 12
    assert [costs[share[0]] for share in shares] == [9, 7, 5]
    assert all(len(share) == 0 for share in share_out([], 2))
