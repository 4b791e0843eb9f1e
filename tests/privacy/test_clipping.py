"""What is summed has at most the norm C, as integers, whatever the delta."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sottovoce.model.partition import make_partition
from sottovoce.model.roles import role_by_name
from sottovoce.model.transformer import Transformer
from sottovoce.privacy.clipping import add_clipped_, clip_factors
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy

NAMES = ("conv.weight", "blocks.0.ln1.weight", "blocks.0.w1.weight", "blocks.0.w2.weight", "output.bias")
SIZES = (7, 1, 40, 3, 20)
ROLES = [role_by_name(name, Transformer.groups) for name in NAMES]
KINDS = ("global", "uniform", "dim", "root", "weighted")


def mechanism(kind="global", rule="clip", clip_norm=0.01, partition="tensor", **participation):
    privacy = Privacy(clip_norm=clip_norm, clipping=kind, rule=rule, layer_weights={"mlp": 2.0})
    options = Participation(population=100, cohort_size=10, **participation)
    return Mechanism(privacy, options, make_partition(NAMES, SIZES, partition, ROLES))


def clipped(delta, mech, weight=WEIGHTS):
    total = torch.zeros(sum(SIZES), dtype=torch.int64)
    add_clipped_(total, delta, weight, mech, 2**62)
    return total


floats = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 1e-3, 1.0]),
)
deltas = st.one_of(
    st.lists(floats, min_size=sum(SIZES), max_size=sum(SIZES)),
    st.tuples(st.integers(0, sum(SIZES) - 1), floats).map(lambda at: [at[1] * (i == at[0]) for i in range(sum(SIZES))]),
    floats.map(lambda value: [value] * sum(SIZES)),
)


@given(
    deltas,
    st.sampled_from(KINDS),
    st.sampled_from(["clip", "normalize"]),
    st.sampled_from([1e-8, 0.01, 0.3, 1.0, 123.0]),
    st.sampled_from(["tensor", "block", "kind"]),
    st.sampled_from([1e-3, 1.0, 60.0]),
    st.integers(0, WEIGHTS),
)
@settings(deadline=None, max_examples=300)
def test_the_integers_never_exceed_the_bound(delta, kind, rule, clip_norm, partition, weight_bound, weight):
    assume(kind != "weighted" or partition != "block")
    weights = {"weight": "seconds", "weight_bound": weight_bound, "weight_total": 1e6}
    mech = mechanism(kind, rule, clip_norm, partition, **weights)
    total = clipped(torch.tensor(delta, dtype=torch.float32), mech, weight)
    parts = np.split(np.array(total.tolist(), dtype=object), np.cumsum(SIZES)[:-1])
    squares = [sum(int(value) ** 2 for value in part) for part in parts]
    assert sum(squares) <= (2**38) ** 2
    if kind != "global" and rule == "clip":  # a small delta is left alone by `normalize`, whatever its layers
        for layer, bound in enumerate(mech.clip_norms):
            mine = sum(s for s, of in zip(squares, mech.partition.tensor_layers, strict=True) if of == layer)
            assert mine <= (weight_bound * bound / mech.resolution) ** 2


@given(
    st.lists(st.floats(1e-30, 1e30), min_size=len(SIZES), max_size=len(SIZES)),
    st.sampled_from(KINDS),
    st.sampled_from(["clip", "normalize"]),
)
def test_norms_are_enlarged_by_more_than_they_can_be_off(norms, kind, rule):
    # Rounding toward zero nearly always hides an error of this size: so this is tested on the factors themselves.
    mech = mechanism(kind, rule)
    off = 1 + Fraction(sum(SIZES), 2**53)  # of a sum of so many squares and its root, in whatever order it adds
    lengths = [Fraction(norm) * off for norm in norms]
    factors = clip_factors(torch.tensor(norms, dtype=torch.float64), mech).tolist()
    products = [Fraction(factor) * length for factor, length in zip(factors, lengths, strict=True)]
    assert sum(product**2 for product in products) <= Fraction(0.01) ** 2
    if kind != "global" and sum(length**2 for length in lengths) > Fraction(0.011) ** 2:
        assert all(product <= Fraction(bound) for product, bound in zip(products, mech.clip_norms, strict=True))


@given(deltas, st.sampled_from(KINDS))
@settings(deadline=None)
def test_little_is_lost(delta, kind):
    delta = torch.tensor(delta, dtype=torch.float32)
    mech = mechanism(kind)
    found = clipped(delta, mech).double() * mech.resolution
    factors = clip_factors(mech.partition.norms(delta), mech)
    exact = delta.double() * torch.cat([factors[i].expand(size) for i, size in enumerate(SIZES)])
    assert ((found - exact).abs() <= mech.resolution).all()
    assert (found.abs() <= exact.abs() * (1 + 1e-12) + 1e-30).all()  # toward zero


def test_worked_arithmetic():
    delta = torch.zeros(sum(SIZES))
    delta[0], delta[8] = 3.0, 4.0  # |delta| = 5, in two layers
    assert clipped(delta, mechanism(clip_norm=1.0)).double().mul(2.0**-38)[[0, 8]].tolist() == pytest.approx([0.6, 0.8])
    uniform = clipped(delta, mechanism("uniform", clip_norm=1.0)).double() * 2.0**-38
    assert uniform[[0, 8]].tolist() == pytest.approx([1 / math.sqrt(5)] * 2)
    dim = clipped(delta, mechanism("dim", clip_norm=1.0)).double() * 2.0**-38
    assert dim[[0, 8]].tolist() == pytest.approx([math.sqrt(7 / 71), math.sqrt(40 / 71)])
    weighted = mechanism("weighted", clip_norm=1.0).clip_norms
    assert weighted == pytest.approx([math.sqrt(d / (71 + 43)) for d in (7, 1, 80, 6, 20)])
    half = clipped(delta, mechanism(clip_norm=1.0), WEIGHTS // 2).double() * 2.0**-38
    assert half[[0, 8]].tolist() == pytest.approx([0.3, 0.4])


def test_normalize_leaves_small_deltas_and_raises_small_layers():
    delta = torch.zeros(sum(SIZES))
    delta[0], delta[8] = 0.3, 1e-3
    assert torch.allclose(clipped(delta, mechanism("dim", "normalize", 1.0)).double() * 2.0**-38, delta.double())
    delta[0] = 5.0
    raised = clipped(delta, mechanism("dim", "normalize", 1.0)).double() * 2.0**-38
    assert raised[[0, 8]].tolist() == pytest.approx([math.sqrt(7 / 71), math.sqrt(40 / 71)])
    assert raised[7] == 0  # a layer of zeros stays


def test_one_layer_is_global_clipping():
    delta = torch.randn(sum(SIZES), generator=torch.Generator().manual_seed(0))
    one = make_partition(["w1"], [sum(SIZES)], "tensor", [role_by_name("w1", Transformer.groups)])
    found = []
    for kind in KINDS:
        mech = Mechanism(Privacy(clip_norm=0.01, clipping=kind), Participation(population=10, cohort_size=2), one)
        total = torch.zeros(sum(SIZES), dtype=torch.int64)
        add_clipped_(total, delta, WEIGHTS, mech, 2**62)
        found.append(total)
    assert all(torch.equal(total, found[0]) for total in found)


def test_without_clipping_too_much_counts_as_nothing_and_never_wraps_around():
    mech = Mechanism(Privacy(), Participation(population=10, cohort_size=2), make_partition(NAMES, SIZES, "tensor"))
    delta = torch.full((sum(SIZES),), 2.0)
    total = torch.zeros(sum(SIZES), dtype=torch.int64)
    largest = mech.require_range(3)
    assert add_clipped_(total, delta, WEIGHTS, mech, largest) is not None
    assert (total == 2 * 2**40).all()
    assert add_clipped_(total, delta * 2**22, WEIGHTS, mech, largest) is None
    assert (total == 2 * 2**40).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_a_delta_that_is_not_finite_adds_nothing(kind, bad):
    mech = mechanism(kind)
    delta = torch.ones(sum(SIZES))
    delta[3] = bad
    total = torch.full((sum(SIZES),), 5)
    assert add_clipped_(total, delta, WEIGHTS, mech, 2**62) is None
    assert (total == 5).all()
