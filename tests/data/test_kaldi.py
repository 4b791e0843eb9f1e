import numpy as np
import pytest
import soundfile

from conftest import voice, write_audio
from sottovoce.data.corpora import Kaldi, Table
from sottovoce.data.extract import load_audio
from sottovoce.data.manifest import build_manifest
from sottovoce.data.population import Population
from sottovoce.data.preparation import prepare
from sottovoce.errors import DataError


@pytest.fixture
def folder(tmp_path):
    """A data directory without segments: two speakers, three recordings."""
    for number, name in enumerate(("ann-1", "ann-2", "bob-1")):
        write_audio(tmp_path / "audio" / f"{name}.flac", 1.0, number)
    write(tmp_path, "wav.scp", "ann-1 audio/ann-1.flac\nann-2\taudio/ann-2.flac\nbob-1 audio/bob-1.flac\n")
    write(tmp_path, "text", "ann-1 Hello there\nann-2 Good  day\nbob-1 yes\n")
    write(tmp_path, "utt2spk", "ann-1 ann\nann-2 ann\nbob-1 bob\n")
    write(tmp_path, "spk2gender", "ann f\nbob m\n")
    return tmp_path


def write(folder, name, text):
    (folder / name).write_text(text)


def test_the_store_equals_that_of_a_table(folder):
    lines = "".join(
        f"audio/{name}.flac\t{name[:3]}\t{text}\t{name}\t{sex}\n"
        for name, text, sex in (("ann-1", "Hello there", "f"), ("ann-2", "Good day", "f"), ("bob-1", "yes", "m"))
    )
    write(folder, "table.tsv", "path\tspeaker\ttext\tid\tgender\n" + lines)
    table = prepare(Table(file=folder / "table.tsv", utterance_column="id"), folder / "t")
    store = prepare(Kaldi(folder=folder), folder / "s")
    assert Population.of(store).hash == Population.of(table).hash
    assert store.info.label == folder.name


def test_paths_are_from_the_working_folder_as_in_kaldi_or_from_the_directory(folder, monkeypatch):
    (folder / "data").mkdir()
    for name in ("wav.scp", "text", "utt2spk"):
        (folder / name).rename(folder / "data" / name)
    assert len(build_manifest(Kaldi(folder=folder / "data").read()).table) == 0
    assert len(build_manifest(Kaldi(folder=folder / "data", audio_root=folder).read()).table) == 3
    monkeypatch.chdir(folder)
    assert len(build_manifest(Kaldi(folder=folder / "data").read()).table) == 3


def test_segments_are_parts_of_recordings(tmp_path):
    left, right = voice(4, 1), voice(4, 2)
    soundfile.write(tmp_path / "call.wav", np.stack([left, right], axis=1), 16_000, subtype="FLOAT")
    write(tmp_path, "wav.scp", f"call {tmp_path / 'call.wav'}\n")
    write(
        tmp_path,
        "segments",
        "u1 call 0.5 1.75\nu2 call 2.0 -1 1\nu3 call 3 2\nu4 call a b\nu5 call 1\nu6 gone 0 1\nu7 call 9 11\n",
    )
    write(tmp_path, "text", "".join(f"u{number} hi\n" for number in range(1, 9)))
    write(tmp_path, "utt2spk", "".join(f"u{number} s\n" for number in range(1, 8)))
    spec = Kaldi(folder=tmp_path)
    manifest = build_manifest(spec.read())
    audio = {row["utterance"]: row for row in manifest.table.to_pylist()}
    assert np.allclose(load_audio(audio["u1"], manifest.root), (left + right)[8_000:28_000] / 2, atol=1e-6)
    assert np.allclose(load_audio(audio["u2"], manifest.root), right[32_000:], atol=1e-6)
    assert audio["u1"]["recording"] == "call"
    assert [(one.utterance, one.speaker, str(one.reason)) for one in manifest.rejected] == [
        ("u3", "s", "malformed row"),
        ("u4", "s", "malformed row"),
        ("u5", "s", "malformed row"),
        ("u6", "s", "missing file"),
        ("u8", "", "missing file"),
    ]
    store = prepare(spec, tmp_path / "s", max_rejected=1)
    assert store.info.utterances == 2  # u7 lies after the end of the recording
    assert store.info.rejected == 6


def test_commands_and_archives_are_rejected_and_never_run(folder):
    others = (f"touch {folder / 'run'} |", f"sox a.wav -t wav - | tee {folder / 'run'} |", "|", "wav.ark:1234")
    for other in others:
        what = "archive" if "ark" in other else "never run"
        write(folder, "wav.scp", f"ann-1 {other}\nann-2 audio/ann-2.flac\nbob-1 audio/bob-1.flac\n")
        manifest = build_manifest(Kaldi(folder=folder).read())
        assert manifest.table["utterance"].to_pylist() == ["ann-2", "bob-1"]
        (rejected,) = manifest.rejected
        assert (rejected.utterance, rejected.speaker, str(rejected.reason)) == ("ann-1", "ann", "not a file")
        assert what in rejected.detail
        assert other[:60] in rejected.detail
    write(folder, "wav.scp", "".join(f"ann-{number} {other}\n" for number, other in enumerate(others)))
    with pytest.raises(DataError, match=r"names no file.* a command, .*never run"):
        build_manifest(Kaldi(folder=folder).read())
    assert not (folder / "run").exists()


def test_rows_that_cannot_be_used_are_listed(folder):
    write(folder, "text", "ann-1 Hello there\nann-2\nbob-1 yes\n")
    write(folder, "utt2spk", "ann-1 ann\nann-2 ann\n")
    manifest = build_manifest(Kaldi(folder=folder).read())
    assert [(one.utterance, str(one.reason)) for one in manifest.rejected] == [
        ("ann-2", "no transcript"),
        ("bob-1", "no speaker"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("utt2spk", b"ann-1 ann\nann-1 bob\n", "'ann-1' twice"),
        ("utt2spk", b"ann-1\n", "line 1 has only one field"),
        ("text", b"ann-1 caf\xe9\n", "is not UTF-8"),
        ("wav.scp", None, "has no wav.scp"),
        ("text", None, "has no text"),
    ],
)
def test_damaged_files_are_one_clear_error(folder, name, content, words):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        build_manifest(Kaldi(folder=folder).read())


def test_the_command(folder, sotto):
    done = sotto("data", "prepare", "kaldi", folder, "--out", folder / "s", "--workers", 1, "--json")
    assert done.document["utterances"] == 3
    assert "does not exist" in sotto("data", "prepare", "kaldi", folder / "gone", "--out", folder / "t").error
