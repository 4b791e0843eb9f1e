"""Local optimizers other than plain SGD: each user's own state, the run's layers, and nothing new for the guarantee."""

import pytest
import torch

from sottovoce.config import parse_setting, resolve
from sottovoce.data.batching import Batching
from sottovoce.data.population import Population
from sottovoce.data.text import TokenSet
from sottovoce.distributed import Group
from sottovoce.federated.client import Client
from sottovoce.federated.diagnostics import Figures
from sottovoce.federated.engine import Engine
from sottovoce.federated.federated_options import Local
from sottovoce.federated.local_rules import FedProx
from sottovoce.federated.process_aggregator import ProcessAggregator
from sottovoce.federated.step import central_step
from sottovoce.model.recogniser import Recogniser
from sottovoce.model.transformer_options import TransformerOptions
from sottovoce.optim import Lamb, Lars, Sgd
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.noise import NoiseState
from sottovoce.privacy.privacy_options import Participation, Privacy

SMALL = TransformerOptions(blocks=2, width=16, heads=2, mlp_width=32, dropout=0.1, layer_drop=0.3)
EVERYONE = Participation(population=3, sampling="everyone")
CLIPPED = Privacy(clip_norm=0.01, clipping="dim", sigma_dp=0.01)


@pytest.fixture
def users(make_store):
    return Population.of(make_store({"a": 4, "b": 3, "c": 1}))


def recogniser():
    return Recogniser.make(SMALL, TokenSet(("en",))).initialise(0)


def client(users, local, partition="tensor"):
    return Client(users.store, Batching(seconds=3), local, None, seed=1, partition=partition)


def engine(users, local, privacy, partition="tensor"):
    model, server = recogniser(), Sgd()
    mechanism = Mechanism(privacy, EVERYONE, model.flat.partition(partition))
    aggregator = ProcessAggregator(Group(), users, model, client(users, local, partition), mechanism)
    return Engine(aggregator, model, mechanism, server, server.start(model.flat.theta), users=len(users), seed=1)


def trained(users, local, user=0, model=None, partition="tensor", after_step=lambda *_: None):
    """Return the delta of one user."""
    model, worker, name = model or recogniser(), client(users, local, partition), users.key_of(user)
    theta = recogniser().flat.theta.clone()
    state = worker.start_(model, theta, 0, name)
    for batch in worker.batches(0, name, users.rows_of(user), model.encoder):
        before = model.flat.theta.clone()
        after_step(model.flat, before, worker.step_(model, theta, batch, state))
    return worker.finish_(model, theta, state).clone()


@pytest.mark.parametrize("partition", ["tensor", "block"])
def test_lars_by_hand(users, partition):
    """The gradient is corrected by the rule, then clipped, then given to the optimizer; norms are those of layers."""
    moved = []

    def compare(flat, before, step):
        layers, gradient = flat.partition(partition), flat.gradient.double() * step.scale.double()
        assert step.scale < 1  # clipping has something to do
        ratios = 0.5 * layers.norms(before) / (layers.norms(gradient) + 1e-8)
        ratios[(layers.norms(before) == 0) | (layers.norms(gradient) == 0)] = 1.0
        expected = before.double() - 0.1 * layers.scale_(gradient, ratios)
        assert (flat.theta.double() - expected).abs().max() < 1e-6
        moved.append(float((flat.theta - before).norm()))

    lars = Lars(coefficient=0.5, momentum=0.0)
    local = Local(lr=0.1, steps=4, gradient_clip=0.5, rule=FedProx(mu=5.0), optimizer=lars)
    trained(users, local, partition=partition, after_step=compare)
    assert len(moved) == 4
    assert min(moved) > 0.01


def test_limits_of_local_optimizers(users):
    def delta(optimizer, steps=3):
        return trained(users, Local(lr=0.1, steps=steps, optimizer=optimizer))

    assert torch.equal(delta(Sgd()), trained(users, Local(lr=0.1, steps=3)))
    assert torch.allclose(delta(Sgd(momentum=0.9), 1), delta(Sgd(), 1), atol=1e-7)  # the first step has no memory
    assert not torch.allclose(delta(Sgd(momentum=0.9)), delta(Sgd()), atol=1e-3)
    # Without trust ratios and memory, LAMB moves every coordinate that has a gradient by the rate.
    signs = delta(Lamb(trust=False, b1=0.0, b2=0.0, xi=1e-12), 1).abs()
    assert float(signs.median()) == pytest.approx(0.1, rel=1e-4)
    assert float(signs.max()) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("optimizer", [Lars(), Lamb(), Sgd(momentum=0.9)])
def test_no_user_gets_the_state_of_another(users, optimizer):
    local = Local(lr=0.05, steps=3, optimizer=optimizer)
    shared = recogniser()
    first = [trained(users, local, user, shared) for user in (0, 1, 0)]
    assert torch.equal(first[0], first[2])
    assert torch.equal(first[1], trained(users, local, 1))


@pytest.mark.parametrize("optimizer", [Lars(), Lamb()])
@pytest.mark.parametrize("partition", ["tensor", "kind"])
def test_the_engine_is_the_algorithm_to_the_bit(users, optimizer, partition):
    local = Local(lr=0.05, steps=2, rule=FedProx(mu=0.1), optimizer=optimizer)
    fast, slow = engine(users, local, CLIPPED, partition), recogniser()
    theta, server, noise_state = slow.flat.theta.clone(), Sgd(), NoiseState()
    state = server.start(theta)
    for t in range(2):
        fast.step(t, 0.5)
        noise_state = central_step(
            t,
            theta,
            population=users,
            recogniser=slow,
            client=client(users, local, partition),
            mechanism=fast.mechanism,
            server=server,
            state=state,
            noise_state=noise_state,
            central_lr=0.5,
            seed=1,
        )
    assert torch.equal(fast.theta, theta)


def test_without_clipping_no_trust_ratio_can_overflow_the_sum(users):
    """The range of the sum does not rest on a bound on the delta: a delta that is too large adds nothing."""
    run = engine(users, Local(lr=1e9, steps=2, optimizer=Lamb()), Privacy())
    figures = Figures(run.mechanism.partition)
    total = run.aggregator.collect(0, run.theta.clone(), torch.arange(3).numpy(), figures).total
    assert figures.line(diagnostics=True)["not_private"]["failed_users"] == 3
    assert not total.any()


def test_figures_that_only_plain_sgd_has_are_left_out(users):
    for optimizer, known in ((Sgd(), True), (Lamb(), False)):
        run = engine(users, Local(lr=0.01, steps=3, optimizer=optimizer), CLIPPED)
        found = run.step(0, 0.1).line(diagnostics=True)["not_private"]
        assert (found["local_variance"] is not None) == (found["smoothness"] is not None) == known
        assert found["gradient_norm"] > 0


def test_a_configuration_names_the_local_optimizer():
    config = resolve("tiny", parse_setting("federated.local.optimizer={name: lars, momentum: 0}")).config
    assert config.federated.local.optimizer == Lars(momentum=0.0)
    assert resolve("tiny").config.federated.local.plain_sgd
