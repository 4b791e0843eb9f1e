import numpy as np
import pytest
import soundfile

from sottovoce.data.corpora import Table
from sottovoce.data.extract import load_audio
from sottovoce.data.joining import Joining
from sottovoce.data.merge import merge
from sottovoce.data.prepare import Request, prepare
from sottovoce.data.store import Store
from sottovoce.errors import DataError
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
    other = prepare(Request(Table(file=table, utterance_column="id")), tmp_path / "other-store", 1, no_progress)
    store = merged([one, other], tmp_path / "both", same_speakers=True)
    assert store.info.speakers == 1
    assert store.info.utterances == 5


def test_what_does_not_fit_is_refused(make_store, make_table, tmp_path):
    one = make_store({"a": 1}, "one")
    german = prepare(
        Request(Table(file=make_table({"b": 1}, name="de"), language=("de",))), tmp_path / "de-store", 1, no_progress
    )
    with pytest.raises(DataError, match="different token sets"):
        merged([one, german], tmp_path / "both")
    with pytest.raises(DataError, match="at least two"):
        merged([one], tmp_path / "both")
    with pytest.raises(DataError, match="exists"):
        merged([one, one], one.path)


def test_a_joined_utterance_survives_a_merge(make_table, make_store, tmp_path):
    request = Request(Table(file=make_table({"z": 6}, name="joined")), Joining(least=2, most=3))
    joined = prepare(request, tmp_path / "joined-store", 1, no_progress)
    store = merged([make_store({"a": 2}, "one"), joined], tmp_path / "both")
    (row, *_) = [row for row in store.index().to_pylist() if row["speaker"] == "z"]
    audio = load_audio(row, store.root_of(row["root"]))
    parts = [soundfile.read(store.root_of(row["root"]) / path)[0] for path in row["paths"]]
    assert len(audio) == sum(map(len, parts)) + sum(round(16_000 * pause) for pause in row["pauses"])
