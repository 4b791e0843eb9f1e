"""A user's own encoder: defined here, outside the package, and trained, saved, loaded and estimated like ours."""

import json
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from report_runs import NOISE, make_data, make_run
from sottovoce.config import Config, parse_setting, resolve
from sottovoce.data.batching import Batching
from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError, DataError, PrivacyError
from sottovoce.estimate.model_size import describe
from sottovoce.estimate.work import flops_per_second
from sottovoce.federated.client import Client
from sottovoce.federated.federated_options import Local
from sottovoce.model.encoder import Encoder, make_initialised
from sottovoce.model.encoder_options import EncoderOptions
from sottovoce.model.flat import FlatModel
from sottovoce.model.model_options import TransformerOptions
from sottovoce.model.recogniser import Recogniser, load_recogniser
from sottovoce.model.roles import TensorRole
from sottovoce.randomness import Streams


class GruOptions(EncoderOptions):
    kind: Literal["small-gru"] = "small-gru"
    width: int = 8
    shift: float = 0.1
    shapeless = frozenset({"shift"})

    def make(self, tokens):
        return Gru(self, tokens)


class Gru(Encoder):
    groups: ClassVar = {"recurrent": ("gru",)}

    def __init__(self, options, tokens):
        super().__init__(options, tokens)
        self.gru = nn.GRU(80 * self.output_stride, options.width, batch_first=True)
        self.output = nn.Linear(options.width, tokens)

    def forward(self, features, frames, choices=None):
        padded = nn.functional.pad(features, (0, 0, 0, -features.shape[1] % self.output_stride))
        if choices is not None:
            padded = padded + torch.from_numpy(choices["level"]).float()[:, None, None]
        hidden, _ = self.gru(padded.unflatten(1, (-1, self.output_stride)).flatten(2))
        return self.output(hidden), self.output_count(frames)

    def draw_micro(self, streams, place, rows):
        return {"level": self.options.shift * streams.of("level", place).standard_normal(rows)}


START = Recogniser.make(GruOptions(), TokenSet(("en",))).initialise(0)
GRU = ("model={kind: small-gru, width: 8}",)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


def test_a_configuration_takes_it_by_kind_and_as_an_instance():
    config = resolve("tiny", *map(parse_setting, GRU)).config
    assert config.model == GruOptions()
    assert Config(model=GruOptions(width=5)).model_dump(mode="json")["model"] == {
        "kind": "small-gru",
        "width": 5,
        "shift": 0.1,
    }
    assert Config.model_validate(config.model_dump(mode="json")) == config
    with pytest.raises(ConfigError, match=r"There is no key 'model.wdth'. Did you mean 'model.width'\?"):
        resolve("tiny", parse_setting("model={kind: small-gru, wdth: 8}"))


def test_the_transformer_is_the_kind_of_a_model_that_names_none():
    assert resolve("tiny").config.model.kind == "transformer"
    assert resolve("tiny", parse_setting("model.kind=transformer")).config == resolve("tiny").config
    with pytest.raises(ConfigError, match=r"model.kind='lstm' .* is not valid: expected .*gru.* or transformer"):
        resolve("tiny", parse_setting("model.kind=lstm"))


def test_it_learns_centrally_and_with_users_under_noise(data, tmp_path):
    for kind, more in (("central", ()), ("federated", (*NOISE, "privacy.clipping=dim", "federated.partition=block"))):
        run = make_run(kind, tmp_path / kind, data, (*GRU, *more))
        model = load_recogniser(run)
        assert isinstance(model.encoder, Gru)
        assert json.loads((run / "config.json").read_text())["config"]["model"]["kind"] == "small-gru"
        assert not torch.equal(model.flat.theta, START.flat.theta)
    START.save(tmp_path / "model.safetensors")
    stated = (f"data.seed_model={tmp_path}", "privacy.accept=[unknown_seed_model]")
    seeded = (*GRU, *NOISE, "privacy.clipping=dim", *stated, "model.shift=0.2")
    assert (make_run("federated", tmp_path / "seeded", data, seeded) / "result.json").exists()
    other = (*seeded, "model.width=9")
    with pytest.raises(DataError, match="has another shape"):
        make_run("federated", tmp_path / "other", data, other)


def test_pytorchs_own_start_depends_on_the_seed_alone():
    torch.manual_seed(1)
    one = make_initialised(GruOptions(), 30, 7)
    after = torch.rand(1)
    torch.manual_seed(2)
    two = make_initialised(GruOptions(), 30, 7)
    torch.manual_seed(1)
    assert torch.rand(1) == after  # the default generator goes on as if nothing had happened
    assert all((a == b).all() for a, b in zip(one.parameters(), two.parameters(), strict=True))
    other = make_initialised(GruOptions(), 30, 8)
    assert not all((a == b).all() for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_roles_and_sizes_have_defaults():
    encoder = GruOptions(width=4).make(10)
    roles = encoder.parameter_roles()
    assert roles["gru.weight_ih_l0"] == TensorRole("gru", "rest", frozenset({"recurrent"}))
    assert roles["output.bias"] == TensorRole("output")
    parameters = sum(parameter.numel() for parameter in encoder.parameters())
    assert encoder.flops_per_output(100) == {"parameters": 6 * parameters}
    assert flops_per_second(GruOptions(width=4), 10, 5.0) == {"parameters": pytest.approx(100 / 3 * 6 * parameters)}
    assert encoder.values_per_output(100) == (12 + 240) + (12 + 4) + (10 + 4)
    assert encoder.depth == 1
    size = describe(resolve("tiny", *map(parse_setting, GRU)).config, "tensor", "en")
    assert (size.kind, size.blocks, size.parameters) == ("small-gru", 1, 3 * 8 * 240 + 3 * 8 * 8 + 6 * 8 + 8 * 30 + 30)


def test_a_kind_that_nobody_defined_cannot_be_loaded(tmp_path):
    description = START.description()
    assert description["model"]["kind"] == "small-gru"
    description["model"]["kind"] = "nobody's"
    path = tmp_path / "model.safetensors"
    save_file(dict(START.encoder.named_parameters()), path, {"sottovoce": json.dumps(description)})
    with pytest.raises(DataError, match=r'encoder "nobody\'s" is not known here: import the module'):
        load_recogniser(path)
    assert "kind" not in Recogniser.make(TransformerOptions(), TokenSet(("en",)), "meta").description()["model"]


def test_state_that_a_model_file_would_lose_is_refused():
    encoder = GruOptions().make(10)
    encoder.norm = nn.BatchNorm1d(8)
    with pytest.raises(ConfigError, match=r"keeps norm.running_mean in a buffer.* Use LayerNorm"):
        FlatModel(encoder)
    encoder = GruOptions().make(10)
    encoder.register_buffer("table", torch.ones(3), persistent=False)
    FlatModel(encoder)


class Averaging(Gru):
    """Keeps a running mean where no model file looks for it: what one user leaves there, the next one finds."""

    def __init__(self, options, tokens):
        super().__init__(options, tokens)
        self.register_buffer("mean", torch.zeros(80), persistent=False)

    def forward(self, features, frames, choices=None):
        if self.training and self.options.shift > 0:
            self.mean.mul_(0.9).add_(features.detach().mean((0, 1)), alpha=0.1)
        return super().forward(features - self.mean, frames, choices)


class AveragingOptions(GruOptions):
    kind: Literal["averaging"] = "averaging"

    def make(self, tokens):
        return Averaging(self, tokens)


def local_work(options, store):
    model = Recogniser.make(options, TokenSet(("en",))).initialise(0)
    theta = model.flat.theta.clone()
    client = Client(store, Batching(seconds=3), Local(steps=1), None, seed=1)
    state = client.start_(model, theta, 0, "a")
    for batch in client.batches(0, "a", np.arange(2), model.encoder):
        client.step_(model, theta, batch, state)
    return client.finish_(model, theta, state)


def test_a_buffer_that_local_work_changes_would_couple_users(make_store):
    store = make_store({"a": 2})
    assert local_work(AveragingOptions(shift=0), store).any()  # a buffer that stays constant does no harm
    with pytest.raises(PrivacyError, match=r"Training changes the buffer mean .* use LayerNorm or GroupNorm"):
        local_work(AveragingOptions(), store)


class Noting(Gru):
    """Has no buffer until it is trained: then it keeps the mean of the first audio it gets."""

    def forward(self, features, frames, choices=None):
        if self.training and not hasattr(self, "mean"):
            self.register_buffer("mean", features.detach().mean((0, 1)), persistent=False)
        return super().forward(features, frames, choices)


class NotingOptions(GruOptions):
    kind: Literal["noting"] = "noting"

    def make(self, tokens):
        return Noting(self, tokens)


def test_a_buffer_that_appears_during_local_work_would_couple_users(make_store):
    with pytest.raises(PrivacyError, match="Training changes the buffer mean of the encoder"):
        local_work(NotingOptions(), make_store({"a": 2}))


def test_a_buffer_of_another_type_is_not_the_same_buffer():
    model = Recogniser.make(AveragingOptions(), TokenSet(("en",))).initialise(0)
    model.flat.require_constant_buffers()
    model.encoder.mean = model.encoder.mean.double()
    with pytest.raises(PrivacyError, match="Training changes the buffer mean"):
        model.flat.require_constant_buffers()


class FrozenInputOptions(GruOptions):
    kind: Literal["frozen-input"] = "frozen-input"

    def make(self, tokens):
        encoder = Gru(self, tokens)
        encoder.gru.weight_ih_l0.requires_grad_(False)
        return encoder


def test_parameters_that_the_encoder_freezes_stay_frozen(make_store, tmp_path):
    model = Recogniser.make(FrozenInputOptions(), TokenSet(("en",))).initialise(0)
    frozen = "gru.weight_ih_l0"
    assert frozen not in model.flat.names
    assert [tuple(tensor.shape) for tensor in model.flat.frozen_tensors()] == [(24, 240)]
    assert model.flat.theta.numel() == START.flat.theta.numel() - 24 * 240
    assert not model.encoder.get_parameter(frozen).requires_grad
    assert local_work(FrozenInputOptions(), make_store({"a": 2})).numel() == model.flat.theta.numel()
    config = Config(model=FrozenInputOptions())
    size = describe(config, "tensor", "en")
    assert size.parameters - size.trainable == 24 * 240
    model.save(tmp_path / "model.safetensors")  # the file holds it like any other parameter
    loaded = load_recogniser(tmp_path / "model.safetensors")
    assert torch.equal(loaded.encoder.get_parameter(frozen), model.encoder.get_parameter(frozen))
    model.encoder.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"has frozen all parameters that federated\.trainable selects"):
        FlatModel(model.encoder)


def test_a_larger_stride_than_the_stores_is_refused(make_store):
    class Slow(GruOptions):
        kind: Literal["slow"] = "slow"

        def make(self, tokens):
            encoder = type("SlowGru", (Gru,), {"output_stride": 4})(self, tokens)
            assert encoder.output_count(torch.tensor([7, 8, 9])).tolist() == [2, 2, 3]
            return encoder

    with pytest.raises(DataError, match=r"one output for 4 frames, and texts in .* need one for 3"):
        Recogniser.make(Slow(), TokenSet(("en",))).require_store(make_store({"a": 1}))


def test_choices_come_from_named_streams():
    transformer = TransformerOptions(blocks=5, width=8, heads=2, mlp_width=8, layer_drop=0.5).make(30)
    streams = Streams(3, (1, "ann", 0))
    kept = transformer.draw_batch(streams)["kept_blocks"]
    assert kept.tolist() == (streams.of("layer-drop").random(5) >= 0.5).tolist()
    shifts = transformer.draw_micro(streams, 2, 4)["position_shifts"]
    assert shifts.tolist() == streams.of("positions", 2).uniform(-30, 30, 4).tolist()
    assert GruOptions().make(3).draw_batch(streams) == {}
