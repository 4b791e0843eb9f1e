import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from conftest import store_content, voice, write_audio
from sottovoce.data.corpora import Table
from sottovoce.data.extract import Chunk, extract, load_audio
from sottovoce.data.joining import Joining
from sottovoce.data.manifest import Corpus, Entry, Reason, build_manifest
from sottovoce.data.preparation import prepare
from sottovoce.data.preparation_cost import estimate_preparation
from sottovoce.data.store import CONTENT_FILES, INFO, Store, partial_path
from sottovoce.data.text import TokenSet
from sottovoce.data.writer import read_rejected
from sottovoce.errors import DataError
from sottovoce.features import logmel
from sottovoce.files import require_free


def test_a_store_holds_every_utterance_sorted_by_speaker(make_store):
    store = make_store({"b": 2, "a": 3})
    index = store.index().to_pylist()
    assert [row["speaker"] for row in index] == ["a", "a", "a", "b", "b"]
    assert store.speaker_names().to_pylist() == ["a", "b"]
    for number, row in enumerate(index):
        audio = soundfile.read(store.root_of(0) / row["paths"][0], dtype="float32")[0]
        assert row["seconds"] == len(audio) / 16_000
        assert row["frames"] == logmel.frame_count(len(audio)) == len(store.features_of(number))
        assert (store.features_of(number) == logmel.features(audio)).all()
        assert store.token_set.decode(store.tokens_of(number)) == row["text"]
        assert row["mood"] == "calm"
    assert store.damaged_files() == []


def test_more_workers_give_the_same_bytes(make_table, tmp_path):
    table = make_table({"a": 30, "b": 25})
    corpus = Table(file=table)
    one = prepare(corpus, tmp_path / "one", workers=1)
    three = prepare(corpus, tmp_path / "three", workers=3)
    assert store_content(one.path) == store_content(three.path)


def test_preparing_again_changes_nothing(make_table, tmp_path):
    corpus = Table(file=make_table({"a": 3}))
    store = prepare(corpus, tmp_path / "s", workers=1)
    before = {path: path.stat().st_mtime_ns for path in store.path.iterdir()}
    prepare(corpus, tmp_path / "s", workers=1)
    assert {path: path.stat().st_mtime_ns for path in store.path.iterdir()} == before


def test_an_existing_folder_is_never_overwritten(make_table, tmp_path):
    table = make_table({"a": 3})
    corpus = Table(file=table)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="exists and is not an empty folder"):
        prepare(corpus, tmp_path / "mine", workers=1)
    prepare(corpus, tmp_path / "s", workers=1)
    with pytest.raises(DataError, match="made with other options"):
        prepare(Table(file=table, label="other"), tmp_path / "s", workers=1)
    write_audio(table.parent / "a" / "a000.flac", 2.5, seed=99)
    with pytest.raises(DataError, match="made before the corpus changed"):
        prepare(corpus, tmp_path / "s", workers=1)


def test_damage_is_found(make_store):
    store = make_store({"a": 3})
    path = store.path / "features.f16"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert Store.open(store.path).damaged_files() == ["features.f16"]
    path.write_bytes(good[:-160])
    with pytest.raises(DataError, match="bytes, not"):
        Store.open(store.path)
    path.write_bytes(good)
    (store.path / "tokens.npy").unlink()
    with pytest.raises(DataError, match=r"has no tokens\.npy"):
        Store.open(store.path)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": "other"}', '{"format": "sottovoce-store-2"}'])
def test_a_damaged_store_json_is_one_clear_error(make_store, damage):
    store = make_store({"a": 1})
    (store.path / INFO).write_text(damage)
    with pytest.raises(DataError, match="Prepare"):
        Store.open(store.path)


def row(path: Path, text: str) -> dict:
    return {"paths": [path.name], "text": text, "start": None, "segment_seconds": None, "channel": None, "pauses": []}


def test_audio_is_long_enough_for_ctc_or_refused(tmp_path):
    """Three frames make one output; "hello" between boundaries needs 7 outputs and one blank between the two l."""
    for outputs, fits in ((7, False), (8, True)):
        frames = 3 * (outputs - 1) + 1
        path = tmp_path / f"{outputs}.wav"
        soundfile.write(path, voice(1, 0)[: 400 + 160 * (frames - 1)], 16_000)
        result = extract(Chunk(tmp_path, TokenSet(("en",)), [row(path, "hello")]))
        assert (result.samples[0] > 0) == fits
        if not fits:
            assert result.rejected[0] == (Reason.TOO_SHORT, "0.20 s give 7 outputs, CTC needs 8 for the text")


def test_digital_silence_is_refused(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(16_000), 16_000)
    result = extract(Chunk(tmp_path, TokenSet(("en",)), [row(tmp_path / "a.wav", "hi")]))
    assert result.rejected[0][0] == Reason.SILENT_AUDIO


def test_a_disk_that_is_too_small_stops_before_anything_is_written(tmp_path):
    with pytest.raises(DataError, match=r"needs about 1000000\.0 TB but its disk has"):
        require_free(tmp_path / "new" / "store", 1e18)
    assert not (tmp_path / "new").exists()


def test_the_manifest_records_what_was_made_from_what(make_store):
    document = json.loads((make_store({"a": 2}).path / INFO).read_text())
    assert document["request"]["corpus"]["kind"] == "table"
    assert set(document["files"]) == set(CONTENT_FILES)
    assert {"sottovoce", "numpy", "soundfile", "libsndfile", "soxr", "kaldi-native-fbank"} <= set(document["versions"])
    assert document["features"]["bins"] == 80


def test_the_disk_is_checked_before_a_folder_is_made(make_table, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=100_000))
    with pytest.raises(DataError, match=r"needs about 8\d\d\.\d kB but its disk has 100\.0 kB free"):
        prepare(Table(file=make_table({"a": 40})), tmp_path / "s", workers=1)
    assert not partial_path(tmp_path / "s").exists()


def test_a_part_of_the_index_is_read_from_the_right_row_groups(make_table, tmp_path, monkeypatch):
    monkeypatch.setattr("sottovoce.data.writer._INDEX_GROUP_ROWS", 4)
    store = prepare(Table(file=make_table({"a": 13})), tmp_path / "s", workers=1)
    everything = store.index().to_pylist()
    for start in range(13):
        for stop in range(start + 1, 14):
            assert store.index(rows=slice(start, stop)).to_pylist() == everything[start:stop]


def test_every_part_of_a_broken_joined_utterance_is_listed(make_table, tmp_path):
    table = make_table({"a": 40})
    (table.parent / "a" / "a007.flac").write_bytes(b"broken")
    store = prepare(Table(file=table), tmp_path / "s", joining=Joining(least=4, most=4), max_rejected=0.2, workers=1)
    rejected = read_rejected(store.path)
    used = {part for row in store.index().to_pylist() for part in row["parts"]}
    assert len(rejected) == 4
    assert "a/a007" in {one.utterance for one in rejected}
    assert used | {one.utterance for one in rejected} == {f"a/a{number:03d}" for number in range(40)}
    assert all("a007.flac" in one.detail for one in rejected)


def test_pauses_stand_where_the_index_says(make_table, tmp_path):
    corpus = Table(file=make_table({"a": 12}))
    store = prepare(corpus, tmp_path / "s", joining=Joining(least=4, most=4), workers=1)
    row = store.index().to_pylist()[0]
    audio = load_audio(row, store.root_of(0))
    at = 0
    for path, pause in zip(row["paths"], [*row["pauses"], 0], strict=True):
        part = soundfile.read(store.root_of(0) / path, dtype="float32")[0]
        assert (audio[at : at + len(part)] == part).all()
        silence = round(pause * 16_000)
        assert not audio[at + len(part) : at + len(part) + silence].any()
        at += len(part) + silence
    assert at == len(audio)


def test_an_estimate_counts_segments_not_whole_recordings(tmp_path):
    write_audio(tmp_path / "long.wav", 60.0)
    entry = Entry("u", "a", "hello", "en", ("long.wav",), start=1.0, segment_seconds=2.0)
    manifest = build_manifest(Corpus("x", tmp_path, ("en",), [entry]))
    assert estimate_preparation(manifest).seconds == 2.0


def test_a_store_travels_to_another_process_as_its_path(make_store):
    store = make_store({"a": 3})
    frames = store.frames(0, store.info.frames)
    assert len(frames) > 0
    packed = pickle.dumps(store)
    assert len(packed) < 1000
    assert (pickle.loads(packed).frames(0, len(frames)) == frames).all()  # noqa: S301 - our own


@pytest.mark.parametrize("name", ["index.parquet", "speakers.parquet"])
def test_damaged_tables_are_one_clear_error(make_store, name):
    store = make_store({"a": 3})
    (store.path / name).write_bytes(b"damaged")
    with pytest.raises(DataError, match="is damaged"):
        store.index(["speaker"]) if name == "index.parquet" else store.speaker_names()


def test_a_name_that_cannot_become_a_store_is_refused_at_once(make_table, tmp_path, monkeypatch):
    corpus = Table(file=make_table({"a": 2}))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with pytest.raises(DataError, match="is a link"):
        prepare(corpus, tmp_path / "link", workers=1)
    monkeypatch.chdir(tmp_path / "folder")
    with pytest.raises(DataError, match="cannot be replaced"):
        prepare(corpus, Path(), workers=1)
    monkeypatch.chdir(tmp_path)
    assert prepare(corpus, tmp_path / "folder", workers=1).info.utterances == 2
