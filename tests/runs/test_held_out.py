"""Dev and test are nobody of the training, in whatever store they lie and however they are called."""

import json

import pytest

from sottovoce.data.corpora import Table
from sottovoce.data.population import Population
from sottovoce.data.preparation import prepare
from sottovoce.errors import DataError, PrivacyError
from sottovoce.runs.held_out import require_disjoint
from trainings import SMALL_MODEL, command_line, error_line, run

ROLES = ("train", "dev")


@pytest.fixture
def train(make_store):
    return Population.of(make_store({"f1": 2, "m1": 2, "m2": 2}, "users"))


def test_speakers_of_one_store_are_compared_by_name(train):
    require_disjoint(Population.of(train.store, ["f1"]), Population.of(train.store, ["m1", "m2"]), ROLES, ())
    with pytest.raises(DataError, match=r"train and dev share speaker 'm1' and 1 more\. Split"):
        require_disjoint(train, Population.of(train.store, ["m1", "m2"]), ROLES, ("same_names", "same_audio"))


def test_equal_names_in_two_stores_are_one_person_unless_stated(train, make_store):
    dev = Population.of(make_store({"f1": 1, "x": 1}, "dev", seconds=3))
    with pytest.raises(PrivacyError, match=r"same speaker 'f1'\. .*privacy\.accept=\[same_names\]"):
        require_disjoint(train, dev, ROLES, ("same_audio",))
    require_disjoint(train, dev, ROLES, ("same_names",))
    require_disjoint(train, Population.of(dev.store, ["x"]), ROLES, ())


def test_equal_audio_is_one_person_whatever_the_names(train, make_table, tmp_path):
    table = make_table({"f1": 1}, name="renamed")
    table.write_text(table.read_text().replace("\tf1\t", "\tsomebody\t"))
    dev = Population.of(prepare(Table(file=table), tmp_path / "renamed-store", workers=1))
    with pytest.raises(PrivacyError, match=r"share audio, of speaker 'somebody'\. .*privacy\.accept=\[same_audio\]"):
        require_disjoint(train, dev, ROLES, ("same_names",))
    require_disjoint(train, dev, ROLES, ("same_audio",))


def test_trainings_compare_stores_and_the_ledger_records_what_is_stated(train, make_store, tmp_path):
    dev, test = (make_store(people, name, seconds=3).path for name, people in (("dev", {"f1": 1}), ("test", {"f1": 1})))
    small = (*SMALL_MODEL, "central.steps=1", "federated.central_steps=1", "federated.local.steps=1")
    private = ("participation.population=3", "participation.cohort_size=2", "privacy.clip_norm=1", "privacy.sigma_dp=1")
    for kind in ("central", "federated"):
        words = command_line(kind, tmp_path / kind, {"train": train.store.path, "dev": dev}, (*small, *private), 1)
        assert "train and dev are different stores with the same speaker 'f1'" in error_line(run(words))
        assert not (tmp_path / kind).exists()
        stated = run([*words, "--set", "privacy.accept=[same_names]"])
        assert stated.returncode == 0, stated.stderr
    header = json.loads((tmp_path / "federated" / "ledger.jsonl").read_text().splitlines()[0])
    assert header["accepted"] == ["same_names"]
    data = {"train": f"{train.store.path}@{tmp_path}/m.txt", "dev": dev, "test": test}
    (tmp_path / "m.txt").write_text("m1\nm2\n")
    for kind in ("central", "federated"):
        words = command_line(kind, tmp_path / "both", data, (*small, *private), 1)
        assert "dev and test share speaker 'f1'" in error_line(run(words))
