"""Who a seed model was trained on: users among them are refused, and what cannot be known is said."""

import json
from pathlib import Path

import pytest

from sottovoce.data.population import Population
from sottovoce.data.selection import Selection
from sottovoce.errors import PrivacyError
from sottovoce.federated.seed import describe_seed_model


@pytest.fixture
def store(make_store):
    return make_store({"a": 2, "b": 2, "c": 2, "d": 2})


def seed_run(folder: Path, store, train: str, dev: str | None = None, before: Path | None = None) -> Path:
    """Make the folder of a run as training leaves it behind: its configuration, its data's hashes, a model."""
    data, hashes = {"seed_model": None if before is None else str(before)}, {}
    (folder / "last").mkdir(parents=True)
    (folder / "last" / "model.safetensors").write_bytes(b"a model")
    for role, speakers in (("train", train), ("dev", dev)):
        data[role] = None
        if speakers is not None:
            (folder / f"{role}.txt").write_text("\n".join(speakers))
            data[role] = {"store": str(store.path), "speakers": str(folder / f"{role}.txt")}
            hashes[role] = Selection(**data[role]).open().hash
    document = {"config": {"seed": 0, "users": {"iid": False}, "data": data}, "data": hashes}
    (folder / "config.json").write_text(json.dumps(document))
    return folder


def test_other_speakers_are_fine_and_users_are_not(store, tmp_path):
    users = Population.of(store, "cd")
    assert describe_seed_model(None, users) == "none"
    other = seed_run(tmp_path / "other", store, "ab")
    for place in (other, other / "last", other / "last" / "model.safetensors"):
        assert "trained on other speakers" in describe_seed_model(place, users)
    for name, train, dev in (("overlap", "bc", None), ("dev", "ab", "d")):
        seed = seed_run(tmp_path / name, store, train, dev)
        with pytest.raises(PrivacyError, match="was made with 1 of the users"):
            describe_seed_model(seed, users)


def test_what_a_seed_model_began_with_counts_too(store, tmp_path):
    first = seed_run(tmp_path / "first", store, "c")
    second = seed_run(tmp_path / "second", store, "ab", before=first)
    with pytest.raises(PrivacyError, match="was made with 1 of the users"):
        describe_seed_model(second, Population.of(store, "cd"))
    (tmp_path / "first" / "last" / "model.safetensors").unlink()
    assert "it began with: no longer there" in describe_seed_model(second, Population.of(store, "cd"))


def test_speakers_of_another_store_are_compared_by_name(store, make_store, tmp_path):
    other = make_store({"d": 3, "x": 1}, name="other")
    seed = seed_run(tmp_path / "seed", other, "dx")
    with pytest.raises(PrivacyError, match="was made with 1 of the users"):
        describe_seed_model(seed, Population.of(store, "cd"))


def test_what_cannot_be_known_is_said(store, tmp_path):
    users = Population.of(store, "cd")
    seed = seed_run(tmp_path / "seed", store, "abc")
    (seed / "train.txt").write_text("a\nb\n")  # not the list it was trained with
    assert "no longer there to be compared" in describe_seed_model(seed, users)
    (seed / "train.txt").unlink()
    assert "no longer there to be compared" in describe_seed_model(seed, users)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "model.safetensors").write_bytes(b"a model")
    assert "speakers that are not known" in describe_seed_model(bare / "model.safetensors", users)
