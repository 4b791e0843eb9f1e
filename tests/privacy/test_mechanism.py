import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.model.partition import make_partition
from sottovoce.model.roles import role_by_name
from sottovoce.model.transformer import Transformer
from sottovoce.privacy.accounting import account_for
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.events import ADD_OR_REMOVE, ZERO_OUT
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.privacy.noise import Gaussian, NoiseState
from sottovoce.privacy.privacy_options import NoiseAnalysis, Participation, Privacy
from sottovoce.randomness import SecureRandomness, stream

NAMES = ("conv.weight", "blocks.0.ln1.weight", "blocks.0.w1.weight", "blocks.0.w2.weight", "output.bias")
SIZES = (300, 10, 400, 400, 20)
ROLES = [role_by_name(name, Transformer.groups) for name in NAMES]
PARTITION = make_partition(NAMES, SIZES, "tensor", ROLES)


def make(privacy=None, **participation):
    privacy = privacy or Privacy(clip_norm=0.01, clipping="dim", sigma_dp=0.5)
    return Mechanism(privacy, Participation(**{"population": 1000, "cohort_size": 20} | participation), PARTITION)


def test_z_is_sigma_times_the_cohort():
    assert make().z == pytest.approx(0.5 * 20)
    assert make().sampling_prob == 0.02
    assert make().divisor == pytest.approx(20)
    assert make(sampling="everyone").z == pytest.approx(0.5 * 1000)
    assert make(sampling="fixed").z == pytest.approx(0.5 * 20 / 2)
    weighted = make(weight="seconds", weight_bound=60.0, weight_total=30_000.0)
    assert weighted.z == pytest.approx(0.5 * 0.02 * 30_000 / 60)
    assert weighted.divisor == pytest.approx(600)


def test_q_min_divides_by_the_cohorts_weight_but_never_by_less():
    mech = make(q_min=0.01)
    assert mech.divisor == pytest.approx(10)
    total = torch.tensor([2**40, -(2**40), 7])
    mech.shrink_(total, 10 * WEIGHTS)
    assert total.tolist() == [2**40, -(2**40), 7]
    mech.shrink_(total, 25 * WEIGHTS)
    assert total.tolist() == [round(2**40 * 0.4), -round(2**40 * 0.4), 3]
    assert make().divisor == pytest.approx(20)
    make().shrink_(total, 1000 * WEIGHTS)  # without q_min nothing depends on who came
    assert total.tolist() == [round(2**40 * 0.4), -round(2**40 * 0.4), 3]


@settings(deadline=None)
@given(
    others=st.integers(0, 30),
    direction=st.sampled_from([-1.0, 0.0, 1.0]),
    weight=st.integers(1, WEIGHTS),
    q_min=st.floats(0.001, 0.02),
)
def test_with_q_min_one_user_moves_the_sum_by_at_most_the_sensitivity(others, direction, weight, q_min):
    mech = make(weight="seconds", weight_bound=60.0, weight_total=60_000.0, q_min=q_min)
    ones = torch.ones(sum(SIZES))  # everyone pulls in one direction, the one user in any
    without, alone = torch.zeros(2, sum(SIZES), dtype=torch.int64)
    add_clipped_(without, ones, WEIGHTS, mech, 2**62)
    without *= others
    add_clipped_(alone, direction * ones, weight, mech, 2**62)
    joined = without + alone
    mech.shrink_(without, others * WEIGHTS)
    mech.shrink_(joined, others * WEIGHTS + weight)
    moved = sum(int(difference) ** 2 for difference in joined - without)
    assert moved <= Fraction(mech.sensitivity) ** 2 * Fraction(60.0 * 0.01 / mech.resolution) ** 2
    assert mech.z == pytest.approx(0.5 * q_min * 60_000 / (2 * 60), rel=1e-6)
    assert mech.z < 0.5 * q_min * 60_000 / (2 * 60)


def test_weighted_needs_layers_of_mlps():
    privacy = Privacy(clip_norm=0.01, clipping="weighted", layer_weights={"mlp": 2.0})
    mech = Mechanism(privacy, Participation(population=9, cohort_size=3), make_partition(NAMES, SIZES, "block", ROLES))
    with pytest.raises(ConfigError, match="no layer consists of 'mlp' alone"):
        _ = mech.clip_norms


def test_the_noise_on_the_average_has_the_asked_std_whatever_the_weights():
    for mech in (make(), make(q_min=0.01), make(weight="utterances", weight_bound=7.0, weight_total=5000.0)):
        (std,) = set(mech.noise_stds)
        assert std * mech.resolution / mech.divisor == pytest.approx(0.5 * 0.01)
        assert Fraction(std) * Fraction(mech.resolution) >= Fraction(0.5) * Fraction(0.01) * Fraction(mech.divisor)


def test_the_right_sigma_is_accepted_and_others_are_not():
    mech = make()
    total = torch.zeros(sum(SIZES) * 20, dtype=torch.int64)
    many = make_partition(["w"], [total.numel()], "tensor")
    for rng in (stream(0, "noise", 1), SecureRandomness()):
        total.zero_()
        Gaussian().add_(total, stds=[mech.noise_stds[0]], partition=many, rng=rng, state=NoiseState())
        average = mech.average(total).double().numpy()
        for factor, accepted in ((1.0, True), (2 / 3, False), (3 / 2, False)):
            p = stats.kstest(average, stats.norm(scale=0.5 * 0.01 * factor).cdf).pvalue
            assert (p > 1e-6) == accepted


def test_secure_draws_have_their_distributions():
    rng = SecureRandomness()
    gaps = rng.geometric(0.02, 200_000)
    assert gaps.min() == 1
    assert gaps.mean() == pytest.approx(50, rel=0.02)
    assert (gaps == 1).mean() == pytest.approx(0.02, rel=0.1)
    members = [len(make().draw_cohort(1000, rng)) for _ in range(500)]
    assert np.mean(members) == pytest.approx(20, abs=1.0)
    assert np.var(members) == pytest.approx(1000 * 0.02 * 0.98, rel=0.3)
    assert sorted(rng.choice(10, 10, replace=False)) == list(range(10))


def test_where_a_step_may_add_nothing_the_guarantee_is_that_of_updates_against_zeros_at_the_same_cost():
    usual, masked = make(), make(all_or_nothing=True)
    assert (usual.adjacency, masked.adjacency) == (ADD_OR_REMOVE, ZERO_OUT)
    assert masked.z == usual.z
    assert account_for(masked.spent(10), 1e-9).epsilons == account_for(usual.spent(10), 1e-9).epsilons


def test_cohorts_of_fixed_size_and_everyone():
    assert make(sampling="everyone").draw_cohort(7, stream(0, "c")).tolist() == list(range(7))
    fixed = make(sampling="fixed").draw_cohort(1000, stream(0, "c"))
    assert len(set(fixed.tolist())) == 20
    with pytest.raises(
        PrivacyError, match=r"cohorts of 20 are a larger share than the 0\.02 that is accounted"
    ) as error:
        make(sampling="fixed").draw_cohort(999, stream(0, "c"))
    assert "fewer users than participation.population=1000" in str(error.value)
    assert "999" not in str(error.value)  # how many users the store has is private
    assert make(cohort_size=1000).draw_cohort(1000, stream(0, "c")).tolist() == list(range(1000))  # q = 1


def test_per_layer_bounds_add_up_to_the_whole():
    for kind in ("uniform", "dim", "root", "weighted"):
        norms = make(Privacy(clip_norm=0.01, clipping=kind, layer_weights={"mlp": 3.0})).clip_norms
        assert math.hypot(*norms) == pytest.approx(0.01, rel=1e-12)


def test_noise_on_a_group_voids_the_guarantee():
    def stds(group, inside, outside):
        analysis = NoiseAnalysis(group=group, inside=inside, outside=outside)
        mech = make(Privacy(clip_norm=0.01, clipping="dim", sigma_dp=0.5, noise_analysis=analysis))
        assert "noise differs" in mech.privacy.void
        full = make().noise_stds[0]
        return [std / full for std in mech.noise_stds]

    assert stds("mlp", 1, 0) == [0, 0, 1, 1, 0]
    assert stds("mlp", 0, 1) == [1, 1, 0, 0, 1]
    assert stds("w1", 0.5, 1) == [1, 1, 0.5, 1, 1]
    assert stds("rest", 1, 0) == [1, 0, 0, 0, 1]
    assert stds("ln", 1, 0) == [0, 1, 0, 0, 0]
    assert make().privacy.void is None
    assert "no noise" in make(Privacy(clip_norm=1.0, clipping="dim")).privacy.void
    assert "not clipped" in make(Privacy(clip_norm=1.0, sigma_dp=1.0)).privacy.void


def test_what_does_not_fit_into_exact_sums_is_refused():
    with pytest.raises(PrivacyError, match="do not fit into exact sums"):
        make().require_range(2**24)
    with pytest.raises(PrivacyError, match="do not fit into exact sums"):
        make(Privacy(clip_norm=1.0, clipping="dim", sigma_dp=1e6)).require_range(10)
    make().require_range(2**23)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cohort_size": 2000}, "cohort_size=2000 <= population=1000"),
        ({"weight": "seconds"}, "Expected weight_total"),
        ({"weight_bound": 2.0}, "weight is one"),
        ({"sampling": "fixed", "cohort_size": 2.5}, "whole cohort_size"),
        ({"sampling": "fixed", "all_or_nothing": True}, "Expected Poisson sampling where a step may add nothing"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)
    with pytest.raises(ValueError, match="clipping and noise are measured in it"):
        Privacy(sigma_dp=1.0)
    with pytest.raises(PrivacyError, match="population is required"):
        _ = Mechanism(Privacy(), Participation(), PARTITION).sampling_prob
