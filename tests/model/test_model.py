import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.config import resolve
from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError
from sottovoce.model.attention import dropout
from sottovoce.model.cape import centred_positions, embed
from sottovoce.model.ctc import ctc_loss
from sottovoce.model.encoder import make_initialised, make_on_meta
from sottovoce.model.flat import FlatModel, encoder_partition
from sottovoce.model.hardware import Hardware
from sottovoce.model.packing import Packing
from sottovoce.model.recogniser import Recogniser, load_recogniser
from sottovoce.model.stack import KEPT
from sottovoce.model.transformer_options import TransformerOptions
from sottovoce.randomness import Streams

SMALL = TransformerOptions(blocks=3, width=32, heads=4, mlp_width=64, dropout=0.0, layer_drop=0.0)


def make(options=SMALL, seed=0):
    return make_initialised(options, 30, seed)


@pytest.mark.parametrize(
    ("preset", "parameters", "tensors"),
    [
        ("baseline", 255_800_864, 296),
        ("narrow", 36 * (12 * 512**2 + 4 * 512) + 80 * 7 * 1024 + 1024 + 2 * 512 + 512 * 30 + 30 + 2, 296),
        ("wide", 36 * (12 * 1024**2 + 4 * 1024) + 80 * 7 * 2048 + 2048 + 2 * 1024 + 1024 * 30 + 30 + 2, 296),
        ("shallow", 2 + 861_696 + 16 * 7_080_960 + 1_536 + 23_070, 136),
        ("tiny", 2 + 107_712 + 4 * (12 * 96**2 + 4 * 96) + 2 * 96 + 96 * 30 + 30, 40),
        ("small", 2 + 287_232 + 6 * (12 * 256**2 + 4 * 256) + 2 * 256 + 256 * 30 + 30, 56),
        ("deep", 2 + 861_696 + 72 * 7_080_960 + 1_536 + 23_070, 584),
    ],
)
def test_the_presets_have_their_sizes(preset, parameters, tensors):
    encoder = make_on_meta(resolve(preset).config.model, 30)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == parameters
    assert len(list(encoder.parameters())) == tensors


def test_post_layernorm_has_no_final_layernorm():
    pre = resolve("baseline").config.model
    encoder, before = (make_on_meta(options, 30) for options in (pre.model_copy(update={"norm": "post"}), pre))
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 255_800_864 - 2 * 768
    assert len(encoder_partition(encoder, "tensor")) == 294
    assert len(encoder_partition(encoder, "block")) == 36 + 4
    assert encoder_partition(encoder, "kind").layers == encoder_partition(before, "kind").layers
    assert encoder.values_per_output(100) == before.values_per_output(100) - 768


def test_post_layernorm_ends_with_that_of_the_last_block():
    encoder, seen = make(SMALL.model_copy(update={"norm": "post"})).eval(), []
    encoder.output.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    encoder(torch.randn(1, 90, 80), torch.tensor([90]))
    assert seen[0].mean(-1).abs().max() < 1e-5
    assert (seen[0].var(-1, correction=0) - 1).abs().max() < 1e-3


def test_relative_positions_are_a_part_of_every_block():
    options = SMALL.model_copy(update={"positions": "relative", "max_distance": 50})
    encoder, cape = make(options), make()
    assert len(list(encoder.parameters())) == len(list(cape.parameters())) + 3
    assert encoder.blocks[1].wr.weight.shape == (101, 8)
    assert 0.9 * 8**-0.5 < encoder.blocks[1].wr.weight.abs().max() <= 8**-0.5
    role = encoder.parameter_roles()["blocks.1.wr.weight"]
    assert (role.block, role.kind, role.groups) == ("blocks.1", "wr", {"attention"})
    assert encoder.draw_micro(Streams(0, (1,)), 0, 3) == {}
    assert "position_shifts" in cape.draw_micro(Streams(0, (1,)), 0, 3)


def test_relative_positions_are_all_that_tells_the_order():
    """Without positions, attention does not see the order: if the input is turned round, so is the output."""
    encoder = make(SMALL.model_copy(update={"positions": "relative"})).double().eval()
    x, packing = torch.randn(20, 32, dtype=torch.float64), Packing.of(torch.tensor([20]), 20)

    def turned_round():
        return (encoder.blocks[0](x.flip(0), packing).flip(0) - encoder.blocks[0](x, packing)).abs().max()

    assert turned_round() > 1e-2
    with torch.no_grad():
        encoder.blocks[0].wr.weight.zero_()
    assert turned_round() < 1e-12


def test_model_files_of_default_positions_say_what_they_always_said(tmp_path):
    kept = Recogniser.make(SMALL, TokenSet(("en",))).initialise(0)
    assert set(kept.description()["model"]) == {
        *("blocks", "width", "heads", "dropout", "layer_drop", "mlp_width", "norm")
    }
    options = SMALL.model_copy(update={"positions": "relative"})
    Recogniser.make(options, TokenSet(("en",))).initialise(0).save(tmp_path / "model.safetensors")
    assert load_recogniser(tmp_path).options == options
    with pytest.raises(ValueError, match="positions=relative only"):
        TransformerOptions(max_distance=7)


def test_partitions_of_the_baseline():
    encoder = make_on_meta(resolve("baseline").config.model, 30)
    assert len(encoder_partition(encoder, "tensor")) == 296
    blocks = encoder_partition(encoder, "block")
    assert len(blocks) == 36 + 5
    assert blocks.sizes[blocks.layers.index("blocks.7")] == 7_080_960
    kinds = encoder_partition(encoder, "kind")
    assert set(kinds.layers) == {"ln1", "wqkv", "wf", "ln2", "w1", "w2", "rest"}
    assert kinds.sizes[kinds.layers.index("wqkv")] == 36 * 3 * 768**2
    assert sum(kinds.sizes) == 255_800_864


@pytest.mark.parametrize("different", [{}, {"norm": "post"}, {"positions": "relative"}])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_an_utterance_does_not_depend_on_its_batch(different, dtype, tolerance):
    encoder = make(SMALL.model_copy(update=different)).to(dtype).eval()
    frames = torch.tensor([200, 1, 57, 58, 59, 60, 199])
    features = torch.randn(7, 230, 80, dtype=dtype, generator=torch.Generator().manual_seed(1))  # padding is garbage
    together, outputs = encoder(features, frames)
    for row, count in enumerate(frames.tolist()):
        alone, lengths = encoder(features[row : row + 1, :count], frames[row : row + 1])
        assert lengths.tolist() == [outputs[row]] == [-(-count // 3)]
        assert alone.shape[1] == outputs[row]
        assert (alone[0] - together[row, : outputs[row]]).abs().max() < tolerance


@given(st.integers(1, 500))
@settings(deadline=None, max_examples=25)
def test_three_frames_make_one_output(frames):
    scores, outputs = make().eval()(torch.zeros(1, frames, 80), torch.tensor([frames]))
    assert scores.shape[1] == int(outputs) == int(make().output_count(torch.tensor(frames))) == -(-frames // 3)


def test_the_convolution_is_pytorchs():
    encoder = make().double()
    with torch.no_grad():
        encoder.input_scale.fill_(1.3)
        encoder.input_bias.fill_(-0.4)
    frames = torch.tensor([50, 31])
    features = torch.randn(2, 50, 80, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for row, count in enumerate(frames.tolist()):
        mine = features[row : row + 1, :count]
        normal = (mine - mine.mean()) / (mine.var(correction=0) + 1e-5).sqrt() * 1.3 - 0.4
        expected = torch.nn.functional.conv1d(normal.transpose(1, 2), encoder.conv.weight, encoder.conv.bias, 3, 3)
        packing = Packing.of(encoder.output_count(frames), 17)
        found = packing.unpack(encoder.convolved(features, frames, packing))[row, : -(-count // 3)]
        assert (found - expected[0].T).abs().max() < 1e-12


def test_positions_follow_their_formula():
    positions = centred_positions(torch.tensor([5, 2]), 5, torch.float64)
    assert torch.allclose(positions[0], torch.tensor([-0.06, -0.03, 0.0, 0.03, 0.06], dtype=torch.float64))
    assert torch.allclose(positions[1, :2], torch.tensor([-0.015, 0.015], dtype=torch.float64))
    embedded = embed(positions, 8)
    for channel in range(8):
        frequency = 30 * 10_000 ** (-2 * (channel // 2) / 8)
        expected = np.sin(0.06 * frequency + np.pi / 2 * (channel % 2))
        assert embedded[0, 4, channel] == pytest.approx(expected, abs=1e-9)


def test_a_dropped_block_is_really_skipped():
    encoder = make().train()
    called = []
    for number, block in enumerate(encoder.blocks):
        block.register_forward_hook(lambda *_, number=number: called.append(number))
    scores, _ = encoder(torch.randn(1, 30, 80), torch.tensor([30]), {KEPT: np.array([True, False, True])})
    assert called == [0, 2]
    scores.sum().backward()
    assert all(parameter.grad is None for parameter in encoder.blocks[1].parameters())


def test_initialisation_is_the_references():
    options = TransformerOptions(blocks=2, width=64, heads=4, mlp_width=256)
    encoder = make(options)
    bounds = {
        "conv.weight": np.sqrt(3 / (80 * 7)),
        "conv.bias": 1 / np.sqrt(80 * 7),
        "output.weight": np.sqrt(3 / 64),
        "output.bias": 1 / np.sqrt(64),
        "blocks.1.wqkv.weight": np.sqrt(1 / 64),
        "blocks.1.w2.weight": np.sqrt(1 / 256),
    }
    for name, bound in bounds.items():
        values = encoder.get_parameter(name).detach()
        assert values.abs().max() <= bound
        if values.numel() > 500:
            assert values.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)
    for name, parameter in encoder.named_parameters():
        if "ln" in name or "input" in name:
            assert (parameter == (1 if name.endswith(("weight", "scale")) else 0)).all(), name


def test_parameters_and_gradients_are_views_into_two_vectors():
    encoder = make()
    before = {name: parameter.detach().clone() for name, parameter in encoder.named_parameters()}
    flat = FlatModel(encoder)
    assert all((parameter == before[name]).all() for name, parameter in encoder.named_parameters())
    scores, _ = encoder(torch.randn(2, 30, 80), torch.tensor([30, 20]))
    scores.sum().backward()
    grads = torch.cat([parameter.grad.reshape(-1) for parameter in encoder.parameters()])
    assert (grads == flat.gradient).all()
    assert flat.gradient.abs().sum() > 0
    flat.theta.zero_()
    assert all((parameter == 0).all() for parameter in encoder.parameters())


def test_layer_norms_and_scaling_follow_the_partition():
    flat = FlatModel(make())
    for name in ("tensor", "block", "kind"):
        partition = flat.partition(name)
        norms = partition.norms(flat.theta)
        assert norms.square().sum() == pytest.approx(float(flat.theta.double().square().sum()))
        layer = partition.layers.index({"tensor": "blocks.1.w1.weight", "block": "blocks.1", "kind": "w1"}[name])
        scaled = partition.scale_(flat.theta.clone(), torch.arange(len(partition)) == layer)
        assert torch.linalg.vector_norm(scaled.double()) == pytest.approx(float(norms[layer]))


def test_ctc_is_the_log_probability_of_all_paths():
    """One label in two outputs: blank-a, a-blank, a-a."""
    scores = torch.randn(1, 2, 3, dtype=torch.float64)
    p = scores.softmax(-1)[0]
    expected = p[0, 0] * p[1, 1] + p[0, 1] * p[1, 0] + p[0, 1] * p[1, 1]
    loss = ctc_loss(scores, torch.tensor([2]), torch.tensor([[1]]), torch.tensor([1]))
    assert loss[0] == pytest.approx(-float(expected.log()))


def test_ctc_is_summed_over_labels_and_ignores_padding():
    scores = torch.randn(2, 9, 5)
    targets = torch.tensor([[1, 2, 3, 0], [4, 4, 0, 0]])
    both = ctc_loss(scores, torch.tensor([9, 6]), targets, torch.tensor([3, 2]))
    alone = ctc_loss(scores[1:, :6], torch.tensor([6]), targets[1:, :2], torch.tensor([2]))
    assert both[1] == pytest.approx(float(alone[0]), rel=1e-5)


def test_the_seed_decides_the_start():
    tokens = TokenSet(("en",))
    one, same, other = (Recogniser.make(SMALL, tokens).initialise(seed).flat.theta for seed in (1, 1, 2))
    assert (one == same).all()
    assert not (one == other).all()


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="multiple of heads"):
        TransformerOptions(width=30, heads=4)


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(probability):
    torch.manual_seed(0)
    x = torch.ones(1001, 999, requires_grad=True)
    dropped = dropout(x, probability)
    zeros = (dropped == 0).double().mean().item()
    assert zeros == pytest.approx(probability, abs=5 * (probability * (1 - probability) / x.numel()) ** 0.5)
    assert dropped.max().item() == pytest.approx(1 / (1 - probability), rel=1e-4)
    along = [(dropped == 0).double().mean(dim=dim).std().item() for dim in (0, 1)]
    assert along == pytest.approx([(probability * (1 - probability) / 1e3) ** 0.5] * 2, rel=0.15)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())
    torch.manual_seed(0)
    assert torch.equal(dropout(x, probability), dropped)


def test_lower_precision_and_compiling_are_refused_without_cuda():
    for hardware in (
        Hardware(device="cpu", precision="tf32"),
        Hardware(device="cpu", precision="bfloat16"),
        Hardware(device="cpu", compile=True),
    ):
        with pytest.raises(ConfigError, match="needs a CUDA device"):
            hardware.open()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_bfloat16_and_compiling_give_nearly_the_same_loss():
    losses = []
    for hardware in (Hardware(), Hardware(precision="bfloat16"), Hardware(compile=True)):
        encoder = make().to(hardware.open()).train()
        hardware.speed_up_(encoder)
        features = torch.randn(3, 120, 80, generator=torch.Generator().manual_seed(1)).cuda()
        kept = {KEPT: np.array([True, False, True])}
        with encoder.autocast():
            scores, outputs = encoder(features, torch.tensor([120, 100, 90]).cuda(), kept)
        targets, lengths = torch.ones(3, 2, dtype=torch.int64).cuda(), torch.tensor([2, 1, 1]).cuda()
        losses.append(ctc_loss(scores, outputs, targets, lengths).sum().item())
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=0.02)
