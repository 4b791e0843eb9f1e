import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from report_runs import NOISE, make_data, make_run
from sottovoce.config import parse_setting, resolve
from sottovoce.errors import ConfigError
from sottovoce.model.conformer import Conformer, depthwise
from sottovoce.model.conformer_options import ConformerOptions
from sottovoce.model.encoder import make_initialised, make_on_meta
from sottovoce.model.flat import encoder_partition
from sottovoce.model.packing import Packing
from sottovoce.model.recogniser import load_recogniser
from sottovoce.model.stack import KEPT
from sottovoce.model.transformer_options import TransformerOptions

SMALL = ConformerOptions(blocks=3, width=32, heads=4, mlp_width=48, kernel=7, dropout=0.0, layer_drop=0.0)


def make(options=SMALL):
    return make_initialised(options, 30, 0)


def noise(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_an_utterance_does_not_depend_on_its_batch(dtype, tolerance):
    encoder = make().to(dtype).eval()
    frames = torch.tensor([200, 1, 57, 58, 59, 60, 199])
    features = noise(7, 230, 80, dtype=dtype)  # padding is garbage
    together, outputs = encoder(features, frames)
    for row, count in enumerate(frames.tolist()):
        alone, lengths = encoder(features[row : row + 1, :count], frames[row : row + 1])
        assert lengths.tolist() == [outputs[row]] == [alone.shape[1]] == [-(-count // 3)]
        assert (alone[0] - together[row, : outputs[row]]).abs().max() < tolerance


@pytest.mark.parametrize(("size", "outputs"), [(1, 9), (3, 9), (15, 9), (15, 40)])
def test_the_depthwise_convolution_is_pytorchs(size, outputs):
    x, kernel = noise(2, outputs, 6, dtype=torch.float64), noise(6, 1, size, dtype=torch.float64)
    expected = torch.nn.functional.conv1d(x.transpose(1, 2), kernel, padding=size // 2, groups=6).transpose(1, 2)
    assert (depthwise(x, kernel) - expected).abs().max() < 1e-12


def test_a_block_follows_its_formula():
    block = make().blocks[0].double()
    x = noise(1, 11, 32, dtype=torch.float64)

    def normal(x, layer):
        return torch.nn.functional.layer_norm(x, (32,), layer.weight, layer.bias, 1e-5)

    def mlp(x, ln, inner, outer):
        hidden = normal(x, ln) @ inner.weight.T
        return (hidden * hidden.sigmoid()) @ outer.weight.T

    y = x + mlp(x, block.ln1, block.w1, block.w2) / 2
    q, k, v = (normal(y, block.ln2) @ block.wqkv.weight.T).view(11, 3, 4, 8).permute(1, 2, 0, 3)
    attended = ((q @ k.transpose(1, 2)) / 8**0.5).softmax(-1) @ v
    y = y + attended.transpose(0, 1).reshape(1, 11, 32) @ block.wf.weight.T
    value, gate = (normal(y, block.ln3) @ block.wp1.weight.T).chunk(2, -1)
    gated = torch.nn.functional.pad((value * gate.sigmoid())[0], (0, 0, 3, 3))
    convolved = sum(gated[place : place + 11] * block.wd.weight[:, 0, place] for place in range(7))
    inner = normal(convolved, block.ln4)
    y = y + (inner * inner.sigmoid()) @ block.wp2.weight.T
    y = y + mlp(y, block.ln5, block.w3, block.w4) / 2
    packing = Packing.of(torch.tensor([11]), 11)
    assert (block(x[0], packing) - normal(y, block.ln6)).abs().max() < 1e-12


def test_dropped_blocks_are_skipped_and_dropout_is_seeded():
    encoder = make(SMALL.model_copy(update={"dropout": 0.2, "layer_drop": 0.5})).train()
    called = []
    for number, block in enumerate(encoder.blocks):
        block.register_forward_hook(lambda *_, number=number: called.append(number))
    scores = []
    for _ in range(2):
        torch.manual_seed(4)
        scores.append(encoder(noise(2, 30, 80), torch.tensor([30, 20]), {KEPT: np.array([True, False, True])})[0])
    assert called == [0, 2, 0, 2]
    assert torch.equal(*scores)
    scores[0].sum().backward()
    for name, parameter in encoder.named_parameters():
        assert (parameter.grad is None) == name.startswith("blocks.1."), name


@pytest.mark.parametrize(("width", "mlp_width", "kernel"), [(64, 256, 15), (96, 128, 3)])
def test_flops_are_those_of_the_encoder(width, mlp_width, kernel):
    options = ConformerOptions(blocks=2, width=width, mlp_width=mlp_width, kernel=kernel, layer_drop=0.5)
    encoder = make(options).train()
    for choices, drops in ((None, False), ({KEPT: np.array([True, False])}, True)):
        with FlopCounterMode(display=False) as counter:
            scores, _ = encoder(noise(4, 600, 80), torch.full((4,), 600), choices)
            scores.sum().backward()
        # PyTorch's counter takes the backward pass of a depthwise convolution for that of a full one.
        counts = {str(part): count for part, count in counter.get_flop_counts()["Global"].items()}
        counted = sum(count for part, count in counts.items() if "convolution_backward" not in part)
        depthwise_backward = (1 if drops else 2) * 2 * 2 * width * kernel
        ours = sum(encoder.flops_per_output(200, drops=drops).values()) - depthwise_backward
        assert 4 * 200 * ours == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        *(
            TransformerOptions(blocks=3, heads=4, layer_drop=0.0, **different)
            for different in ({}, {"norm": "post"}, {"positions": "relative"})
        ),
    ],
)
def test_memory_is_about_what_autograd_keeps(options, dropout):
    encoder = make(options.model_copy(update={"dropout": dropout, "width": 64, "mlp_width": 128})).train()
    kept = []

    def keep(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        encoder(noise(4, 450, 80), torch.full((4,), 450))
    parameters = {parameter.data_ptr() for parameter in encoder.parameters()}
    values = {tensor.data_ptr(): tensor.numel() for tensor in kept if tensor.data_ptr() not in parameters}
    assert encoder.values_per_output(150) == pytest.approx(sum(values.values()) / (4 * 150), rel=0.1)


def test_roles_name_the_parts_of_a_block():
    encoder = make_on_meta(resolve("tiny-conformer").config.model, 30)
    kinds = encoder_partition(encoder, "kind")
    assert set(kinds.layers) == {
        *("ln1", "w1", "w2", "ln2", "wqkv", "wf", "ln3", "wp1", "wd", "ln4", "wp2", "ln5", "w3", "w4", "ln6", "rest")
    }
    assert kinds.sizes[kinds.layers.index("wd")] == 4 * 80 * 15
    blocks = encoder_partition(encoder, "block", ("convolution",))
    assert blocks.layers == ("blocks.0", "blocks.1", "blocks.2", "blocks.3")
    assert blocks.sizes == (3 * 80**2 + 80 * 15,) * 4
    assert encoder.depth == 4


def test_the_preset_is_as_large_as_tiny():
    sizes = [
        sum(parameter.numel() for parameter in make_on_meta(resolve(preset).config.model, 30).parameters())
        for preset in ("tiny", "tiny-conformer")
    ]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.03)


def test_a_kernel_without_a_centre_is_refused():
    with pytest.raises(ConfigError, match=r"model.kernel=4 .* is not valid: .*expected an odd number"):
        resolve("tiny-conformer", parse_setting("model.kernel=4"))
    with pytest.raises(ConfigError, match=r"There is no key 'model.norm'"):
        resolve("tiny-conformer", parse_setting("model.norm=post"))


def test_it_learns_with_users_under_noise_and_is_loaded_again(tmp_path):
    shape = "model={kind: conformer, blocks: 2, width: 16, heads: 2, mlp_width: 16, dropout: 0.1, layer_drop: 0.3}"
    settings = (*NOISE, "privacy.clipping=weighted", "privacy.layer_weights={convolution: 2, mlp: 3}", shape)
    run = make_run("federated", tmp_path / "run", make_data(tmp_path), settings)
    model = load_recogniser(run)
    assert isinstance(model.encoder, Conformer)
    assert model.options.layer_drop == 0.3
    assert torch.isfinite(model.flat.theta).all()
