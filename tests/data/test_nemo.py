import gzip
import json

import numpy as np
import pytest
import soundfile

from conftest import voice, write_audio
from sottovoce.data.corpora import NeMo, Table
from sottovoce.data.extract import load_audio
from sottovoce.data.manifest import build_manifest
from sottovoce.data.population import Population
from sottovoce.data.preparation import prepare
from sottovoce.errors import DataError


def write(path, *lines):
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def line(path, text="hello there", **more):
    return {"audio_filepath": path, "duration": 1.0, "text": text, "speaker": "ann", **more}


@pytest.mark.parametrize("name", ["manifest.json", "manifest.jsonl", "manifest.json.gz"])
def test_the_store_equals_that_of_a_table(tmp_path, name):
    write_audio(tmp_path / "x" / "a.wav", 1.0, 1)
    write_audio(tmp_path / "x" / "b.wav", 1.2, 2)
    manifest = write(tmp_path / name, line("x/a.wav", sex="f"), line("x/b.wav", "good day", speaker=7))
    (tmp_path / "t.tsv").write_text("path\tspeaker\ttext\tsex\nx/a.wav\tann\thello there\tf\nx/b.wav\t7\tgood day\t\n")
    store, table = (
        prepare(NeMo(manifest=manifest), tmp_path / "s"),
        prepare(Table(file=tmp_path / "t.tsv"), tmp_path / "t"),
    )
    assert Population.of(store).hash == Population.of(table).hash


def test_an_offset_makes_a_part_of_a_file(tmp_path):
    samples = voice(4, 1)
    soundfile.write(tmp_path / "a.wav", samples, 16_000, subtype="FLOAT")
    lines = [line("a.wav", offset=0.5, duration=1.25), line("a.wav", offset=3.0, duration=None), line("a.wav")]
    manifest = build_manifest(NeMo(manifest=write(tmp_path / "m.json", *lines)).read())
    audio = {row["utterance"]: load_audio(row, manifest.root) for row in manifest.table.to_pylist()}
    assert np.allclose(audio["a@0.5"], samples[8_000:28_000])
    assert np.allclose(audio["a@3.0"], samples[48_000:])
    assert np.allclose(audio["a"], samples)  # a duration alone is that of the file


def test_lines_that_cannot_be_used_are_listed(tmp_path):
    write_audio(tmp_path / "a.wav", 1.0)
    lines = [
        line("a.wav"),
        line("a.wav"),
        line("b.wav"),
        line(""),
        line("a.wav", offset=-1),
        line("a.wav", offset="soon"),
        line("a.wav", offset=float("nan")),
        line("a.wav", offset=0.1, duration=0),
        line("a.wav", text="", utterance="u"),
        line("a.wav", speaker=None),
        "{oops",
        "[1]",
    ]
    manifest = build_manifest(NeMo(manifest=write(tmp_path / "m.json", *lines)).read())
    assert len(manifest.table) == 1
    assert [str(one.reason) for one in manifest.rejected] == [
        "duplicate id",
        "missing file",
        "missing file",
        *["malformed row"] * 2,
        "duplicate id",  # an offset that is missing
        "malformed row",
        "duplicate id",
        "no speaker",
        *["malformed row"] * 2,
    ]


def test_other_keys_and_folders(tmp_path, sotto):
    write_audio(tmp_path / "audio" / "a.wav", 1.0)
    lines = {"audio_filepath": "a.wav", "who": "bob", "words": "yes", "key": "u1"}
    write(tmp_path / "m.json", lines)
    keys = ("--speaker-key", "who", "--text-key", "words", "--utterance-key", "key", "--audio-root", tmp_path / "audio")
    done = sotto(
        "data", "prepare", "nemo", tmp_path / "m.json", *keys, "--out", tmp_path / "s", "--workers", 1, "--json"
    )
    assert done.document["speakers"] == 1
    with pytest.raises(DataError, match="does not exist"):
        NeMo(manifest=tmp_path / "gone.json").read()
    (tmp_path / "m.json.gz").write_bytes(gzip.compress(b"{}")[:-5])
    with pytest.raises(DataError, match="is damaged"):
        build_manifest(NeMo(manifest=tmp_path / "m.json.gz").read())
