"""Optimizers against optax (golden numbers written by benchmarks/crosscheck_optax.py), worked arithmetic and limits."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.config import parse_setting, resolve
from sottovoce.errors import ConfigError
from sottovoce.model.partition import make_partition
from sottovoce.optim import AdaGrad, Adam, Averaging, Lamb, Lars, Schedule, Sgd

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "optax.json").read_text())
SHAPES = {"kernel": (7, 5), "bias": (5,), "zero": (3,), "scale": (1,)}
PARTITION = make_partition(list(SHAPES), [35, 5, 3, 1], "tensor")
OURS = {
    "lars": Lars(xi=0.0),
    "lamb": Lamb(),
    "adam": Adam(),
    "adagrad": AdaGrad(),
    "sgd": Sgd(),
    "sgd-momentum": Sgd(momentum=0.9),
}


def flat(tree):
    return torch.tensor(np.concatenate([np.asarray(tree[name]).ravel() for name in SHAPES]))


def start():
    rng = np.random.default_rng(0)
    return flat({n: np.zeros(s) if n == "zero" else rng.standard_normal(s) for n, s in SHAPES.items()})


def gradient(step):
    rng = np.random.default_rng(1000 + step)
    grads = {name: rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 1) for name, shape in SHAPES.items()}
    return flat({name: value * 0 if (step % 7 == 3 and name == "bias") else value for name, value in grads.items()})


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fifty_steps_agree_with_optax(name, dtype, tolerance):
    theta = start().to(dtype)
    state = OURS[name].start(theta)
    for step in range(50):
        OURS[name].step(theta, gradient(step).to(dtype), state, GOLDEN["lr"][name], PARTITION)
        if str(step) in GOLDEN["steps"][name]:
            expected = torch.tensor(GOLDEN["steps"][name][str(step)], dtype=torch.float64)
            error = (theta.double() - expected).abs() / (1 + expected.abs())
            assert error.max() < tolerance
    assert state.steps == 50


def test_without_bias_correction_the_first_update_is_the_plain_moments():
    one = make_partition(["w"], [1], "tensor")
    theta, g = torch.tensor([2.0], dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64)
    adam = Adam(bias_correction=False, xi=0.0)
    adam.step(theta, g, adam.start(theta), 0.1, one)
    assert float(theta) == pytest.approx(2 - 0.1 * (0.1 * 0.5) / np.sqrt(0.001 * 0.25))


@pytest.mark.parametrize("optimizer", [Adam(bias_correction=False), Lamb(bias_correction=False)])
def test_fifty_steps_without_bias_correction_agree_with_numpy(optimizer):
    theta, state = start(), optimizer.start(start())
    plain, m, v = start().numpy(), np.zeros(44), np.zeros(44)
    bounds = np.cumsum([0, 35, 5, 3, 1])
    for step in range(50):
        optimizer.step(theta, gradient(step), state, 0.01, PARTITION)
        g = gradient(step).numpy()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        update = m / (np.sqrt(v) + optimizer.xi)
        for first, last in pairwise(bounds):
            norms = [np.sqrt((vector[first:last] ** 2).sum()) for vector in (plain, update)]
            ratio = norms[0] / norms[1] if isinstance(optimizer, Lamb) and min(norms) > 0 else 1.0
            plain[first:last] -= 0.01 * ratio * update[first:last]
    assert theta.numpy() == pytest.approx(plain, rel=1e-12, abs=1e-14)


def test_lamb_without_trust_ratio_is_adam():
    one, other = start(), start()
    lamb, adam = Lamb(trust=False, xi=1e-8), Adam()
    states = lamb.start(one), adam.start(other)
    for step in range(20):
        ratios = lamb.step(one, gradient(step), states[0], 0.01, PARTITION)
        adam.step(other, gradient(step), states[1], 0.01, PARTITION)
        assert (ratios == 1).all()
    assert (one == other).all()


def test_lamb_moves_every_layer_by_lr_times_its_own_norm():
    theta = start()
    before = theta.clone()
    lamb = Lamb()
    ratios = lamb.step(theta, gradient(0), lamb.start(theta), 0.01, PARTITION)
    moved = PARTITION.norms(theta - before)
    assert moved[0] == pytest.approx(0.01 * float(PARTITION.norms(before)[0]))
    assert ratios[PARTITION.layers.index("zero")] == 1


def test_lars_is_worked_by_hand():
    one = make_partition(["w"], [2], "tensor")
    theta, g = torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0])
    lars = Lars(xi=0.5)
    state = lars.start(theta)
    ratio = lars.step(theta, g, state, 0.5, one)
    assert float(ratio) == pytest.approx(0.001 * 5 / (2 + 0.5))
    velocity = 0.5 * 0.002 * 2.0
    assert theta.tolist() == pytest.approx([3.0, 4.0 - velocity])
    ratio = float(lars.step(theta, g, state, 0.5, one))
    assert float(theta[1]) == pytest.approx(4 - velocity - (0.9 * velocity + 0.5 * ratio * 2))


@pytest.mark.parametrize("name", OURS)
def test_a_zero_gradient_moves_nothing_at_the_start(name):
    theta = start()
    OURS[name].step(theta, torch.zeros_like(theta), OURS[name].start(theta), 0.1, PARTITION)
    assert (theta == start()).all()


def test_schedules():
    assert [Schedule(lr=2).at(t) for t in (0, 10**6)] == [2, 2]
    halved = Schedule(lr=1, decay="step", begin=40, rate=0.5, every=50)
    assert [halved.at(t) for t in (0, 39, 40, 89, 90, 140)] == [1, 1, 0.5, 0.5, 0.25, 0.125]
    smooth = Schedule(lr=1, decay="exponential", begin=100, rate=0.6, every=50)
    assert [smooth.at(t) for t in (0, 100, 150, 125)] == pytest.approx([1, 1, 0.6, 0.6**0.5])
    warm = Schedule(lr=1, warmup=4)
    assert [warm.at(t) for t in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]


@pytest.mark.parametrize("optimizer", [Adam, Lamb])
def test_known_noise_is_taken_out_of_the_second_moment_tensor_by_tensor(optimizer):
    stds = np.repeat([0.2, 0.0, 3.0, 0.01], [35, 5, 3, 1])
    corrected, plain = optimizer(noise_correction=True, noise_floor=0.25), optimizer()
    theta, state, other, uncorrected = start(), corrected.start(start()), start(), plain.start(start())
    m, v, floors = np.zeros(44), np.zeros(44), 0
    for step in range(1, 40):
        state.noise_stds = uncorrected.noise_stds = (0.2, 0.0, 3.0, 0.01)
        g = gradient(step).numpy()
        before, old = theta.clone(), other.clone()
        ratios = corrected.step(theta, gradient(step), state, 0.01, PARTITION).numpy().repeat([35, 5, 3, 1])
        plain.step(other, gradient(step), uncorrected, 0.01, PARTITION)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * (g**2 - stds**2)
        second = v / (1 - 0.999**step)
        floors += int((second < (0.25 * stds) ** 2).sum())
        update = m / (1 - 0.9**step) / (np.sqrt(np.maximum(second, (0.25 * stds) ** 2)) + corrected.xi)
        assert (before - theta).numpy() == pytest.approx(0.01 * ratios * update, rel=1e-9, abs=1e-14)
        assert (before - theta)[35:40].tolist() == pytest.approx((old - other)[35:40].tolist(), rel=1e-9, abs=1e-14)
    assert 0 < floors < 39 * 44


def test_where_there_is_no_noise_its_correction_changes_no_bit():
    thetas = []
    for optimizer in (Lamb(), Lamb(noise_correction=True)):
        theta, state = start().float(), optimizer.start(start().float())
        for step in range(5):
            state.noise_stds = (0.0,) * 4
            optimizer.step(theta, gradient(step).float(), state, 0.01, PARTITION)
        thetas.append(theta)
    assert torch.equal(*thetas)


def test_the_corrected_second_moment_is_that_of_the_signal():
    one, noise = make_partition(["w"], [4000], "tensor"), torch.Generator().manual_seed(0)
    adam = Adam(noise_correction=True)
    theta = torch.zeros(4000)
    state = adam.start(theta)
    for _ in range(400):
        state.noise_stds = (2.0,)
        adam.step(theta, 0.5 + 2 * torch.randn(4000, generator=noise), state, 0.1, one)
    signal = float(state.vectors["v"].mean()) / (1 - 0.999**400)
    assert signal == pytest.approx(0.25, abs=4 * 5.7 / np.sqrt(400 * 4000))  # the std of g^2 is 5.7


@pytest.mark.parametrize("section", ["central.optimizer", "federated.local.optimizer"])
def test_only_the_server_knows_of_noise(section):
    with pytest.raises(ConfigError, match="noise_correction for the server only"):
        resolve("tiny", parse_setting(f"{section}={{name: lamb, noise_correction: true}}"))


@pytest.mark.parametrize(("begin", "window"), [(0, None), (3, None), (0, 4), (2, 1)])
def test_the_average_is_the_mean_of_the_models_since_it_began_then_an_exponential_one(begin, window):
    rng = np.random.default_rng(begin)
    thetas = rng.standard_normal((9, 6)).astype(np.float32)
    average = torch.zeros(6)
    for t, theta in enumerate(thetas):
        Averaging(begin=begin, window=window).move_(average, torch.from_numpy(theta), t)
        known = thetas[begin : t + 1] if t > begin else thetas[t : t + 1]
        size = window or len(thetas)
        expected = known[:size].mean(0, dtype=np.float64)
        for later in known[size:]:
            expected = expected + (later - expected) / size
        assert average.numpy() == pytest.approx(expected, rel=1e-5, abs=1e-6)
