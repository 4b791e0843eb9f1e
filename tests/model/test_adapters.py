"""Low-rank adapters: the same function as their merged model, gradients of nothing else, exact checkpoints."""

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from report_runs import FEDERATED, NOISE, make_data, make_run
from sottovoce.config import parse_setting, resolve
from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError, DataError
from sottovoce.estimate.model_size import describe
from sottovoce.features import features
from sottovoce.model.adapter_options import Adapters
from sottovoce.model.adapters import adapted_matrices
from sottovoce.model.conformer_options import ConformerOptions
from sottovoce.model.linear import AdaptedLinear, linear, set_gradient_home
from sottovoce.model.recogniser import Recogniser, load_recogniser
from sottovoce.model.transformer_options import TransformerOptions
from sottovoce.optim import Lamb, Lars
from sottovoce.privacy.ledger import read_ledger
from sottovoce.runs.folder import Run
from sottovoce.runs.verification import verify
from trainings import SMALL_MODEL, command_line, digests, run

SHAPE = {"blocks": 2, "width": 16, "heads": 2, "mlp_width": 32, "dropout": 0.0, "layer_drop": 0.0}
SMALL, CONFORMER = TransformerOptions(**SHAPE), ConformerOptions(**SHAPE)
TOKENS = TokenSet(("en",))


def adapted(options=SMALL, trainable=(), seed=0, **adapters) -> Recogniser:
    """Return a model with adapters that have learnt something."""
    model = Recogniser.make(options, TOKENS).initialise(0).with_adapters(Adapters(**adapters), trainable, seed)
    for number, matrix in enumerate(adapted_matrices(model.encoder).values()):
        matrix.b.data.normal_(0, 0.3, generator=torch.Generator().manual_seed(number))
    return model


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("train", ["both", "b"])
def test_gradients_are_those_of_the_product_written_out(residual, train):
    layer = AdaptedLinear(nn.Linear(5, 4, bias=False, dtype=torch.float64), 2, 0.7)
    layer.a.data, layer.b.data = noise(2, 5, seed=1), noise(4, 2, seed=2)
    layer.a.requires_grad_(train == "both")
    x, rest = noise(6, 5).requires_grad_(), noise(6, 4, seed=3).requires_grad_(residual)
    inputs = [one for one in (x, layer.a, layer.b, rest) if one.requires_grad]
    written_out = x @ layer.weight.t() + 0.7 * (x @ layer.a.t()) @ layer.b.t() + (rest if residual else 0)
    expected = torch.autograd.grad(written_out.sin().sum(), inputs)
    product = layer.project(x, rest if residual else None)
    assert torch.allclose(product, written_out)
    assert all(map(torch.allclose, torch.autograd.grad(product.sin().sum(), inputs), expected))
    home = torch.full_like(layer.b, torch.nan)
    set_gradient_home(layer.b, home)
    for times in (1, 2):
        layer.project(x, rest if residual else None).sin().sum().backward()
        assert torch.allclose(home, times * expected[len(inputs) - 1 - residual])
    assert layer.weight.grad is None
    assert (layer.a.grad is None) == (train == "b")


def scores_of(model: Recogniser, batch: torch.Tensor, frames: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.encoder.eval()(batch, frames)[0]


def written_out(layer: AdaptedLinear, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    """Return x W + scale (x A) B, without an effective matrix."""
    thin = linear(linear(x, layer.a), layer.scale * layer.b, residual)
    return linear(x, layer.weight, thin)


@pytest.mark.parametrize("options", [SMALL, CONFORMER], ids=["transformer", "conformer"])
def test_a_saved_model_is_merged_and_scores_real_speech_alike(options, real_speech, tmp_path, monkeypatch):
    model = adapted(options, rank=3, alpha=6)
    files = sorted((real_speech / "LibriSpeech" / "dev-clean").rglob("*.flac"))[:2]
    spoken = [torch.from_numpy(features(soundfile.read(file, dtype="float32")[0]).astype(np.float32)) for file in files]
    batch = torch.nn.utils.rnn.pad_sequence(spoken, batch_first=True), torch.tensor([len(one) for one in spoken])
    model.save(tmp_path / "model.safetensors")
    merged = load_recogniser(tmp_path)
    assert merged.flat.names == Recogniser.make(options, TOKENS).flat.names
    own = scores_of(model, *batch)
    assert torch.equal(own, scores_of(merged, *batch))
    monkeypatch.setattr(AdaptedLinear, "project", written_out)
    unmerged = scores_of(model, *batch)
    assert 0 < (own - unmerged).abs().max() < 1e-4
    changed = model.with_adapters(Adapters(rank=3), (), 0)  # of the merged model
    assert torch.allclose(scores_of(changed, *batch), own, atol=1e-4)


def test_the_vector_holds_the_adapters_and_what_trains_besides():
    (matrix, *_), model = adapted_matrices(adapted(rank=2).encoder).values(), adapted(rank=2)
    assert model.flat.names[:2] == ("blocks.0.wqkv.b", "blocks.0.wf.b")
    assert model.flat.theta.numel() == 2 * 2 * (3 * 16 + 16 + 32 + 16)
    assert torch.allclose(matrix.a @ matrix.a.t(), torch.eye(2), atol=1e-6)
    other = next(iter(adapted_matrices(adapted(rank=2, seed=1).encoder).values()))
    assert not torch.equal(matrix.a, other.a)
    both = adapted(rank=2, train="both", on=("attention",), trainable=("ln", "adapters"))
    kinds = both.flat.partition("kind")
    assert kinds.layers == ("ln1", "wqkv", "wf", "ln2", "rest")
    assert kinds.sizes == (64, 2 * 2 * (16 + 48), 2 * 2 * (16 + 16), 64, 32)
    assert sum(both.flat.partition().tensors_in("adapters")) == 8
    everything = adapted(rank=2, trainable="all").flat
    assert {name.split(".")[3] for name in everything.names if ".w" in name.partition("blocks")[2][:5]} == {"b"}
    assert {"conv.weight", "output.weight", "blocks.1.ln2.bias"} <= set(everything.names)


@pytest.mark.parametrize(
    ("adapters", "trainable", "says"),
    [
        ({"rank": 17}, (), r"rank=17 <= 16, the smaller side of blocks\.0\.wqkv"),
        (
            {"rank": 2, "on": "ln"},
            (),
            r"on names 'ln', and no matrix .* Choose among: blocks\.0 to blocks\.1, wqkv, at",
        ),
        ({"rank": 2}, ("ln", "mlp"), r"trainable names 'mlp', whose matrices have adapters"),
        ({"rank": 2}, ("mpl",), "No parameters are called 'mpl'"),
    ],
)
def test_impossible_adapters_are_refused_in_one_line(adapters, trainable, says):
    with pytest.raises(ConfigError, match=says):
        adapted(trainable=trainable, **adapters)


def test_encoders_without_matrices_for_adapters_refuse_them(monkeypatch):
    monkeypatch.delattr("sottovoce.model.stack.Stack.adaptable")
    with pytest.raises(ConfigError, match="Transformer has no matrices for adapters"):
        adapted(rank=1)


@pytest.mark.parametrize("server", [Lamb(), Lars(coefficient=1.0, momentum=0.0)], ids=["lamb", "lars"])
def test_a_server_moves_b_at_the_pace_of_its_matrix_from_the_first_step_on(server):
    model = Recogniser.make(SMALL, TOKENS).initialise(0).with_adapters(Adapters(rank=2, alpha=4), (), 0)
    theta, partition = model.flat.theta, model.flat.partition()
    state, place = server.start(theta), slice(0, 2 * 48)  # of blocks.0.wqkv.b
    least = 48**0.5 / 3**0.5
    for seed in (1, 2, 3):
        before = model.flat.tensors()["blocks.0.wqkv.weight"]
        update = noise(theta.numel(), seed=seed).float()
        server.step(theta, update, state, 0.01, partition)
        moved = torch.linalg.matrix_norm(model.flat.tensors()["blocks.0.wqkv.weight"] - before)
        assert float(moved) == pytest.approx(0.01 * least, rel=1e-3)
    assert theta[place].any()


RUN = (
    *(*NOISE, "privacy.clipping=dim", "federated.checkpoint_every=1", "federated.central_steps=3"),
    *("federated.adapters={rank: 2, train: both}", "federated.trainable=[output]"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


def test_a_run_resumes_exactly_is_verified_and_leaves_a_plain_model(data, tmp_path):
    whole = make_run("federated", tmp_path / "whole", data, RUN)
    resumed = make_run("federated", tmp_path / "resumed", data, (*RUN, "federated.central_steps=2"))
    make_run("federated", resumed, data, RUN)
    for name in ("last/model.safetensors", "last/state.safetensors"):
        assert (whole / name).read_bytes() == (resumed / name).read_bytes()
    assert verify(whole).releases == 3
    model = load_recogniser(whole)
    start = Recogniser.make(model.options, TOKENS).initialise(0)
    moved = {
        name for name, tensor in model.flat.tensors().items() if not torch.equal(tensor, start.flat.tensors()[name])
    }
    matrices = {f"blocks.{block}.{kind}.weight" for block in (0, 1) for kind in ("wqkv", "wf", "w1", "w2")}
    assert moved == matrices | {"output.weight", "output.bias"}
    size = describe(resolve("tiny", *map(parse_setting, (*RUN, *SMALL_MODEL))).config, "tensor", "en")
    assert read_ledger(whole / "ledger.jsonl").header.parameters == size.trainable < size.parameters
    state = load_file(whole / "last" / "state.safetensors")
    name = "adapters.blocks.0.wf.b"
    for wrong in ({**state, name: state[name] + 1e-3}, {key: one for key, one in state.items() if key != name}):
        save_file(wrong, whole / "last" / "state.safetensors")
        loaded = Recogniser.make(model.options, TOKENS).with_adapters(Adapters(rank=2, train="both"), ("output",), 0)
        with pytest.raises(DataError, match=r"is damaged: .*blocks\.0\.wf"):
            Run(whole).load(loaded, Lamb().start(loaded.flat.theta))


@pytest.mark.slow
def test_two_workers_make_the_same_bits(data, tmp_path):
    one = make_run("federated", tmp_path / "one", data, RUN)
    words = command_line("federated", tmp_path / "two", {}, (*SMALL_MODEL, *FEDERATED, *data.values(), *RUN), workers=2)
    assert run(words).returncode == 0
    assert digests(one) == digests(tmp_path / "two")
