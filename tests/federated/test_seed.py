"""Who a seed model was trained on: users among them are refused, and what cannot be known must be stated."""

import json
from pathlib import Path

import pytest

from sottovoce.config import Config
from sottovoce.data.population import Population
from sottovoce.data.selection import Selection
from sottovoce.errors import PrivacyError
from sottovoce.federated.seed import describe_seed_model
from sottovoce.privacy.privacy_options import Privacy
from sottovoce.runs.documents import RunConfig

STATED = ("unknown_seed_model",)


@pytest.fixture
def store(make_store):
    return make_store({"a": 2, "b": 2, "c": 2, "d": 2})


def described(checkpoint: Path | None, users: Population, **privacy) -> str:
    """Describe a seed model for a run with a guarantee."""
    options = Privacy(clip_norm=1.0, clipping="dim", sigma_dp=1.0, **privacy)
    return describe_seed_model(Config(data={"seed_model": checkpoint}, privacy=options), users).description


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
    assert described(None, users) == "none"
    other = seed_run(tmp_path / "other", store, "ab")
    for place in (other, other / "last", other / "last" / "model.safetensors"):
        assert "trained on other speakers" in described(place, users)
    for name, train, dev in (("overlap", "bc", None), ("dev", "ab", "d")):
        seed = seed_run(tmp_path / name, store, train, dev)
        with pytest.raises(PrivacyError, match="was made with 1 of the users"):
            described(seed, users)


def test_what_a_seed_model_began_with_counts_too(store, tmp_path):
    first = seed_run(tmp_path / "first", store, "c")
    second = seed_run(tmp_path / "second", store, "ab", before=first)
    with pytest.raises(PrivacyError, match="was made with 1 of the users"):
        described(second, Population.of(store, "cd"))
    (tmp_path / "first" / "last" / "model.safetensors").unlink()
    with pytest.raises(PrivacyError, match="it is no longer there"):
        described(second, Population.of(store, "cd"))
    assert "it began with: no longer there" in described(second, Population.of(store, "cd"), accept=STATED)


def test_speakers_of_another_store_are_compared_by_name(store, make_store, tmp_path):
    other = make_store({"d": 3, "x": 1}, name="other")
    seed = seed_run(tmp_path / "seed", other, "dx")
    with pytest.raises(PrivacyError, match="was made with 1 of the users"):
        described(seed, Population.of(store, "cd"))


def test_users_are_found_from_any_folder_and_where_a_run_was_moved_to(store, tmp_path, monkeypatch):
    users = Population.of(store, "cd")
    monkeypatch.chdir(tmp_path)
    run = seed_run(tmp_path / "seed", store, "bc")
    kept = RunConfig.read(run).with_places(run)
    assert kept.setting("data.train.speakers") == "train.txt"  # inside the run: moves with it
    assert kept.setting("data.train.store") == str(store.path)
    relative = {"config": {"data": {"train": {"store": "corpus-store", "speakers": None}}}}
    assert RunConfig(**relative).with_places(run).setting("data.train.store") == str(store.path)
    kept.write(run)
    run.rename(tmp_path / "moved")
    monkeypatch.chdir("/")
    with pytest.raises(PrivacyError, match="was made with 1 of the users"):
        described(tmp_path / "moved", users)


def test_what_cannot_be_known_must_be_stated(store, tmp_path):
    users = Population.of(store, "cd")
    seed = seed_run(tmp_path / "seed", store, "abc")
    (seed / "train.txt").write_text("a\nb\n")  # not the list it was trained with
    bare = tmp_path / "bare" / "model.safetensors"
    bare.parent.mkdir()
    bare.write_bytes(b"a model")
    for checkpoint, why in ((seed, "no longer there to be compared"), (bare, "speakers that are not known")):
        with pytest.raises(PrivacyError, match="Nobody can tell whether users are in the seed model") as refused:
            described(checkpoint, users)
        assert "privacy.accept=[unknown_seed_model]" in str(refused.value)
        assert why in described(checkpoint, users, accept=STATED)
        free = Config(data={"seed_model": checkpoint})  # no guarantee that it could break
        assert why in describe_seed_model(free, users).description
