import json

import numpy as np
import pytest
import soundfile

from sottovoce.data.corpora import Table
from sottovoce.data.extract import load_audio
from sottovoce.data.joining import Joining
from sottovoce.data.merging import merge
from sottovoce.data.preparation import prepare
from sottovoce.data.store import Store, partial_path
from sottovoce.errors import DataError
from sottovoce.files import only_writer
from sottovoce.processes import no_progress


def merged(stores, out, **options):
    return merge(
        stores, out, **({"same_speakers": False, "prefix": False, "label": None} | options), progress=no_progress
    )


def by_utterance(store):
    names = store.index(["utterance"])["utterance"].to_pylist()
    return {name: (store.features_of(row).tobytes(), store.tokens_of(row).tobytes()) for row, name in enumerate(names)}


def test_a_merged_store_has_every_utterance_of_both(make_store, tmp_path):
    one, other = make_store({"a": 3, "c": 2}, "one"), make_store({"b": 4}, "other")
    store = merged([one, other], tmp_path / "both")
    assert by_utterance(store) == by_utterance(one) | by_utterance(other)
    assert store.speaker_names().to_pylist() == ["a", "b", "c"]
    assert store.info.seconds == pytest.approx(one.info.seconds + other.info.seconds)
    assert store.damaged_files() == []
    assert Store.open(tmp_path / "both").info.label == "one+other"
    for row in store.index().to_pylist():
        audio = load_audio(row, store.root_of(row["root"]))
        assert len(audio) == round(row["seconds"] * 16_000)


def test_equal_names_are_never_guessed_to_be_one_person_or_two(make_store, tmp_path):
    one, other = make_store({"a": 3, "b": 1}, "one"), make_store({"a": 2}, "other")
    with pytest.raises(DataError, match="1 speakers, such as 'a', are in more than one store"):
        merged([one, other], tmp_path / "both")
    with pytest.raises(DataError, match="utterances, such as 'a/a000', are in more than one store"):
        merged([one, other], tmp_path / "both", same_speakers=True)
    apart = merged([one, other], tmp_path / "apart", prefix=True)
    assert apart.speaker_names().to_pylist() == ["one:a", "one:b", "other:a"]
    assert np.diff(apart.speaker_offsets).tolist() == [3, 1, 2]
    assert not (tmp_path / "both").exists()


def test_the_same_speakers_become_one_user(make_store, make_table, tmp_path):
    one = make_store({"a": 2}, "one")
    table = make_table({"a": 3}, name="other")
    lines = table.read_text().splitlines()
    table.write_text("\n".join([lines[0] + "\tid", *(f"{line}\tnew{n}" for n, line in enumerate(lines[1:]))]) + "\n")
    other = prepare(Table(file=table, utterance_column="id"), tmp_path / "other-store", workers=1)
    store = merged([one, other], tmp_path / "both", same_speakers=True)
    assert store.info.speakers == 1
    assert store.info.utterances == 5


def test_what_does_not_fit_is_refused(make_store, make_table, tmp_path):
    one = make_store({"a": 1}, "one")
    german = prepare(Table(file=make_table({"b": 1}, name="de"), language=("de",)), tmp_path / "de-store", workers=1)
    with pytest.raises(DataError, match="different token sets"):
        merged([one, german], tmp_path / "both")
    with pytest.raises(DataError, match="at least two stores"):
        merged([one], tmp_path / "both")
    with pytest.raises(DataError, match="exists"):
        merged([one, one], one.path)


def test_a_joined_utterance_survives_a_merge(make_table, make_store, tmp_path):
    corpus = Table(file=make_table({"z": 6}, name="joined"))
    joined = prepare(corpus, tmp_path / "joined-store", joining=Joining(least=2, most=3), workers=1)
    store = merged([make_store({"a": 2}, "one"), joined], tmp_path / "both")
    (row, *_) = [row for row in store.index().to_pylist() if row["speaker"] == "z"]
    audio = load_audio(row, store.root_of(row["root"]))
    parts = [soundfile.read(store.root_of(row["root"]) / path)[0] for path in row["paths"]]
    assert len(audio) == sum(map(len, parts)) + sum(round(16_000 * pause) for pause in row["pauses"])


def test_merging_merged_stores_keeps_every_root(make_store, tmp_path):
    one, two, three = (make_store({name: 2}, name) for name in ("x", "y", "z"))
    first = merged([one, two], tmp_path / "first")
    store = merged([three, first], tmp_path / "second")
    for row in store.index().to_pylist():
        audio = soundfile.read(store.root_of(row["root"]) / row["paths"][0])[0]
        assert len(audio) == round(row["seconds"] * 16_000)
        assert row["speaker"] in str(store.root_of(row["root"]))


def test_a_store_that_holds_its_own_audio_can_be_merged(make_table, make_store, tmp_path):
    inside = make_store({"a": 2}, "one")
    info = json.loads((inside.path / "store.json").read_text())
    (inside.path / "audio").symlink_to(inside.root_of(0))
    info["roots"] = ["audio"]
    (inside.path / "store.json").write_text(json.dumps(info))
    store = merged([make_store({"b": 1}, "two"), Store.open(inside.path)], tmp_path / "both")
    for row in store.index().to_pylist():
        assert (store.root_of(row["root"]) / row["paths"][0]).is_file()


def test_only_one_merge_at_a_time_and_leftovers_are_removed(make_store, tmp_path):
    one, two = make_store({"a": 2}, "one"), make_store({"b": 2}, "two")
    partial = partial_path(tmp_path / "both")
    partial.mkdir()
    (partial / ".features.f16.123.tmp").write_bytes(b"left by a killed merge")
    with only_writer(partial), pytest.raises(DataError, match="Another process"):
        merged([one, two], tmp_path / "both")
    store = merged([one, two], tmp_path / "both")
    assert not list(store.path.glob(".*"))


def test_equal_labels_are_told_apart_by_their_folders(make_store, tmp_path):
    one, two = make_store({"a": 1}, "one"), make_store({"a": 1}, "two")
    for store in (one, two):
        info = json.loads((store.path / "store.json").read_text())
        (store.path / "store.json").write_text(json.dumps(info | {"label": "same"}))
    store = merged([Store.open(one.path), Store.open(two.path)], tmp_path / "both", prefix=True)
    assert store.speaker_names().to_pylist() == ["one-store:a", "two-store:a"]
