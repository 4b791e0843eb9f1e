"""Adaptive clipping: a user's deltas and counts together have a bounded norm, and bounds find the quantile."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from dp_accounting import ComposedDpEvent, GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants.analysis import rdp as opacus_rdp
from pydantic import ValidationError

from ledgers import header_of
from own_noise import Cancelling
from sottovoce.errors import PrivacyError
from sottovoce.model.partition import make_partition
from sottovoce.optim import State
from sottovoce.privacy.accounting import Spent, pld
from sottovoce.privacy.adaptive import AdaptiveClipping, JointGrid, next_bounds
from sottovoce.privacy.bounds_state import BOUNDS, mechanism_of_step, set_bounds_, start_bounds_
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy
from sottovoce.privacy.release import release
from sottovoce.privacy.step_noise import NoiseRequest, draw_noise

SIZES = (4, 16)
PARTITION = make_partition(["one", "two"], SIZES, "tensor")
D, H = sum(SIZES), len(SIZES)


def mechanism(bounds=None, clipping="adaptive", source="seeded", participation=None, sigma_dp=0.1, **more):
    privacy = Privacy(clip_norm=5.0, clipping=clipping, sigma_dp=sigma_dp, adaptive=AdaptiveClipping(**more))
    given = Participation(**{"population": 1000, "cohort_size": 20, **(participation or {})})
    return Mechanism(privacy, given, PARTITION, source, bounds)


def added(mech, delta, weight=WEIGHTS):
    total = torch.zeros(sum(mech.summed.sizes), dtype=torch.int64)
    assert add_clipped_(total, torch.tensor(delta, dtype=torch.float32), weight, mech, 2**62) is not None
    return total


@pytest.mark.parametrize(
    ("noise", "shares", "stds"),
    [  # C = (3, 4), d = (4, 16), so c = (1.5, 1); deltas get 0.8 of the norm: f = 0.36
        ("isotropic", (0.6, 0.8), (6.25, 6.25)),
        ("least", (math.sqrt(6 / 22), math.sqrt(16 / 22)), (math.sqrt(1.5 * 22) / 0.8, math.sqrt(22) / 0.8)),
        ("proportional", (math.sqrt(0.2), math.sqrt(0.8)), (1.5 * math.sqrt(20) / 0.8, math.sqrt(20) / 0.8)),
    ],
)
def test_worked_example(noise, shares, stds):
    mech = mechanism((3.0, 4.0), share=0.36, noise=noise)
    assert [norm / 2**38 for norm in mech.grid.norms] == pytest.approx([0.8 * share for share in shares])
    assert mech.grid.count / 2**38 == pytest.approx(0.6 / math.sqrt(2))
    assert mech.z == pytest.approx(2.0)
    assert mech.average_noise_stds == pytest.approx([0.1 * std for std in stds])
    # Layer one is clipped from norm 6 to 3, layer two of norm 2 is not.
    total = added(mech, [3.0] * 4 + [0.5] * 16)
    assert (mech.average(total) * 20).tolist() == pytest.approx([1.5] * 4 + [0.5] * 16)
    assert total[D:].tolist() == [-mech.grid.count, mech.grid.count]
    assert mech.average_norms(total).tolist() == pytest.approx([3 / 20, 2 / 20])
    counts = mech.count_noise
    assert (counts.z_delta, counts.sigma_b) == pytest.approx((2 / 0.8, 2 / 2 * math.sqrt(2 / 0.36)))
    assert 1 / mech.z**2 == pytest.approx(1 / counts.z_delta**2 + H / (2 * counts.sigma_b) ** 2)
    on_count = mech.noise_stds[-1] / (2 * mech.grid.count)
    assert on_count == pytest.approx(counts.sigma_b)


def test_no_other_noise_has_a_smaller_total():
    rng = np.random.default_rng(0)
    for _ in range(50):
        bounds = tuple(np.exp(3 * rng.standard_normal(H)).tolist())
        totals = {}
        for noise in ("isotropic", "least", "proportional"):
            grid = JointGrid.of(bounds, SIZES, AdaptiveClipping(noise=noise), 2**38)
            units = [bound / norm for bound, norm in zip(bounds, grid.norms, strict=True)]
            totals[noise] = sum(size * unit**2 for size, unit in zip(SIZES, units, strict=True))
        assert totals["least"] <= min(totals.values()) * (1 + 1e-9)
        assert totals["isotropic"] == pytest.approx(totals["proportional"], rel=1e-6)
    even = tuple(math.sqrt(size) for size in SIZES)
    grids = {JointGrid.of(even, SIZES, AdaptiveClipping(noise=noise), 2**38) for noise in ("isotropic", "least")}
    assert len(grids) == 1  # as `dim` sets them, all are the same


floats = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from([0.0, 1e-45, 1e-38, 3e38, -1.0])
)
bound = st.one_of(st.floats(1e-30, 1e30), st.floats(1e-3, 1e3))


@given(
    st.lists(floats, min_size=D, max_size=D),
    st.tuples(bound, bound),
    st.sampled_from(["isotropic", "least", "proportional"]),
    st.sampled_from([1e-6, 0.01, 0.5]),
    st.sampled_from(["adaptive", "adaptive_global"]),
    st.sampled_from([1e-3, 1.0, 60.0]),
    st.integers(0, WEIGHTS),
)
@settings(deadline=None, max_examples=300)
def test_deltas_and_counts_together_never_exceed_the_bound(delta, bounds, noise, share, clipping, weight_bound, weight):
    privacy = Privacy(clip_norm=1.0, clipping=clipping, adaptive=AdaptiveClipping(noise=noise, share=share))
    weights = Participation(
        population=100, cohort_size=10, weight="seconds", weight_bound=weight_bound, weight_total=1e6
    )
    mech = Mechanism(privacy, weights, PARTITION, bounds=bounds[: 1 if clipping == "adaptive_global" else 2])
    total = added(mech, delta, weight)
    squares = [int(value) ** 2 for value in total.tolist()]  # exact: Python's integers
    largest = Fraction(weight, WEIGHTS) * 2**38
    assert sum(squares) <= largest**2
    # And no wider than promised: a user who fills all bounds uses all of what the noise is scaled to.
    full = added(mech, [1e38] * D)
    assert sum(int(value) ** 2 for value in full.tolist()) > (1 - 1e-4) * 2**76


def test_a_grid_that_is_too_large_releases_nothing():
    grid = mechanism((3.0, 4.0)).grid
    with pytest.raises(PrivacyError, match="more than one user may add"):
        JointGrid((grid.norms[0] + 2**16, grid.norms[1]), grid.count).checked(2**38)
    with pytest.raises(PrivacyError, match="too many clip bounds"):
        JointGrid(grid.norms, 0).checked(2**38)


@pytest.mark.parametrize("clipping", ["adaptive", "adaptive_global"])
def test_bounds_find_the_quantile_of_users_norms_through_noise(clipping):
    # Norms are lognormal with medians 0.5 and 0.02; the bounds begin at 2.2 and 4.5, far above.
    people = {"population": 250, "cohort_size": 25}
    mech = mechanism(clipping=clipping, participation=people, quantile=0.7, lr=1.0, share=0.1, sigma_dp=0.016)
    state, rng = State(), np.random.default_rng(1)
    start_bounds_(state, mech)
    median = np.array([0.5, 0.02])
    seen = []
    for t in range(36):
        now = mechanism_of_step(mech, state)
        total = torch.zeros(sum(now.summed.sizes), dtype=torch.int64)
        for _ in range(rng.binomial(250, 0.1)):
            norms = median * np.exp(0.5 * rng.standard_normal(2))
            delta = np.repeat(norms / np.sqrt(SIZES), SIZES)
            add_clipped_(total, torch.from_numpy(delta).float(), WEIGHTS, now, 2**62)
        noise = draw_noise(NoiseRequest(now, 3, t, now.start_noise(torch.zeros(D))))
        set_bounds_(state, release(t, total, 25 * WEIGHTS, noise=noise).bounds)
        seen.append(state.vectors[BOUNDS].numpy())
    found = np.log(np.mean(seen[21:], 0))
    at_quantile = np.log(median) + 0.5 * 0.5244  # 0.5244: the 70 % quantile of a standard normal
    if clipping == "adaptive_global":  # nearly all of the norm is in layer one
        assert found == pytest.approx(at_quantile[:1], abs=0.2)
    else:
        assert found == pytest.approx(at_quantile, abs=0.2)


def test_one_release_never_moves_a_bound_far_and_both_ways_alike():
    options = AdaptiveClipping(quantile=0.9, lr=0.3)
    assert next_bounds([2.0] * 4, [0.9, 0.4, 1e9, -1e9], options) == pytest.approx(
        [2.0, 2 * math.exp(0.15), 2 * math.exp(-0.3), 2 * math.exp(0.3)]
    )
    assert next_bounds([1e-30, 1e30], [9.0, -9.0], options) == (1e-30, 1e30)


def test_second_opinions_on_z_of_deltas_and_counts_together():
    mech = mechanism(share=0.3, sigma_dp=0.05)
    counts = mech.count_noise
    alone = (counts.z_delta, 2 * counts.sigma_b / math.sqrt(H))
    # Everyone in every step: one Gaussian of z costs what the two cost that it consists of.
    everyone = PLDAccountant(value_discretization_interval=1e-3)
    everyone.compose(ComposedDpEvent([GaussianDpEvent(z) for z in alone]), 10)
    ours = Spent(mech.privacy.noise.spent(mech.z, 1.0, mech.adjacency, 10))
    assert everyone.get_epsilon(1e-6) == pytest.approx(pld(ours, 1e-6).epsilon, rel=1e-3)
    # Sampled: a user moves both or none. Renyi divergence of the mixture in two dimensions, by quadrature.
    points, weights = np.polynomial.hermite_e.hermegauss(120)
    x, y = np.meshgrid(points, points)
    mass = np.outer(weights, weights) / (2 * math.pi)
    q, mean = mech.sampling_prob, [1 / z for z in alone]
    ratio = (1 - q) + q * np.exp(mean[0] * x + mean[1] * y - (mean[0] ** 2 + mean[1] ** 2) / 2)
    for order in (2, 3.5, 6):
        by_quadrature = math.log(float((mass * ratio**order).sum())) / (order - 1)
        assert by_quadrature == pytest.approx(
            opacus_rdp.compute_rdp(q=q, noise_multiplier=mech.z, steps=1, orders=float(order)), rel=1e-6
        )


@pytest.mark.parametrize(
    ("participation", "sensitivity"),
    [({}, 1.0), ({"sampling": "fixed"}, 2.0), ({"q_min": 0.01}, 2.0), ({"sampling": "everyone"}, 1.0)],
)
def test_the_claim_is_that_of_fixed_bounds(participation, sensitivity):
    mech, plain = mechanism(participation=participation), mechanism(participation=participation, clipping="dim")
    assert mech.sensitivity == pytest.approx(sensitivity)
    assert mech.z == pytest.approx(plain.z)
    assert mech.count_noise.z(mech.sensitivity) == pytest.approx(mech.z)
    assert mech.adjacency == plain.adjacency
    assert plain.count_noise is None
    assert plain.summed is PARTITION


def test_counts_are_numbers_of_the_release_too():
    mech, plain = mechanism(source="secure"), mechanism(source="secure", clipping="dim")
    assert mech.sampler_epsilon == pytest.approx(plain.sampler_epsilon * (D + H) / D)
    assert header_of(mech).parameters == D + H
    drawn = draw_noise(NoiseRequest(mech, 0, 0, mech.start_noise(torch.zeros(D))))
    total = torch.zeros(D + H, dtype=torch.int64)
    drawn.add_to_(total, 0)
    assert bool((total != 0).all())


def test_noise_with_a_memory_remembers_that_of_counts():
    privacy = Privacy(clip_norm=5.0, clipping="adaptive", sigma_dp=0.1, noise=Cancelling())
    mech = Mechanism(privacy, Participation(population=1000, cohort_size=20), PARTITION)
    state = mech.start_noise(torch.zeros(D))
    total = torch.zeros(D + H, dtype=torch.int64)
    drawn = draw_noise(NoiseRequest(mech, 0, 0, state))
    drawn.add_to_(total, 0)
    assert len(drawn.next_state.vectors["last"]) == D + H
    assert bool((total != 0).all())


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValidationError, match="rule=clip"):
        Privacy(clip_norm=1.0, clipping="adaptive", rule="normalize")
    with pytest.raises(PrivacyError, match="holds no clip bounds"):
        mechanism_of_step(mechanism(), State())
