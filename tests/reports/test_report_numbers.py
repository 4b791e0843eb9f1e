"""What a page computes: pooled norms, the imbalance of layers, axes, and the terms of the convergence bound."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.model.partition import WHOLE, make_partition
from sottovoce.model.roles import TensorRole, role_by_name
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.reports.drawing.charts import log_ticks, thinned
from sottovoce.reports.drawing.numbers import count, epsilon, number, percent
from sottovoce.reports.reading.convergence import BoundEstimates, bound_terms
from sottovoce.reports.reading.layers import Place, Pooled, imbalance_of, place_of, pooled
from sottovoce.reports.reading.run_groups import RunGroup
from sottovoce.reports.sections.layer_figures import layer_picture
from sottovoce.reports.sections.speakers import worst_tenth
from sottovoce.runs.documents import ClaimedEpsilon


def test_numbers_are_readable_and_epsilon_is_never_rounded_down():
    assert [percent(0.2123), percent(None), percent(math.nan)] == ["21.2", "–", "–"]
    assert [number(3e-6), number(0.5), number(1234567.0), number(None)] == ["3e-6", "0.5", "1.23e6", "–"]
    assert [count(34753), count(69_506_000), count(8.5), count(None)] == ["34,753", "69.506 million", "8.5", "–"]
    assert epsilon(95893.2) == "9.59e4"
    for value in (0.9871, 1.2341, 12.34, 95893.28, 1e-3):
        assert float(epsilon(value)) >= value


@given(st.lists(st.lists(st.floats(0.1, 10), min_size=1, max_size=6), min_size=1, max_size=5))
def test_pooling_steps_is_the_same_as_taking_all_users_at_once(steps):
    found = pooled((float(np.mean(users)), float(np.std(users)), len(users)) for users in steps)
    everyone = np.concatenate(steps)
    assert found.mean == pytest.approx(everyone.mean())
    assert found.std == pytest.approx(everyone.std(), abs=1e-7)
    assert found.count == len(everyone)
    assert found.rms == pytest.approx(np.sqrt(np.mean(everyone**2)))


def test_steps_without_users_count_for_nothing():
    assert pooled([(1.0, 0.0, 0), (2.0, 0.0, 3)]) == Pooled(2.0, 0.0, 3)
    assert pooled([(1.0, 0.0, 0)]) is None


def test_imbalance_is_one_where_layers_move_by_their_size():
    sizes = {"a": 100, "b": 300, "c": 600}
    even = imbalance_of({name: Pooled(0.1 * math.sqrt(size), 0.0, 1) for name, size in sizes.items()}, sizes)
    assert (even.least, even.median, even.most) == pytest.approx((1, 1, 1))
    # |Delta|^2 = 9 + 16 = 25, D = 400: (3/5) / sqrt(1/4) = 1.2 and (4/5) / sqrt(3/4).
    found = imbalance_of({"a": Pooled(3.0, 0.0, 1), "b": Pooled(4.0, 0.0, 1)}, sizes)
    assert found.ratios == pytest.approx({"a": 1.2, "b": 0.8 / math.sqrt(0.75)})
    assert sum(ratio**2 * sizes[name] / 400 for name, ratio in found.ratios.items()) == pytest.approx(1)
    few = imbalance_of({"a": Pooled(1.0, 0.0, 1), "b": Pooled(0.1, 0.0, 1), "c": Pooled(1.0, 0.0, 1)}, sizes)
    assert few.ratios["b"] < 0.15 < few.ratios["c"]
    assert (few.share_far_below, found.share_far_below) == (0, 0)
    few = imbalance_of({"a": Pooled(1.0, 0.0, 1), "b": Pooled(0.05, 0.0, 1), "c": Pooled(0.06, 0.0, 1)}, sizes)
    assert few.share_far_below == pytest.approx(0.9)
    assert imbalance_of({"unknown": Pooled(1.0, 0.0, 1)}, sizes) is None
    assert imbalance_of({}, sizes) is None


def test_layers_of_every_partition_have_a_place():
    assert place_of("blocks.3.wqkv.weight") == Place("wqkv", "weight", 3)
    assert place_of("blocks.12.ln1.bias") == Place("ln1", "bias", 12)
    assert place_of("blocks.3") == Place("block", "", 3)
    assert place_of("w1") == Place("w1", "", None)
    assert place_of("conv.weight") == Place("rest", "", None)


def test_layers_of_another_encoder_are_placed_by_its_roles():
    tensors = ["stem.weight", "layers.0.attention.key.weight", "layers.0.attention.query.weight", "layers.1.mlp.bias"]
    roles = [role_by_name(tensor, {}) for tensor in tensors]
    placed = {
        name: [place_of(layer, partition) for layer in partition.layers]
        for name in ("tensor", "block", "kind")
        if (partition := make_partition(tensors, [1] * 4, name, roles))
    }
    assert placed["tensor"] == [
        Place("rest", "", None),
        Place("attention.key", "weight", 0),
        Place("attention.query", "weight", 0),
        Place("mlp", "bias", 1),
    ]
    assert placed["block"] == [Place("stem", "", None), Place("block", "", 0), Place("block", "", 1)]
    kinds = make_partition([*tensors, "layers.1.attention.key.weight"], [1] * 5, "kind")
    assert [place_of(layer, kinds) for layer in kinds.layers[:2]] == [
        Place("rest", "", None),
        Place("attention", "", None),
    ]
    own = make_partition(["a", "b"], [1, 1], "tensor", [TensorRole("blocks.2", "gate"), TensorRole("blocks.2", "up")])
    assert [place_of(layer, own) for layer in own.layers] == [Place("gate", "", 2), Place("up", "", 2)]


def test_kinds_of_layers_come_in_the_order_of_the_model():
    layers = ["blocks.0.zeta.weight", "blocks.0.alpha.weight", "blocks.0.alpha.bias", "blocks.1.zeta.weight", "conv"]
    group = RunGroup("run", (), "#3f7fd4")
    picture = layer_picture("test", "A test", [(group, {layer: Pooled(1.0, 0.1, 1) for layer in layers})])
    titles = [re.search("zeta|alpha|outside the blocks", panel.svg)[0] for panel in picture.panels]
    assert titles == ["zeta", "alpha", "outside the blocks"]
    assert [entry.label for entry in picture.legend] == ["biases"]


def test_the_tightest_epsilon_is_the_smaller_bound():
    assert Epsilons(3.0, 2.5).tightest == 2.5
    assert Epsilons(3.0, None).tightest == 3.0
    sizes = {"cohort_size": 2, "population": 4, "central_steps": 1}
    assert ClaimedEpsilon(**sizes, epsilon_rdp=3.0, epsilon_pld=None).epsilon == Epsilons(3.0, None)
    assert ClaimedEpsilon(**sizes).epsilon.tightest is None


@given(st.floats(-12, 12), st.floats(0.01, 20))
def test_a_logarithmic_axis_has_a_few_round_labels(low, decades):
    ends = 10**low, 10 ** (low + decades)
    ticks = log_ticks(*ends)
    assert 1 <= len(ticks) <= 7
    assert ticks == sorted(ticks)
    assert all(ends[0] <= tick <= ends[1] for tick in ticks)
    if decades > 0.3:
        assert len(ticks) >= 3


def test_a_thinned_curve_keeps_its_mean():
    xs, ys = list(range(1000)), [float(x % 7) for x in range(1000)]
    few, means = thinned(xs, ys, 250)
    assert len(few) == 250
    assert sum(means) / 250 == pytest.approx(sum(ys) / 1000)
    assert thinned([1], [2.0]) == ([1.0], [2.0])
    assert thinned([], []) == ([], [])


def test_the_worst_tenth_is_at_least_one_speaker():
    assert worst_tenth([0.1, 0.5, 0.3]) == 0.5
    assert worst_tenth([place / 100 for place in range(20)]) == pytest.approx(0.185)


# The bound

TWO_LAYERS = BoundEstimates(
    local_lr=0.1, local_steps=5, central_lr=0.01, steps=100, sampling_prob=0.5, xi=0.1,
    clip_norm=0.5, clip_norms={"a": 0.3, "b": 0.4}, sigma_dp=0.2, sizes={"a": 10, "b": 20}, trust={"a": 2.0, "b": 3.0},
    gradients={"a": 0.5, "b": 0.7}, variances={"a": 0.01, "b": 0.04}, local_variance=1.5, global_variance=0.25,
    smoothness=4.0, first_loss=30.0,
)  # fmt: skip


def test_every_term_is_what_the_theorems_print():
    e2, q, xi2 = 0.5**2, 0.5, 0.01
    m2 = {"a": 0.25, "b": 0.49}
    sums = 0.25 / 0.09 + 0.49 / 0.16
    p2 = {"a": 19.0**2, "b": 29.0**2}  # R / xi - 1
    scaled = 0.25 * p2["a"] + 0.49 * p2["b"]
    varied = 4 * 0.25 / 0.09 * 0.01 + 9 * 0.49 / 0.16 * 0.04
    noise = 0.25 * 0.04 * (4 * 10 + 9 * 20)
    total = sum(m2.values())
    expected = {
        "optimization": (60.0, 60.0, 0.1),
        "global update noise": (16 * 2 * e2 * 0.25, 20 * 2 * e2 * 0.25, 0.05 * 0.25),
        "local update noise": (32 * 2 * e2 * 1.5, 40 * 2 * e2 * 1.5, 0.05 * 1.5),
        "DP noise": (noise / xi2, noise / xi2, noise),
        "drift of local steps": (2 * e2 * total * 16 * 16 * e2, 5 * e2 * total * 8 * 16 * e2, None),
        "clipping bias": (2 * e2 * sums, 5 * e2 * sums / (2 * q), 0.05 * sums),
        "adaptive scaling": (2 * e2 * 4 * scaled, 5 * e2 * scaled / q, None),
        "sampling of users": (0.0, 5 * e2 * total * (1 - q) / q, None),
        "variance of updates": (4 * e2 / xi2 * varied, 5 * e2 / (q * xi2) * varied, 0.05 * varied),
    }
    found = {term.name: (term.theorem2, term.theorem3, term.corollary) for term in bound_terms(TWO_LAYERS)}
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        for one, other in zip(found[name], values, strict=True):
            assert one == (None if other is None else pytest.approx(other)), name


def test_kappa_is_negative_at_the_papers_own_rates():
    paper = replace(TWO_LAYERS, local_lr=0.2, local_steps=10)
    assert [paper.kappa(8), paper.kappa(10)] == pytest.approx([-7, -9])
    assert TWO_LAYERS.kappa(8) == pytest.approx(-1)
    assert replace(TWO_LAYERS, local_steps=10).kappa(10) == pytest.approx(1)


def test_the_bound_in_its_limits():
    def value(found, name):
        return next(term for term in bound_terms(found) if term.name == name)

    unclipped = replace(TWO_LAYERS, clip_norms=None, clip_norm=None)
    for name in ("clipping bias", "variance of updates", "DP noise"):
        assert value(unclipped, name).theorem2 == 0
    whole = replace(TWO_LAYERS, clip_norms={WHOLE: 0.5}, variances={WHOLE: 0.05})
    assert value(whole, "clipping bias").theorem2 == pytest.approx(2 * 0.25 * (0.25 + 0.49) / 0.25)
    everyone = replace(TWO_LAYERS, sampling_prob=1.0)
    assert value(everyone, "sampling of users").theorem3 == 0
    older = replace(TWO_LAYERS, gradients=None, smoothness=None, local_variance=None, global_variance=None)
    known = {term.name for term in bound_terms(older) if term.theorem2 is not None}
    assert known == {"optimization", "DP noise"}
