"""Seed models from elsewhere: files of other programs, other names, other languages."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from sottovoce.config import parse_setting, resolve
from sottovoce.data.corpora import Table
from sottovoce.data.preparation import prepare
from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError, DataError
from sottovoce.federated.seed import run_of
from sottovoce.model.importing import NameMap, import_model, token_axes, with_tokens
from sottovoce.model.packing import Packing
from sottovoce.model.recogniser import Recogniser, load_recogniser
from trainings import SMALL_MODEL, command_line, error_line, run

OPTIONS = resolve("tiny", *map(parse_setting, SMALL_MODEL)).config.model
SETTINGS = [word for setting in SMALL_MODEL for word in ("--set", setting)]
# PyTorch's own transformer layers under their own names.
TORCH_NAMES = {
    "layers.*.self_attn.in_proj_weight": "blocks.*.wqkv.weight",
    "layers.*.self_attn.out_proj.weight": "blocks.*.wf.weight",
    "layers.*.linear1.weight": "blocks.*.w1.weight",
    "layers.*.linear2.weight": "blocks.*.w2.weight",
    "layers.*.norm1.weight": "blocks.*.ln1.weight",
    "layers.*.norm2.weight": "blocks.*.ln2.weight",
    "norm.weight": "ln.weight",
    "head.weight": "output.weight",
}
THEIR_TOKENS = ["<blank>", "a", "b", "|", "ß"]


def torch_model() -> dict[str, torch.Tensor]:
    """Return the tensors of two layers of PyTorch's transformer, a final norm and a head for five tokens."""
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True, bias=False)
    encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16, bias=False), enable_nested_tensor=False)
    return {**encoder.state_dict(), "head.weight": torch.randn(len(THEIR_TOKENS), 16), "step": torch.tensor(7)}


@pytest.fixture
def foreign(tmp_path):
    path = tmp_path / "torch.safetensors"
    save_file(torch_model(), path)
    return path


def test_a_block_with_imported_parameters_computes_what_torch_computes(foreign):
    names = NameMap(tensors=TORCH_NAMES, tokens=THEIR_TOKENS)
    recogniser, imported = import_model(foreign, names, OPTIONS, TokenSet(("en",)), 0)
    assert (imported.wrong_shape, imported.left_over, imported.unused_patterns) == ((), ("step",), ())
    assert {name.rpartition(".")[2] for name in imported.missing} == {"input_scale", "input_bias", "weight", "bias"}
    theirs = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True, bias=False)
    tensors = torch_model()
    theirs.load_state_dict({key[9:]: value for key, value in tensors.items() if key.startswith("layers.0.")})
    block, x = recogniser.encoder.blocks[0].eval(), torch.randn(1, 7, 16)
    for norm in (block.ln1, block.ln2):
        norm.eps = theirs.norm1.eps
    with torch.no_grad():
        ours = block(x[0], Packing.of(torch.tensor([7]), 7))
        assert torch.allclose(ours, theirs(x)[0], atol=1e-5)


def test_output_rows_are_matched_by_token_and_others_are_a_new_models(foreign):
    names = NameMap(tensors=TORCH_NAMES, tokens=THEIR_TOKENS)
    token_set = TokenSet(("en",))
    recogniser, imported = import_model(foreign, names, OPTIONS, token_set, 5)
    rows, theirs = recogniser.flat.tensors()["output.weight"], torch_model()["head.weight"]
    fresh = Recogniser.make(OPTIONS, token_set).initialise(5).flat.tensors()["output.weight"]
    for number, token in enumerate(token_set.tokens):
        expected = theirs[THEIR_TOKENS.index(token)] if token in THEIR_TOKENS else fresh[number]
        assert torch.equal(rows[number], expected), token
    assert imported.dropped_tokens == ("ß",)
    assert len(imported.new_tokens) == len(token_set.tokens) - 4
    vocabulary = {token: row for row, token in enumerate(THEIR_TOKENS)}  # as many programs save it
    assert NameMap.read({"tokens": vocabulary}, "map").tokens == THEIR_TOKENS


def test_tensors_are_joined_cut_and_transposed(tmp_path):
    q, k, v = (torch.randn(16, 16) for _ in range(3))
    fused, turned = torch.randn(64, 16), torch.randn(32, 16)
    save_file({"b.0.q": q, "b.0.k": k, "b.0.v": v, "both": fused, "b.0.w2": turned}, tmp_path / "f.safetensors")
    tensors = {
        "b.*.q, b.*.k, b.*.v": "blocks.*.wqkv.weight",
        "both": {"to": "blocks.1.w1.weight", "part": "2/2"},
        "b.*.w2": {"to": "blocks.*.w2.weight", "transpose": True},
    }
    recogniser, imported = import_model(
        tmp_path / "f.safetensors", NameMap.read({"tensors": tensors}, "map"), OPTIONS, TokenSet(("en",)), 0
    )
    ours = recogniser.flat.tensors()
    assert torch.equal(ours["blocks.0.wqkv.weight"], torch.cat([q, k, v]))
    assert torch.equal(ours["blocks.1.w1.weight"], fused[32:])
    assert torch.equal(ours["blocks.0.w2.weight"], turned.T)
    assert imported.taken_parameters == 3 * 256 + 512 + 512


def test_a_model_for_another_language_keeps_what_both_can_write():
    english = Recogniser.make(OPTIONS, TokenSet(("en",))).initialise(1)
    french = with_tokens(english, TokenSet(("fr",)), 2)
    assert token_axes(OPTIONS) == {"output.weight": 0, "output.bias": 0}
    before, after = english.flat.tensors(), french.flat.tensors()
    for name in before:
        kept = after[name][: len(before[name])] if name.startswith("output") else after[name]
        assert torch.equal(kept, before[name]), name  # French has the letters of English first
    fresh = Recogniser.make(OPTIONS, TokenSet(("fr",))).initialise(2).flat.tensors()["output.weight"]
    assert torch.equal(after["output.weight"][30:], fresh[30:])
    german = with_tokens(french, TokenSet(("de",)), 3)
    place = {token: number for number, token in enumerate(french.token_set.tokens)}
    umlaut = german.token_set.tokens.index("ü")  # French has it, at another place
    assert torch.equal(german.flat.tensors()["output.weight"][umlaut], after["output.weight"][place["ü"]])
    assert with_tokens(english, TokenSet(("en",)), 9) is english


def test_the_command_writes_a_seed_model_and_lists_what_did_not_fit(sotto, foreign, tmp_path):
    names = tmp_path / "names.yaml"
    names.write_text(json.dumps({"tensors": {**TORCH_NAMES, "embed.weight": "conv.weight"}, "tokens": THEIR_TOKENS}))
    out = tmp_path / "seed.safetensors"
    words = ["import", foreign, "--names", names, "--preset", "tiny", *SETTINGS, "--out", out]
    outcome = sotto(*words, "--language", "de")
    assert outcome.code == 0, outcome.stderr
    assert "left over" in outcome.stdout
    assert "embed.weight" in outcome.stdout
    assert "14 of 24 tensors (" in outcome.stderr
    loaded = load_recogniser(out)
    assert loaded.token_set.languages == ("de",)
    assert run_of(out) is None  # federated training asks whom it was trained on
    assert "already exists" in sotto(*words).error
    other = [*words[:-1], tmp_path / "other", "--set", "model.mlp_width=64", "--json"]
    listed = sotto(*other).document
    unfit = {one["parameter"] for one in listed["wrong_shape"]}
    assert unfit == {f"blocks.{block}.{name}.weight" for block in (0, 1) for name in ("w1", "w2")}
    assert not unfit & set(listed["missing"])  # everything is listed once
    wide = ["import", foreign, "--names", names, "--preset", "tiny", *SETTINGS, "--set", "model.width=32"]
    wide += ["--set", "model.blocks=1"]
    document = sotto(*wide, "--out", tmp_path / "x", "--json")
    assert "The model has no tensor 'blocks.1.wqkv.weight'" in document.error
    wide[-1] = "model.blocks=2"
    assert "No matrix in" in sotto(*wide, "--out", tmp_path / "x").error
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("names", "width", "message"),
    [
        (NameMap(), 32, r"w1.weight is 32 x 32, and .* 32 x 16"),  # scales and biases fit all the same
        (NameMap(tensors={"output.weight": "output.weight"}, tokens=[f"x{n}" for n in range(30)]), 16,
         "the model needs conv.weight"),  # rows for other tokens
    ],
)  # fmt: skip
def test_a_file_of_which_no_matrix_fits_is_an_error(tmp_path, names, width, message):
    Recogniser.make(OPTIONS, TokenSet(("en",))).initialise(1).save(tmp_path / "other.safetensors")
    options = OPTIONS.model_copy(update={"width": width})
    with pytest.raises(DataError, match=message):
        import_model(tmp_path / "other.safetensors", names, options, TokenSet(("en",)), 0)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"tensor": {}}, "tensor is not valid"),
        ({"tensors": {"a": 5}}, "tensors.a is not valid"),
        ({"tensors": {"a": {"to": "b", "part": "half"}}}, "tensors.a.part is not valid"),
        ({"tokens": ["a", "a"]}, "'a' is there twice"),
        ({"tokens": {"a": 1, "b": 1}}, "another row for every token"),
        ({"tokens": {"a": 10**12}}, "another row for every token"),
    ],
)
def test_a_wrong_map_is_one_line(tree, message):
    with pytest.raises(ConfigError, match=message) as caught:
        NameMap.read(tree, "names.yaml")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_models_are_refused(tmp_path):
    (tmp_path / "junk").write_bytes(b"junk" * 10)
    for name, message in {"junk": "not a whole safetensors file", "none": "There is no file"}.items():
        with pytest.raises(DataError, match=message):
            import_model(tmp_path / name, NameMap(), OPTIONS, TokenSet(("en",)), 0)
    save_file({"ln.weight": torch.full((16,), torch.nan)}, tmp_path / "nan")
    with pytest.raises(DataError, match="not finite numbers"):
        import_model(tmp_path / "nan", NameMap(), OPTIONS, TokenSet(("en",)), 0)
    save_file({"w": torch.zeros(16), "v": torch.zeros(16)}, tmp_path / "two")
    twice = NameMap.read({"tensors": {"w": "ln.weight", "v": "ln.weight"}}, "map")
    with pytest.raises(ConfigError, match="Two entries"):
        import_model(tmp_path / "two", twice, OPTIONS, TokenSet(("en",)), 0)


def test_training_starts_from_a_seed_of_another_language(make_table, tmp_path):
    store = prepare(Table(file=make_table({"a": 4, "b": 3}), language=("fr",)), tmp_path / "store", workers=1)
    seed = tmp_path / "seed.safetensors"
    Recogniser.make(OPTIONS, TokenSet(("en",))).initialise(1).save(seed)
    settings = (*SMALL_MODEL, "central.steps=1", "central.micro_batch_seconds=4", "central.schedule={lr: 1e-9}")
    words = command_line("central", tmp_path / "run", {"train": str(store.path), "seed-model": str(seed)}, settings, 1)
    finished = run(words)
    assert finished.returncode == 0, finished.stderr
    assert "The seed model writes en, the store fr: 16 tokens are new" in finished.stderr
    model = load_recogniser(tmp_path / "run" / "last")
    assert model.token_set.languages == ("fr",)
    other = (*settings[:-1], "model.width=32")
    data = {"train": str(store.path), "seed-model": str(seed)}
    assert "has another shape" in error_line(run(command_line("central", tmp_path / "no", data, other, 1)))
