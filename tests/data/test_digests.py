"""Populations are known by their own content, and nothing that one speaker carries changes another's."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import store_content, write_audio
from sottovoce.data.corpora import Table
from sottovoce.data.digests import as_digests, places_of_common
from sottovoce.data.joining import Joining
from sottovoce.data.merging import merge
from sottovoce.data.overlap import overlap_of
from sottovoce.data.population import Population
from sottovoce.data.preparation import prepare
from sottovoce.data.store import DIGESTS, INFO, OLDER_FORMAT, Store
from sottovoce.data.upgrading import upgrade
from sottovoce.errors import DataError

VICTIMS = {"ann": 3, "bob": 4, "eve": 2}


def content_of(store: Store) -> dict[str, list[dict[str, object]]]:
    """Return everything that a store holds of every speaker, by name; empty columns and row numbers aside."""
    speakers: dict[str, list[dict[str, object]]] = {}
    for row, described in enumerate(store.index().to_pylist()):
        utterance = {name: value for name, value in described.items() if value is not None}
        utterance["features"], utterance["target"] = store.features_of(row).tobytes(), store.tokens_of(row).tobytes()
        utterance["digests"] = store.audio_digests[row].tobytes() + store.content_digests[row].tobytes()
        speakers.setdefault(described["speaker"], []).append(utterance)
    return speakers


def as_rows(table) -> list[dict[str, str]]:
    header, *lines = table.read_text().splitlines()
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def test_a_population_hash_is_of_its_own_utterances_only(make_store):
    with_one = make_store({"ann": 2, "ben": 3, "bob": 2, "zoe": 1}, "with")
    without = make_store({"ann": 2, "bob": 2, "zoe": 1}, "without")
    assert with_one.info.hash != without.info.hash
    dev = [Population.of(store, ["bob", "zoe"]) for store in (with_one, without)]
    assert dev[0].all_rows().tolist() != dev[1].all_rows().tolist()
    assert dev[0].hash == dev[1].hash
    assert Population.of(with_one).hash != Population.of(without).hash
    assert Population.of(with_one, ["ann", "bob", "zoe"]).hash == Population.of(without).hash
    hashes = {Population.of(without, names).hash for names in (["ann"], ["bob"], ["ann", "bob"], ["bob", "zoe"])}
    assert len({*hashes, Population.of(without).hash, Population.of(without).iid(0).hash}) == 6


@pytest.mark.parametrize("change", ["audio", "text", "id", "speaker", "column"])
def test_a_changed_utterance_changes_the_hash(make_table, tmp_path, change):
    table = make_table({"ann": 2, "bob": 2})
    before = prepare(Table(file=table), tmp_path / "before", workers=1)
    edits = {"text": ("hello number a", "hello number b"), "speaker": ("\tbob\t", "\trob\t"), "column": ("calm", "sad")}
    if change == "audio":
        write_audio(table.parent / "bob" / "bob000.flac", 1.5, seed=1)
    elif change == "id":
        (table.parent / "bob" / "bob000.flac").rename(table.parent / "bob" / "other.flac")
        table.write_text(table.read_text().replace("bob000", "other"))
    else:
        table.write_text(table.read_text().replace(*edits[change]))
    after = prepare(Table(file=table), tmp_path / "after", workers=1)
    assert Population.of(before).hash != Population.of(after).hash
    unchanged = change in ("audio", "id", "speaker")
    assert (Population.of(before, ["ann"]).hash == Population.of(after, ["ann"]).hash) is unchanged


def test_a_merge_keeps_the_digests(make_store, tmp_path):
    one, other = make_store({"ann": 3, "cat": 2}, "one"), make_store({"bob": 4}, "other")
    both = merge([one, other], tmp_path / "both")
    assert Population.of(both, ["bob"]).hash == Population.of(other).hash
    assert Population.of(both, ["ann", "cat"]).hash == Population.of(one).hash
    apart = merge([one, other], tmp_path / "apart", prefix=True)
    assert Population.of(apart, ["other:bob"]).hash != Population.of(other).hash
    assert len(places_of_common(apart.audio_digests, other.audio_digests)) == 4


@given(
    st.lists(st.binary(min_size=1, max_size=1), max_size=12), st.lists(st.binary(min_size=1, max_size=1), max_size=12)
)
def test_common_digests_are_found_wherever_they_lie(one, other):
    def digests(values, tail):
        return as_digests(b"".join(value.rjust(8, b"\0") + tail * 8 for value in values))

    expected = [place for place, value in enumerate(other) if value in one]
    assert places_of_common(digests(one, b"x"), digests(other, b"x")).tolist() == expected
    assert places_of_common(digests(one, b"x"), digests(other, b"y")).tolist() == []


@pytest.mark.parametrize("joining", [None, Joining(least=1, most=2, times=2)], ids=["plain", "joined"])
@pytest.mark.parametrize("name", ["aaa", "bobby", "zzz"])  # before, between and after the others
def test_a_hostile_speaker_changes_nothing_of_the_others(make_table, tmp_path, name, joining):
    table = make_table(VICTIMS)
    rows = [{**row, "id": f"u{number}", "root": "r"} for number, row in enumerate(as_rows(table))]
    copies = [{**row, "speaker": name} for row in rows]  # the others' ids, texts and files
    strange = [
        {**rows[0], "speaker": name, "id": "x", "path": "nowhere.flac"},
        {**rows[1], "speaker": name, "id": "u1", "text": "room 12"},
        {**rows[2], "speaker": name, "id": "y", "corpus_root": "renamed", "sex": "unheard of"},
        {**rows[3], "speaker": f" {name}\t", "id": "u3"},
    ]
    stores = {}
    for label, lines in (("without", rows), ("with", [*copies, *strange, *rows])):
        file = table.parent / f"{label}.jsonl"
        file.write_text("\n".join(map(json.dumps, lines)) + "\n")
        corpus = Table(file=file, utterance_column="id")
        stores[label] = prepare(corpus, tmp_path / label, joining=joining, max_rejected=0.5, workers=1)
    expected, found = content_of(stores["without"]), content_of(stores["with"])
    assert {speaker: found[speaker] for speaker in VICTIMS} == expected
    assert found.keys() == {*VICTIMS, name}
    for speakers in (["bob"], list(VICTIMS)):
        assert len({Population.of(store, speakers).hash for store in stores.values()}) == 1


def test_the_same_id_twice_is_a_duplicate_for_one_speaker_only(make_table, tmp_path):
    table = make_table({"ann": 1, "bob": 1})
    lines = table.read_text().splitlines()
    header, ann, bob = (f"{line}\t{last}" for line, last in zip(lines, ("id", "u", "u"), strict=True))
    table.write_text("\n".join([header, ann, bob, ann]) + "\n")
    store = prepare(Table(file=table, utterance_column="id"), tmp_path / "s", max_rejected=0.5, workers=1)
    assert store.index(["speaker", "utterance"]).to_pylist() == [
        {"speaker": "ann", "utterance": "u"},
        {"speaker": "bob", "utterance": "u"},
    ]
    assert store.info.rejected == 1


def test_an_older_store_is_completed_and_equals_a_new_one(make_store, tmp_path, sotto):
    store = make_store({"ann": 2, "bob": 3})
    new = store_content(store.path)
    older = json.loads((store.path / INFO).read_text()) | {"format": OLDER_FORMAT, "hash": "of the older format"}
    del older["files"][DIGESTS]
    (store.path / INFO).write_text(json.dumps(older))
    (store.path / DIGESTS).unlink()
    older = json.loads((store.path / INFO).read_text())
    lost = older["files"].pop("tokens.npy")
    (store.path / INFO).write_text(json.dumps(older))
    with pytest.raises(DataError, match=r"it has no hash of tokens\.npy"):
        upgrade(store.path)
    (store.path / INFO).write_text(json.dumps(older | {"files": {**older["files"], "tokens.npy": lost}}))
    with pytest.raises(DataError, match=r"was made by an older version\. Complete it with `sotto data upgrade"):
        Store.open(store.path)
    assert sotto("data", "upgrade", store.path, "--json").document["hash"] == json.loads(new[INFO])["hash"]
    assert store_content(store.path) == new
    assert upgrade(store.path).damaged_files() == []
    shutil.copytree(store.path, tmp_path / "cut")
    np.save(tmp_path / "cut" / DIGESTS, np.zeros((4, 2, 16), np.uint8))
    with pytest.raises(DataError, match=r"digests\.npy is damaged"):
        Store.open(tmp_path / "cut")


def test_an_overlap_is_found_by_name_and_by_audio(make_store, make_table, tmp_path):
    one = make_store({"ann": 2, "bob": 3}, "one")
    renamed = make_table({"ann": 2, "cat": 1}, name="two")
    renamed.write_text(renamed.read_text().replace("\tann\t", "\tanna\t"))
    two = prepare(Table(file=renamed), tmp_path / "two-store", workers=1)
    found = overlap_of(Population.of(one), Population.of(two))
    assert (found.names, found.utterances, found.speakers, found.same_store) == ([], 2, ["anna"], False)
    found = overlap_of(Population.of(two), Population.of(one))
    assert (found.names, found.utterances, found.speakers) == ([], 2, ["ann"])
    three = make_store({"bob": 1}, "three", seconds=2)
    found = overlap_of(Population.of(one).iid(0), Population.of(three))
    assert (found.names, found.utterances, found.speakers, found.same_store) == (["bob"], 0, ["bob"], False)
    found = overlap_of(Population.of(one, ["ann"]), Population.of(one, ["bob"]))
    assert (found.names, found.utterances, found.speakers, found.same_store) == ([], 0, [], True)
