"""What the figures of a central step say of local gradients and of users, against the same computed in plain."""

import math

import pytest
import torch

from sottovoce.data.batching import Batching
from sottovoce.data.population import Population
from sottovoce.data.text import TokenSet
from sottovoce.distributed import Group
from sottovoce.federated import diagnostics as watching
from sottovoce.federated import process_aggregator
from sottovoce.federated.client import Client
from sottovoce.federated.diagnostics import Figures, UserGradients
from sottovoce.federated.engine import Engine
from sottovoce.federated.federated_options import Local
from sottovoce.federated.process_aggregator import ProcessAggregator
from sottovoce.model.recogniser import Recogniser
from sottovoce.model.transformer_options import TransformerOptions
from sottovoce.optim import Sgd
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy

SMALL = TransformerOptions(blocks=2, width=16, heads=2, mlp_width=32, dropout=0.1, layer_drop=0.3)
EVERYONE = Participation(population=4, sampling="everyone")
LR = 0.1


@pytest.fixture
def users(make_store):
    return Population.of(make_store({"a": 4, "b": 3, "c": 2, "d": 1}))


@pytest.fixture
def everybody_closely(monkeypatch):
    monkeypatch.setattr(process_aggregator, "CLOSELY", 1)


def engine(users, local, privacy, participation=EVERYONE, partition="tensor"):
    model = Recogniser.make(SMALL, TokenSet(("en",))).initialise(0)
    mechanism = Mechanism(privacy, participation, model.flat.partition(partition))
    client = Client(users.store, Batching(seconds=3), local, None, seed=1)
    server = Sgd(momentum=0.0)
    aggregator = ProcessAggregator(Group(), users, model, client, mechanism)
    state = server.start(model.flat.theta)
    return Engine(aggregator, model, mechanism, server, state, users=len(users), seed=1)


def inside(figures):
    return figures.line(diagnostics=True)["not_private"]


def trained_in_plain(users, local):
    """Return, for every user, the norms before local clipping, the gradients moved by, the places, and the delta."""
    run = engine(users, local, Privacy())
    theta, flat, client, found = run.theta, run.recogniser.flat, run.aggregator.client, []
    for user in range(len(users)):
        norms, gradients, places = [], [], []
        state = client.start_(run.recogniser, theta, 0, users.key_of(user))
        for batch in client.batches(0, users.key_of(user), users.rows_of(user), run.recogniser.encoder):
            places.append(flat.theta.double().clone())
            step = client.step_(run.recogniser, theta, batch, state)
            norms.append(float(step.gradient_norm))
            gradients.append(flat.gradient.double() * step.scale)
        found.append((norms, gradients, places, theta.double() - flat.theta.double()))
    return found


def mean(values):
    values = list(values)
    return sum(values) / len(values)


@pytest.mark.parametrize("partition", ["tensor", "block", "kind"])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_local_gradients_are_what_they_were(users, everybody_closely, clip, partition):
    local = Local(lr=LR, steps=3, gradient_clip=clip)
    run = engine(users, local, Privacy(), partition=partition)
    seen, layers = inside(run.step(0, 1.0)), run.mechanism.partition
    plain = trained_in_plain(users, local)

    assert seen["local_steps"] == 3
    assert seen["gradient_norm"] == pytest.approx(mean(norm for norms, *_ in plain for norm in norms), rel=1e-5)
    if clip is not None:
        assert seen["gradient_norm"] > 5  # before clipping
        assert all(float(gradient.norm()) <= 1 + 1e-5 for _, gradients, *_ in plain for gradient in gradients)

    variances = [float(torch.stack(gradients).var(dim=0).sum()) for _, gradients, *_ in plain]
    assert seen["local_variance"] == pytest.approx(mean(variances), rel=1e-3)

    changes = [float((gradients[-1] - gradients[0]).norm()) for _, gradients, *_ in plain]
    distances = [float((places[-1] - places[0]).norm()) for *_, places, _ in plain]
    expected = mean(change / distance for change, distance in zip(changes, distances, strict=True))
    assert seen["smoothness"] == pytest.approx(expected, rel=1e-3)

    first = torch.stack([layers.norms(gradients[0]) for _, gradients, *_ in plain]).mean(0)
    assert list(seen["layers"]["gradient_norm"].values()) == pytest.approx(first.tolist(), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(
    ("privacy", "participation"),
    [
        ({}, {}),
        ({"clip_norm": 0.05, "clipping": "dim"}, {}),
        ({"clip_norm": 0.05, "clipping": "dim", "sigma_dp": 0.01}, {}),
        ({"clip_norm": 0.05, "clipping": "global"}, {"weight": "seconds", "weight_bound": 2.0, "weight_total": 8.0}),
        ({"clip_norm": 0.05, "clipping": "uniform", "sigma_dp": 0.01}, {"q_min": 0.2}),
    ],
)
def test_how_far_users_lie_apart(users, privacy, participation):
    local = Local(lr=LR, steps=2)
    run = engine(users, local, Privacy(**privacy), Participation(population=4, sampling="everyone", **participation))
    seen, layers = inside(run.step(0, 1.0)), run.mechanism.partition
    if participation.get("weight") == "seconds":
        weights = users.seconds_by_user().clip(max=2.0) / 2.0
        weights = torch.tensor([math.floor(weight * 2**20) / 2**20 for weight in weights])
    else:
        weights = torch.ones(4)
    weights = weights.double() / weights.sum()
    clipped = torch.stack([clipped_in_plain(delta, run.mechanism) for *_, delta in trained_in_plain(users, local)])
    centred = clipped - (weights[:, None] * clipped).sum(0)
    apart, whole = (
        (weights[:, None] * torch.stack([layers.norms(row) for row in rows]) ** 2).sum(0) for rows in (centred, clipped)
    )
    expected = apart / whole / (1 - (weights**2).sum())
    assert list(seen["layers"]["user_spread"].values()) == pytest.approx(expected.tolist(), rel=2e-3, abs=2e-3)


def clipped_in_plain(delta, mechanism):
    norms, bounds = mechanism.partition.norms(delta), mechanism.clip_norms
    if bounds is None:
        return delta
    if len(bounds) == 1:
        return delta * min(1.0, bounds[0] / float(delta.norm()))
    return mechanism.partition.scale_(delta.clone(), torch.clamp(torch.tensor(bounds) / norms, max=1.0))


def test_sums_of_two_processes_are_those_of_one():
    partition = Recogniser.make(SMALL, TokenSet(("en",))).flat.partition("kind")
    layers = len(partition)

    def user(number):
        values = torch.arange(1, layers + 1, dtype=torch.float64) * number
        gradients = UserGradients(number, 2.0 * number, 0.5 * number, values, torch.tensor([3.0 * number]))
        return values, torch.full_like(values, 0.5), 1.0 * number, 1.0, gradients

    alone, first, second = (Figures(partition) for _ in range(3))
    for number in (1, 2, 3):
        alone.user(*user(number))
        (first if number == 2 else second).user(*user(number))
    together = Figures(partition)
    together.unpack_(first.packed() + second.packed())
    assert together.line(diagnostics=True) == alone.line(diagnostics=True)
    found = inside(alone)
    assert found["local_steps"] == 2.0  # mean over users of 1, 2, 3
    assert found["gradient_norm"] == 2.0  # over users and local steps: (2 + 4 + 6) / 6
    assert found["local_variance"] == 1.25  # of those with two steps or more
    assert found["smoothness"] == 6.0


def test_one_local_step_has_no_variance_and_no_smoothness(users, everybody_closely):
    seen = inside(engine(users, Local(lr=LR, steps=1), Privacy()).step(0, 1.0))
    assert seen["local_variance"] is None
    assert seen["smoothness"] is None
    assert seen["gradient_norm"] > 0
    assert "gradient_norm" in seen["layers"]


def test_one_user_in_four_is_looked_at_closely_and_in_turn(users, monkeypatch):
    looks = []
    begin = watching.LocalGradients.begin

    def noted(self, *, closely):
        looks.append(closely)
        begin(self, closely=closely)

    monkeypatch.setattr(watching.LocalGradients, "begin", noted)
    run = engine(users, Local(lr=LR, steps=1), Privacy())
    for t in range(4):
        run.step(t, 1.0)
    assert [place for place, closely in enumerate(looks) if closely] == [0, 5, 10, 15]


def test_without_diagnostics_nothing_is_watched_and_no_bit_changes(users, everybody_closely):
    local, thetas = Local(lr=LR, steps=3), []
    for diagnostics in (True, False):
        run = engine(users, local, Privacy(clip_norm=0.05, clipping="dim", sigma_dp=0.1, diagnostics=diagnostics))
        figures = [run.step(t, 1.0) for t in range(2)]
        thetas.append(run.theta)
    assert torch.equal(*thetas)
    assert all("not_private" not in one.line(diagnostics=False) for one in figures)
    assert not float(figures[0].packed()[watching._SUMS.index("with_gradients")])


def test_a_gradient_that_is_not_finite_is_in_no_mean(users, everybody_closely):
    run = engine(users, Local(lr=1e38, steps=3, gradient_clip=None), Privacy(clip_norm=0.01, clipping="dim"))
    seen = inside(run.step(0, 1.0))
    assert seen["failed_users"] == 4
    assert seen["gradient_norm"] is None
