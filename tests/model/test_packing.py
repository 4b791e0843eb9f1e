"""Packed matrices, attention on them, and products that collect their own gradients: checked against plain PyTorch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.model import attention
from sottovoce.model.attention import dropout, self_attention
from sottovoce.model.conformer_options import ConformerOptions
from sottovoce.model.encoder import make_initialised
from sottovoce.model.flat import FlatModel
from sottovoce.model.linear import linear, set_gradient_home
from sottovoce.model.packing import Packing
from sottovoce.model.transformer_options import TransformerOptions

HEADS, CHANNELS = 2, 4
WIDTH = HEADS * CHANNELS
RELATIVE = {"positions": "relative", "max_distance": 20}
LENGTHS = st.lists(st.integers(1, 90), min_size=1, max_size=12)


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(LENGTHS, st.integers(0, 5))
@settings(deadline=None, max_examples=50)
def test_packing_takes_the_padding_away_and_spans_hold_every_row_once(counts, spare):
    outputs, longest = torch.tensor(counts), max(counts) + spare
    padded = noise(len(counts), longest, 3)
    packing = Packing.of(outputs, longest)
    packed = packing.pack(padded)
    assert torch.equal(packed, torch.cat([padded[row, :count] for row, count in enumerate(counts)]))
    clear = padded * (torch.arange(longest) < outputs[:, None])[..., None]
    assert torch.equal(packing.unpack(packed), clear)
    assert torch.equal(packing.unpack_clear(packed), clear)
    kept = Packing.kept(outputs, longest)
    assert torch.equal(kept.unpack_clear(kept.pack(padded)), clear)
    assert sum(span.rows for span in packing.spans) == len(counts)
    assert [span.first for span in packing.spans] == [0, *(span.last for span in packing.spans[:-1])]
    assert packing.spans[-1].last == len(packed)
    for span in packing.spans:
        assert torch.equal(span.strip(span.pad(packed)), packed[span.first : span.last])


def written_out(qkv, counts, dropout_prob, relative=None):
    """Attention row by row, as it is defined; with dropout all rows have the same length."""
    weights, values = [], []
    for row in torch.split(qkv, counts):
        q, k, v = row.view(len(row), 3, HEADS, CHANNELS).permute(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2)
        if relative is not None:  # a vector for every pair of outputs
            furthest, places = len(relative) // 2, torch.arange(len(row))
            distance = (places - places[:, None]).clamp(-furthest, furthest)
            scores = scores + torch.einsum("hic,ijc->hij", q, relative[distance + furthest])
        weights.append((scores / CHANNELS**0.5).softmax(-1))
        values.append(v)
    kept = dropout(torch.stack(weights), dropout_prob) if dropout_prob else weights
    return torch.cat([(row @ value).transpose(0, 1).flatten(1) for row, value in zip(kept, values, strict=True)])


@pytest.mark.parametrize("long", [512, 0])
@given(counts=LENGTHS)
@settings(deadline=None, max_examples=20)
def test_attention_and_its_gradient_are_those_of_the_definition(long, counts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_LONG_OUTPUTS", long)  # 0: PyTorch's own attention
        qkv = noise(sum(counts), 3 * WIDTH).requires_grad_()
        packing = Packing.of(torch.tensor(counts), max(counts))
        found, expected = self_attention(qkv, HEADS, packing, 0.0), written_out(qkv, counts, 0.0)
        assert (found - expected).abs().max() < 1e-12
        above = noise(*found.shape, seed=1)
        (mine,), (theirs,) = (torch.autograd.grad(result, qkv, above) for result in (found, expected))
        assert (mine - theirs).abs().max() < 1e-12


@pytest.mark.parametrize("way", ["products", "fused", "padded"])
@given(counts=LENGTHS, furthest=st.integers(1, 100))
@settings(deadline=None, max_examples=20)
def test_relative_positions_and_their_gradient_are_those_of_the_definition(way, counts, furthest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_LONG_OUTPUTS", 512 if way == "products" else 0)
        outputs, longest = torch.tensor(counts), max(counts)
        packing = (Packing.kept if way == "padded" else Packing.of)(outputs, longest)
        qkv, relative = noise(sum(counts), 3 * WIDTH).requires_grad_(), noise(2 * furthest + 1, CHANNELS, seed=2)
        relative.requires_grad_()
        packed = Packing.without_padding(outputs, longest)
        given_qkv = packed.unpack(qkv).flatten(0, 1) if way == "padded" else qkv
        found = self_attention(given_qkv, HEADS, packing, 0.0, relative)
        found = packed.pack(packing.unpack(found)) if way == "padded" else found
        expected = written_out(qkv, counts, 0.0, relative)
        assert (found - expected).abs().max() < 1e-12
        above = noise(*found.shape, seed=1)
        mine, theirs = (torch.autograd.grad(result, (qkv, relative), above) for result in (found, expected))
        for own, their in zip(mine, theirs, strict=True):
            assert (own - their).abs().max() < 1e-11


def test_frozen_relative_positions_leave_the_gradient_of_queries_as_it_is():
    qkv, relative = noise(20, 3 * WIDTH).requires_grad_(), noise(7, CHANNELS, seed=2)
    packing = Packing.of(torch.tensor([20]), 20)
    found, expected = self_attention(qkv, HEADS, packing, 0.0, relative), written_out(qkv, [20], 0.0, relative)
    (mine,), (theirs,) = (torch.autograd.grad(result.square().sum(), qkv) for result in (found, expected))
    assert (mine - theirs).abs().max() < 1e-12


@pytest.mark.parametrize("relative", [None, noise(9, CHANNELS, seed=2)])
def test_attention_drops_weights_as_dropout_does(relative):
    counts = [11, 11, 11]
    qkv = noise(33, 3 * WIDTH).requires_grad_()
    packing = Packing.of(torch.tensor(counts), 11)
    results = []
    for attend in (
        lambda: self_attention(qkv, HEADS, packing, 0.25, relative),
        lambda: written_out(qkv, counts, 0.25, relative),
    ):
        torch.manual_seed(3)
        results.append(attend())
    assert (results[0] - results[1]).abs().max() < 1e-12
    assert (results[0] - self_attention(qkv, HEADS, packing, 0.0, relative)).abs().max() > 0.1
    mine, theirs = (torch.autograd.grad(result, qkv, noise(33, WIDTH, seed=1))[0] for result in results)
    assert (mine - theirs).abs().max() < 1e-12


@pytest.mark.parametrize("residual", [False, True])
def test_a_product_is_pytorchs_with_or_without_a_home_for_its_gradient(residual):
    x, weight, rest = noise(5, 3).requires_grad_(), noise(4, 3, seed=1).requires_grad_(), noise(5, 4, seed=2)
    rest.requires_grad_(residual)
    inputs = [x, weight, rest] if residual else [x, weight]
    plain = torch.nn.functional.linear(x, weight) + (rest if residual else 0)
    expected = torch.autograd.grad(plain.square().sum(), inputs)
    assert torch.autograd.gradcheck(linear, inputs)
    home = torch.full_like(weight, torch.nan)
    set_gradient_home(weight, home.detach())
    for times in (1, 2):
        linear(*inputs).square().sum().backward()
        assert torch.allclose(home, times * expected[1])
    assert weight.grad is not None
    assert torch.allclose(x.grad, 2 * expected[0])
    if residual:
        assert torch.allclose(rest.grad, 2 * expected[2])


@pytest.mark.parametrize(
    "options",
    [
        TransformerOptions(blocks=2, width=16, heads=2, mlp_width=24, dropout=0.0, layer_drop=0.0),
        TransformerOptions(blocks=2, width=16, heads=2, mlp_width=24, dropout=0.0, layer_drop=0.0, norm="post"),
        ConformerOptions(blocks=2, width=16, heads=2, mlp_width=24, kernel=5, dropout=0.0, layer_drop=0.0),
        *(
            options(blocks=2, width=16, heads=2, mlp_width=24, dropout=0.0, layer_drop=0.0, **RELATIVE)
            for options in (TransformerOptions, ConformerOptions)
        ),
    ],
)
def test_encoders_compute_the_same_with_and_without_padding(options, monkeypatch):
    """Other devices keep padding in the packing and use PyTorch's attention; both ways are compared on a CPU."""
    frames = torch.tensor([100, 97, 40, 1])
    features = noise(4, 110, 80)
    results = []
    for way in (Packing.without_padding, Packing.kept):
        monkeypatch.setattr(Packing, "of", way)
        monkeypatch.setattr(attention, "_LONG_OUTPUTS", 512 if way == Packing.without_padding else 0)
        encoder = make_initialised(options, 7, 0).double()
        flat = FlatModel(encoder)
        with flat.new_gradient():
            scores, outputs = encoder(features, frames)
            real = torch.cat([row[:count] for row, count in zip(scores, outputs.tolist(), strict=True)])
            (real * noise(*real.shape, seed=1)).sum().backward()
        results.append((real.detach(), flat.gradient.clone()))
    for mine, theirs in zip(*results, strict=True):
        assert (mine - theirs).abs().max() < 1e-9 * theirs.abs().max()


def test_a_new_gradient_replaces_the_old_one_and_adds_up_backward_passes():
    options = TransformerOptions(blocks=1, width=16, heads=2, mlp_width=24, dropout=0.0, layer_drop=0.0)
    encoder = make_initialised(options, 7, 0)
    flat = FlatModel(encoder)
    flat.gradient.fill_(torch.nan)
    features, frames = noise(1, 20, 80).float(), torch.tensor([20])

    def gradient(times):
        with flat.new_gradient():
            for _ in range(times):
                encoder(features, frames)[0].square().sum().backward()
        return flat.gradient.clone()

    once = gradient(1)
    assert torch.allclose(gradient(2), 2 * once)
    assert torch.equal(gradient(1), once)
    assert all(parameter.grad.data_ptr() >= flat.gradient.data_ptr() for parameter in encoder.parameters())
    assert not gradient(0).any()
