"""Exported models give the scores of the model itself, in other programs and for any number of rows and frames."""

import functools
import json
import runpy
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import soundfile
import torch
from safetensors import safe_open

from conftest import ROOT, voice
from sottovoce.data.text import TokenSet
from sottovoce.evaluation.transcription import transcribe
from sottovoce.features import features
from sottovoce.model.conformer_options import ConformerOptions
from sottovoce.model.export import METADATA_FILE, export, metadata
from sottovoce.model.plain import plain
from sottovoce.model.recogniser import Recogniser, load_recogniser
from sottovoce.model.transformer_options import TransformerOptions

SHAPE = {"blocks": 1, "width": 16, "heads": 2, "mlp_width": 32, "dropout": 0.3, "layer_drop": 0.3}
KINDS = {
    "transformer": TransformerOptions(**SHAPE),
    "relative": TransformerOptions(**SHAPE, positions="relative", max_distance=5),
    "post": TransformerOptions(**SHAPE, norm="post"),
    "conformer": ConformerOptions(**SHAPE),
}
LENGTHS = ((77,), (1,), (3, 4), (120, 61, 2, 90, 1))


def recogniser_of(kind: str) -> Recogniser:
    return Recogniser.make(KINDS[kind], TokenSet(("en",))).initialise(3)


def heard(lengths: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features of generated voices; padding is not zero, so that it would be noticed."""
    batch = torch.full((len(lengths), max(lengths), 80), 7.0)
    for row, length in enumerate(lengths):
        own = features(voice(0.015 + length / 100, row)).astype(np.float32)
        batch[row, :length] = torch.from_numpy(own)
    return batch, torch.tensor(lengths)


def differences(recogniser: Recogniser, batch: torch.Tensor, frames: torch.Tensor, scores, outputs) -> float:
    """Return the largest difference to the recogniser's own scores, beyond padding."""
    recogniser.encoder.eval()
    with torch.inference_mode():
        own, counts = recogniser.encoder(batch, frames)
    assert np.asarray(outputs).tolist() == counts.tolist()
    rows = zip(own.numpy(), np.asarray(scores), counts.tolist(), strict=True)
    return max(float(np.abs(one[:count] - other[:count]).max()) for one, other, count in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_plain_network_is_the_encoder(kind):
    recogniser = recogniser_of(kind)
    for lengths in LENGTHS:
        batch, frames = heard(lengths)
        with torch.no_grad():
            assert differences(recogniser, batch, frames, *plain(recogniser.encoder)(batch, frames)) < 1e-5


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    """Export a kind of model once: that takes seconds."""

    @functools.cache
    def exported(kind: str) -> Path:
        path = tmp_path_factory.mktemp("onnx") / f"{kind}.onnx"
        export(recogniser_of(kind), path, "onnx")
        return path

    return exported


@pytest.mark.parametrize(
    "kind",
    ["transformer", "conformer", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("relative", "post"))],
)
def test_onnxruntime_gives_the_same_scores(kind, onnx_file):
    recogniser = recogniser_of(kind)
    session = onnxruntime.InferenceSession(onnx_file(kind))
    for lengths in LENGTHS:
        batch, frames = heard(lengths)
        found = session.run(None, {"features": batch.numpy(), "frames": frames.numpy()})
        assert differences(recogniser, batch, frames, *found) < 1e-4
    assert session.get_modelmeta().custom_metadata_map == metadata(recogniser)
    content = onnx_file(kind).read_bytes()
    assert str(ROOT).encode() not in content
    assert b".py" not in content  # no line of source


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is")  # deprecated, for as long as there is nothing to replace it
@pytest.mark.parametrize("kind", ["transformer", "conformer", "relative"])
def test_torchscript_gives_the_same_scores(kind, tmp_path):
    recogniser = recogniser_of(kind)
    export(recogniser, tmp_path / "model.pt", "torchscript")
    held = {METADATA_FILE: ""}
    network = torch.jit.load(tmp_path / "model.pt", _extra_files=held)
    assert json.loads(held[METADATA_FILE]) == metadata(recogniser)
    for lengths in LENGTHS:
        batch, frames = heard(lengths)
        with torch.no_grad():
            assert differences(recogniser, batch, frames, *network(batch, frames)) < 1e-4
    with zipfile.ZipFile(tmp_path / "model.pt") as file:
        assert all(str(ROOT).encode() not in file.read(name) for name in file.namelist())


@pytest.mark.slow
def test_exporting_leaves_nothing_behind_in_the_process(tmp_path):
    options = TransformerOptions(**SHAPE | {"width": 24})  # a width that nothing has computed yet
    recogniser = Recogniser.make(options, TokenSet(("en",))).initialise(3)
    for name in ("first", "second"):
        export(recogniser, tmp_path / name, "onnx")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_safetensors_hold_the_weights_and_can_be_loaded_again(tmp_path):
    recogniser = recogniser_of("transformer")
    export(recogniser, tmp_path / "weights.safetensors", "safetensors")
    with safe_open(tmp_path / "weights.safetensors", "np") as file:
        assert json.loads(file.metadata()["tokens"]) == list(recogniser.token_set.tokens)
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {  # noqa: SIM118 - not a dictionary
            name: tensor.tolist() for name, tensor in recogniser.flat.tensors().items()
        }
    again = load_recogniser(tmp_path / "weights.safetensors")
    assert torch.equal(again.flat.theta, recogniser.flat.theta)


def example(*words: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(sys, "argv", ["transcribe_onnx.py", *map(str, words)])
    return runpy.run_path(str(ROOT / "examples" / "transcribe_onnx.py"))


def test_the_example_hears_what_the_model_hears(onnx_file, tmp_path, monkeypatch, capsys):
    recogniser = recogniser_of("transformer")
    soundfile.write(tmp_path / "voice.wav", voice(2.0, 1), 16_000, subtype="PCM_16")
    names = example(onnx_file("transformer"), tmp_path / "voice.wav", monkeypatch=monkeypatch)
    samples, _ = soundfile.read(tmp_path / "voice.wav", dtype="float32")
    assert np.abs(names["heard"] - features(samples).astype(np.float32)).max() < 5e-3  # two units of float16
    assert capsys.readouterr().out.strip() == transcribe(recogniser, tmp_path / "voice.wav").text
    code = (ROOT / "examples" / "transcribe_onnx.py").read_text().split('"""', 2)[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    assert "sottovoce" not in code
    assert "torch" not in code


@pytest.mark.parametrize("kind", ["transformer", "conformer"])
def test_onnxruntime_gives_the_same_scores_on_real_speech(kind, real_speech, onnx_file):
    recogniser = recogniser_of(kind)
    session = onnxruntime.InferenceSession(onnx_file(kind))
    files = sorted((real_speech / "LibriSpeech" / "dev-clean").rglob("*.flac"))[:4]
    spoken = [features(soundfile.read(file, dtype="float32")[0]).astype(np.float32) for file in files]
    for chosen in (spoken, spoken[:1], spoken[1:3]):
        frames = torch.tensor([len(one) for one in chosen])
        batch = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(one) for one in chosen], batch_first=True)
        found = session.run(None, {"features": batch.numpy(), "frames": frames.numpy()})
        assert differences(recogniser, batch, frames, *found) < 1e-4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model.safetensors", "--to", "tflite", "--out", "m"], "'--to': 'tflite' is not one of"),
        (["absent", "--to", "onnx", "--out", "m.onnx"], "There is no model at absent"),
        (["model.safetensors", "--to", "onnx", "--out", "no/m.onnx"], "there is no folder no"),
        (["model.safetensors", "--to", "onnx", "--out", "."], "is a folder"),
        (["model.safetensors", "--to", "safetensors", "--out", "model.safetensors"], "is the model itself"),
        (["model.safetensors", "--to", "safetensors", "--out", "last/m.safetensors"], "would lie in a checkpoint"),
    ],
)
def test_bad_input_of_export_is_one_line(words, says, sotto, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recogniser_of("transformer").save(tmp_path / "model.safetensors")
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "checkpoint.json").write_text("{}")
    assert says in sotto("export", *words).error


def test_a_missing_library_is_one_line(sotto, tmp_path, monkeypatch):
    recogniser_of("transformer").save(tmp_path / "model.safetensors")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    failed = sotto("export", tmp_path, "--to", "onnx", "--out", tmp_path / "model.onnx")
    assert "sottovoce[export]" in failed.error
    assert not (tmp_path / "model.onnx").exists()
