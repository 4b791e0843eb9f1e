"""Frozen parameters: outside the flat vector, untouched by training and noise, saved and resumed like all others."""

import numpy as np
import pytest
import torch

from report_runs import NOISE, make_data, make_run
from sottovoce.config import parse_setting, resolve
from sottovoce.data.batching import PaddedBatch
from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError
from sottovoce.estimate.model_size import describe
from sottovoce.estimate.run_cost import memory, traffic
from sottovoce.model.gradient import Micro, add_gradient
from sottovoce.model.recogniser import Recogniser, load_recogniser
from sottovoce.model.stack import KEPT
from sottovoce.model.transformer_options import TransformerOptions
from trainings import SMALL_MODEL

SMALL = TransformerOptions(blocks=2, width=16, heads=2, mlp_width=32, dropout=0.0, layer_drop=0.0)
TOKENS = TokenSet(("en",))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


def sizes(model):
    return {name: tensor.numel() for name, tensor in model.flat.tensors().items()}


@pytest.mark.parametrize(
    ("trainable", "belongs"),
    [
        ("all", lambda _: True),
        (("ln",), lambda name: ".ln" in f".{name}"),
        (("mlp", "output"), lambda name: ".w1." in name or ".w2." in name or name.startswith("output")),
        (("wqkv",), lambda name: "wqkv" in name),
        (("blocks.1", "final_ln"), lambda name: name.startswith(("blocks.1.", "ln."))),
        (("ln", "biases"), lambda name: ".ln" in f".{name}" or name.endswith("bias")),
        (("rest",), lambda name: not name.startswith("blocks.")),
    ],
)
def test_only_the_selected_parameters_are_in_the_vector(trainable, belongs):
    model = Recogniser.make(SMALL, TOKENS, trainable=trainable).initialise(0)
    expected = {name: size for name, size in sizes(model).items() if belongs(name)}
    partition = model.flat.partition()
    assert dict(zip(partition.tensors, partition.tensor_sizes, strict=True)) == expected
    assert model.flat.theta.numel() == model.flat.gradient.numel() == sum(expected.values())
    whole = Recogniser.make(SMALL, TOKENS).initialise(0)
    for name, parameter in model.encoder.named_parameters():
        assert parameter.requires_grad == belongs(name)
        assert torch.equal(parameter, whole.encoder.get_parameter(name))


def test_an_impossible_selection_lists_the_choices():
    blocks = "blocks.0 to blocks.1, ln1, ln, wqkv, attention, wf, ln2, w1, mlp, w2"
    names = f"input_scale, rest, input_bias, biases, conv, {blocks}"
    with pytest.raises(
        ConfigError, match=f"No parameters are called 'mpl'. Choose among: {names}, final_ln, output\\."
    ):
        Recogniser.make(SMALL, TOKENS, trainable=("ln", "mpl"))
    with pytest.raises(ConfigError, match=f"selects no parameters. Choose among: all, {names}"):
        Recogniser.make(SMALL, TOKENS, trainable=())


def test_settings_take_a_name_or_a_list():
    for text, expected in (("all", "all"), ("ln", ("ln",)), ("[ln, output]", ("ln", "output")), ("[]", ())):
        assert resolve("tiny", parse_setting(f"federated.trainable={text}")).config.federated.trainable == expected
    for text in ("5", "[1]", "null"):
        with pytest.raises(ConfigError, match=r"federated.trainable=.* is not valid: .*expected all, or a list"):
            resolve("tiny", parse_setting(f"federated.trainable={text}"))


def test_gradients_are_those_of_the_whole_model():
    rng = np.random.default_rng(0)
    batch = PaddedBatch(
        rng.standard_normal((2, 60, 80), dtype=np.float32), np.array([60, 50]), np.ones((2, 3), int), np.array([3, 2])
    )
    whole, part = (Recogniser.make(SMALL, TOKENS, trainable=names).initialise(0) for names in ("all", ("blocks.0",)))
    losses = [add_gradient(model, Micro(batch, {}, 0), {}, 0.5) for model in (whole, part)]
    assert losses[0] == losses[1]
    for name in part.flat.names:
        assert torch.equal(part.encoder.get_parameter(name).grad, whole.encoder.get_parameter(name).grad)
    part.flat.gradient.zero_()
    add_gradient(part, Micro(batch, {}, 0), {KEPT: np.array([False, True])}, 0.5)  # nothing that trains is computed
    assert (part.flat.gradient == 0).all()


RUN = (*NOISE, "privacy.clipping=dim", "federated.trainable=[ln, output]", "federated.checkpoint_every=1")


def test_frozen_tensors_keep_their_bits_under_noise_and_a_resumed_run_ends_the_same(data, tmp_path):
    whole = load_recogniser(make_run("federated", tmp_path / "whole", data, RUN))
    make_run("federated", tmp_path / "resumed", data, (*RUN, "federated.central_steps=2"))
    resumed = load_recogniser(make_run("federated", tmp_path / "resumed", data, RUN))
    start = Recogniser.make(whole.options, TOKENS).initialise(0)
    for name, tensor in whole.flat.tensors().items():
        frozen = ".ln" not in f".{name}" and not name.startswith("output")
        assert torch.equal(tensor, start.encoder.get_parameter(name)) == frozen, name
        assert torch.equal(tensor, resumed.encoder.get_parameter(name))
    models = [tmp_path / name / "last" / "model.safetensors" for name in ("whole", "resumed")]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_frozen_tensors_come_from_the_seed_model(data, tmp_path):
    seed = Recogniser.make(resolve("tiny", *map(parse_setting, SMALL_MODEL)).config.model, TOKENS).initialise(9)
    seed.save(tmp_path / "model.safetensors")
    stated = (f"data.seed_model={tmp_path}", "privacy.accept=[unknown_seed_model]")
    run = (*RUN, *stated, "federated.central_steps=1", "federated.partition=kind")
    trained = load_recogniser(make_run("federated", tmp_path / "run", data, run))
    for name, same in (("blocks.0.w1.weight", True), ("conv.bias", True), ("output.weight", False)):
        assert torch.equal(trained.encoder.get_parameter(name), seed.encoder.get_parameter(name)) == same


def test_sizes_and_estimates_count_the_parameters_that_train():
    everything = describe(resolve("quick").config, "tensor", "en")
    config = resolve("quick", parse_setting("federated.trainable=[ln]")).config
    size = describe(config, "kind", "en")
    norms = (2 * 2 * 2 + 2) * 64
    assert (everything.trainable, size.parameters) == (everything.parameters, everything.parameters)
    assert (size.trainable, sum(size.partition.values())) == (norms, norms)
    assert list(size.partition) == ["ln1", "ln2", "rest"]
    assert size.memory_bytes["gradients"] == 4 * norms
    held = memory(config, size)
    assert (held["model"], held["theta"], held["integer_sum"]) == (4 * size.parameters, 4 * norms, 8 * norms)
    assert traffic(config, size.partition, 2)["user_up_masked"] == 6 * norms


def test_the_command_says_how_many_parameters_train(sotto):
    outcome = sotto("model", "tiny", "--set", "federated.trainable=[ln]")
    assert ", of which 1,728 train (federated.trainable), in 18 layers" in outcome.stderr
    assert sotto("model", "tiny", "--set", "federated.trainable=x").error.startswith("error: No parameters are called")
    words = ("estimate", "tiny", "--set", "federated.trainable=[ln]", "--audio", "LS-960")
    assert ", of which 1,728 train, in 18 layers" in sotto(*words).stdout
    adapters = ("--set", "federated.adapters.rank=4", "--set", "federated.trainable=[]")
    counted = "554,720 parameters, of which 13,824 train (federated.adapters and federated.trainable), in 16 layers"
    assert counted in sotto("model", "tiny", *adapters).stderr
