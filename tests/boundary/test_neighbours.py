"""The neighbour test finds what tells whether one user was there, and nothing in a real export."""

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from scipy.stats import ks_2samp

from report_runs import NOISE, make_data, make_run
from sottovoce.boundary import comparison
from sottovoce.boundary import neighbours as neighbour_test
from sottovoce.boundary import publish as publishing
from sottovoce.boundary.comparison import Finding, _kolmogorov_smirnov, compare
from sottovoce.boundary.neighbours import neighbours
from sottovoce.config import parse_setting, resolve
from sottovoce.data.store import Store
from sottovoce.errors import ConfigError, DataError, PrivacyError
from sottovoce.files import as_json
from sottovoce.privacy.population_ledger import WITNESS_FILE
from trainings import SMALL_MODEL

SETTINGS = (
    *SMALL_MODEL,
    *("participation.population=4", "participation.cohort_size=2", "batching.seconds=4", "specaugment=null"),
    *("federated.local.steps=1", "federated.schedule={lr: 0.01}", *NOISE, "privacy.clipping=dim"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A store with users, dev and test speakers, that was trained on before."""
    folder = tmp_path_factory.mktemp("data")
    made = make_data(folder)
    make_run("federated", folder / "run", made, (*NOISE, "privacy.clipping=dim", "federated.central_steps=1"))
    assert (folder / "store" / WITNESS_FILE).is_file()
    return made


@pytest.fixture
def resolved(data):
    """The settings of a short run."""
    return resolve("tiny", *map(parse_setting, [*SETTINGS, *data.values()]))


def hash_of_the_store(source):
    """Hole 1: the evaluation held a hash of the whole store of dev, users included."""
    store = Store.open(source.run.config.setting("data.dev.store"))
    return as_json({"dev": {"population": hashlib.sha256(store.info.hash.encode()).hexdigest()}})


def certain(findings):
    """The fields of certain leaks. By chance others `differ` in up to 5 % of correct comparisons, as promised there."""
    return [finding.field for finding in findings if finding.kind == "certain"]


@pytest.mark.parametrize("leaving", ["store", "list"])
def test_a_real_export_tells_nothing(resolved, leaving):
    found = neighbours(resolved, repeat=3, steps=1, leaving=leaving)
    assert found.user == "ann"  # she has the most audio
    assert certain(found.comparison.findings) == []
    assert found.comparison.varying > 20
    assert found.comparison.coordinates > 5000
    assert "show nothing at this size" in found.comparison.power


def test_a_hash_of_the_whole_store_is_found(data, sotto, monkeypatch):
    monkeypatch.setitem(publishing.EXPORTS, "evaluation.json", hash_of_the_store)
    words = [word for setting in (*SETTINGS, *data.values()) for word in ("--set", setting)]
    command = ("privacy", "neighbours", "tiny", *words, "--repeat", 3, "--steps", 1, "--workers", 1)
    outcome = sotto(*command, "--without", "dee", "--json")
    assert outcome.code == 1
    assert "error: evaluation.json: dev.population tells whether the user was there" in outcome.stderr
    assert "1 field told the user's presence. Do not publish such runs." in outcome.stderr
    findings = [Finding(**finding) for finding in outcome.document["comparison"]["findings"]]
    assert certain(findings) == ["evaluation.json: dev.population"]
    assert (outcome.document["user"], outcome.document["repeat"]) == ("dee", 8)  # more runs, to be sure


def test_a_difference_that_chance_may_explain_is_to_be_tested_again(data, sotto, monkeypatch):
    monkeypatch.setattr(comparison, "_FALSE_ALARMS", 1e9)  # every field that varies differs
    words = [word for setting in (*SETTINGS, *data.values()) for word in ("--set", setting)]
    outcome = sotto("privacy", "neighbours", "tiny", *words, "--repeat", 3, "--steps", 1, "--workers", 1)
    assert outcome.code == 1
    assert "Repeat it with more runs (--repeat 6)" in outcome.stderr
    assert "told the user's presence" not in outcome.stderr


def test_a_figure_without_noise_is_found_on_the_terminal_and_in_the_log(resolved, monkeypatch):
    names = lambda source: as_json(len(source.run.config.setting("data.train.speakers")))  # noqa: E731 - the same
    users = lambda source: as_json(len(Store.open(source.run.config.setting("data.train.store"))))  # noqa: E731
    monkeypatch.setitem(publishing.EXPORTS, "length.json", names)
    monkeypatch.setitem(publishing.EXPORTS, "users.json", users)
    monkeypatch.setattr(neighbour_test, "_SURE_REPEAT", 3)
    asked = resolved.over(parse_setting("privacy.diagnostics=true"))
    found = neighbours(asked, repeat=3, steps=1)
    fields = certain(found.comparison.findings)
    assert "users.json" in fields
    assert any(field.startswith("terminal.jsonl, line 1: message") for field in fields)  # K is not the store's number
    assert "length.json" not in fields


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ("participation.sampling=fixed", PrivacyError, "fixed size"),
        ("users.iid=true", PrivacyError, "IID control"),
        ("privacy.clipping=none", PrivacyError, "There is no guarantee to test"),
        ("data.train=null", ConfigError, "--train"),
    ],
)
def test_runs_without_neighbours_are_refused(resolved, change, error, message):
    with pytest.raises(error, match=message):
        neighbours(resolved.over(parse_setting(change)))


def test_bad_input_is_one_line(resolved):
    with pytest.raises(DataError, match="'nobody' is not among the users"):
        neighbours(resolved, without="nobody")
    with pytest.raises(DataError, match="'eve' is not among the users"):
        neighbours(resolved, without="eve")  # a dev speaker
    with pytest.raises(ConfigError, match="repeat=1 >= 3"):
        neighbours(resolved, repeat=1)


def write_sides(folder, with_user, without_user):
    """Write one JSON document per run, and return the folders of both sides."""
    sides = []
    for name, documents in (("with", with_user), ("without", without_user)):
        folders = [folder / name / str(number) for number in range(len(documents))]
        for place, document in zip(folders, documents, strict=True):
            place.mkdir(parents=True)
            (place / "log.jsonl").write_text(json.dumps(document) + "\n")
        sides.append(folders)
    return sides


def findings_of(folder, with_user, without_user):
    sides = write_sides(folder, [{"x": value} for value in with_user], [{"x": value} for value in without_user])
    found = compare(*sides)
    return {finding.field: finding for finding in found.findings}


def test_constants_that_differ_are_certain(tmp_path):
    assert findings_of(tmp_path / "1", [4, 4], [3, 3])["log.jsonl, line 1: x"].kind == "certain"
    assert findings_of(tmp_path / "2", ["a", "a"], ["b", "b"])["log.jsonl, line 1: x"].kind == "certain"
    assert findings_of(tmp_path / "3", [4, 4], [4, 4]) == {}
    assert findings_of(tmp_path / "4", ["aa", "bb"], ["cc", "dd"]) == {}  # hashes: each run has its own


def test_a_field_that_only_one_side_has_is_certain(tmp_path):
    found = compare(*write_sides(tmp_path, [{"x": 1, "y": 2}] * 2, [{"x": 1}] * 2))
    assert {finding.field for finding in found.findings} >= {"log.jsonl, line 1: y", "log.jsonl, line 1: keys"}


def test_texts_that_part_the_sides_need_more_than_chance(tmp_path):
    few = findings_of(tmp_path / "few", ["a", "b"], ["c", "c"])
    assert few == {}
    many = findings_of(tmp_path / "many", [*"aabbaabb"], [*"ccddccdd"])
    finding = many["log.jsonl, line 1: x"]
    assert finding.kind == "differs"
    assert finding.p == pytest.approx(6 / 12870)  # 4 values of 4 runs: 6 of all ways to deal 16 runs keep them apart
    assert findings_of(tmp_path / "mixed", [*"aabbaabb"], [*"acddccdd"]) == {}


@pytest.mark.parametrize(("runs", "moved"), [(3, 9.0), (5, 9.0), (5, 1.0), (8, 0.5), (20, 1.0)])
def test_the_exact_test_of_numbers_has_a_second_opinion(runs, moved):
    one, other = np.random.default_rng(runs).normal(size=(2, runs))
    expected = ks_2samp(one, other + moved, method="exact").pvalue
    assert _kolmogorov_smirnov(one, other + moved) == pytest.approx(expected)
    assert _kolmogorov_smirnov(one, one) == 1


def test_numbers_are_tested_and_noise_alone_shows_nothing(tmp_path):
    draws = np.random.default_rng(0).normal(size=(2, 20)) + 10
    assert findings_of(tmp_path / "same", *draws.tolist()) == {}
    moved = findings_of(tmp_path / "moved", draws[0].tolist(), (draws[1] + 3).tolist())
    assert moved["log.jsonl, line 1: x"].kind == "differs"


def write_models(folder, weights_of):
    """Write the models of 5 runs of each side, and return the folders of both sides."""
    rng = np.random.default_rng(0)
    sides = []
    for side in (0, 1):
        folders = [folder / f"{side}" / f"{number}" for number in range(5)]
        for place in folders:
            place.mkdir(parents=True)
            save_file({"w": weights_of(rng, side)}, place / "model.safetensors")
        sides.append(folders)
    return sides


def test_a_coordinate_without_noise_is_found(tmp_path):
    def weights_of(rng, side):
        weights = rng.normal(size=(4, 5)).astype(np.float32)
        weights[2, 3] = 0.25 + side  # a coordinate that the noise missed
        weights[0, 0] = 1.0  # one that never moves
        return weights

    sides = write_models(tmp_path, weights_of)
    found = compare(*sides)
    assert found.coordinates == 20
    (finding,) = found.findings
    assert finding.sentence == (
        "The model: coordinate 13 of w tells whether the user was there: 0.25 in every run with them, 1.25 in every "
        "run without."
    )
    assert compare(*[side[:3] for side in sides]).findings == ()  # 3 runs of each side are too few to tell


def test_coordinates_that_have_few_values_part_the_sides_by_chance_only(tmp_path):
    sides = write_models(tmp_path, lambda rng, _: rng.choice(np.float32([0, 1]), size=5000))
    models = [np.stack([load_file(place / "model.safetensors")["w"] for place in side]) for side in sides]
    same = [(values == values[0]).all(axis=0) for values in models]
    assert (same[0] & same[1] & (models[0][0] != models[1][0])).sum() > 5  # some do
    assert compare(*sides).findings == ()
