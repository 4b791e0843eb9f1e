"""The documents of a run: written and read by one class each, tolerant of other versions, strict about damage."""

import json

import pytest

from sottovoce.errors import DataError
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.ledger import Mark
from sottovoce.runs.documents import (
    BenchRow,
    Checkpoint,
    ClaimedEpsilon,
    Done,
    Evaluation,
    Evaluations,
    Result,
    RunConfig,
)

SCORES = {"utterances": 3, "loss": 1.5, "wer": 0.25, "cer": 0.1, "words": 8}
SPEAKERS = {
    "count": 1,
    "mean_wer": 0.25,
    "wer_quantiles": {"0.5": 0.25},
    "wer": {"eve": 0.25},
    "word_edits": {"eve": 2},
    "words": {"eve": 8},
    "worst": [{"speaker": "eve", **SCORES}],
}
EVALUATION = {
    "steps": 5,
    "population": "a hash",
    **SCORES,
    "speakers": SPEAKERS,
    "groups": {"sex": {"f": {**SCORES, "speakers": 1}}},
}
COUNTERS = {"step": 4, "optimizer_steps": 4, "best_wer": 0.5, "last_wer": None, "evaluated": -1}
RESULT = {
    **{"steps": 4, "dev_wer": 0.5, "best_dev_wer": 0.4, "test": SCORES, "releases": 4},
    **{"epsilon_rdp": 2.5, "epsilon_pld": None, "guarantee": "epsilon 2.5"},
}
CLAIM = {
    **{"cohort_size": 4000.0, "population": 14000, "central_steps": 2, "target_delta": 1e-9},
    **{"epsilon_rdp": 1.0, "epsilon_pld": None},
}
ROW = {
    **{"bench": "b", "size": "mini", "row": "dim", "seed": 1, "label": "dim, seed 1", "kind": "federated"},
    **{"dev": "d", "test": None, "claims": [CLAIM], "paper": {"dev": 12.5}},
}
# Every document with the content of its file, key by key in order.
DOCUMENTS = [
    (RunConfig, {"config": {"seed": 1}, "data": {"train": "hash", "dev": None}, "sources": {"seed": "--set seed"}}),
    (Checkpoint, COUNTERS),
    (Checkpoint, {**COUNTERS, "ledger": {"lines": 5, "head": "f" * 64}}),
    (Evaluations, {"dev": EVALUATION, "home/test": EVALUATION}),
    (Result, RESULT),
    (Result, {**{key: RESULT[key] for key in list(RESULT)[:-1]}, "stopped": "by privacy.budget", "guarantee": "none"}),
    (BenchRow, ROW),
    (Done, {"key": "k", "kind": "central", "steps": 4}),
]


@pytest.mark.parametrize(("kind", "content"), DOCUMENTS)
def test_a_document_is_written_as_it_was_read(kind, content, tmp_path):
    text = json.dumps(content, indent=2) + "\n"
    (tmp_path / kind.FILE).write_text(text)
    document = kind.read(tmp_path)
    (tmp_path / "again").mkdir()
    document.write(tmp_path / "again")
    assert (tmp_path / "again" / kind.FILE).read_text() == text
    assert kind.read(tmp_path / "again") == document


@pytest.mark.parametrize(("kind", "content"), DOCUMENTS)
def test_keys_of_other_versions_are_ignored(kind, content, tmp_path):
    if kind is Evaluations:
        content = {"dev": {**EVALUATION, "new": 1}}
    (tmp_path / kind.FILE).write_text(json.dumps({**content, "new": {"x": 1}} if kind is not Evaluations else content))
    assert "new" not in json.dumps(kind.read(tmp_path).content())


@pytest.mark.parametrize(("kind", "content"), DOCUMENTS)
@pytest.mark.parametrize("damage", ["", "{", "[1]", '"text"', "null", '{"step": "x", "dev": 5}', "[" * 200_000])
def test_a_damaged_document_is_one_line(kind, content, damage, tmp_path):
    if kind is Result and damage.startswith('{"step"'):
        damage = '{"releases": "x"}'
    (tmp_path / kind.FILE).write_text(damage)
    with pytest.raises(DataError, match=f"{kind.FILE} is damaged. Restore it, or choose another run.") as error:
        kind.find(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("config", [{"privacy": 3, "model": 4}, {"federated": None}])
def test_a_section_of_the_configuration_without_keys_is_one_line(config, tmp_path):
    (tmp_path / RunConfig.FILE).write_text(json.dumps({"config": config}))
    with pytest.raises(DataError, match=r"config\.json is damaged"):
        RunConfig.read(tmp_path)


def test_a_missing_document_is_none_or_one_line(tmp_path):
    assert Result.find(tmp_path) is None
    with pytest.raises(DataError, match=r"config.json is missing"):
        RunConfig.read(tmp_path)


def test_an_evaluation_has_typed_scores():
    evaluation = Evaluation.model_validate(EVALUATION)
    assert evaluation.speakers.worst[0].speaker == "eve"
    assert evaluation.groups["sex"]["f"].speakers == 1
    assert evaluation.total.model_dump() == SCORES


def test_a_checkpoint_names_its_place_in_the_ledger():
    assert Checkpoint.model_validate({**COUNTERS, "ledger": {"lines": 5, "head": "f"}}).ledger == Mark(5, "f")


def test_settings_are_looked_up_by_key():
    config = RunConfig(config={"federated": {"local": {"steps": 3}}, "seed": 0})
    assert config.setting("federated.local.steps") == 3
    assert config.setting("seed") == 0
    assert config.setting("seed.x") is None
    assert config.setting("model.blocks") is None


def test_changes_are_named_except_those_that_may_happen():
    one = RunConfig(config={"seed": 0, "central": {"steps": 3, "lr": 1}, "about": "x"})
    other = RunConfig(config={"seed": 1, "central": {"steps": 4, "lr": 1}, "about": "y", "new": 1})
    assert one.changes(other, ["about"]) == {"seed", "central.steps", "new"}
    assert one.changes(other, ["about", "central", "seed"]) == {"new"}
    assert one.changes(other, ["cent", "about", "new", "seed"]) == {"central.steps"}


@pytest.mark.parametrize(
    ("rdp", "pld", "tightest"),
    [(2.0, 1.0, 1.0), (1.0, 2.0, 1.0), (2.0, None, 2.0), (2.0, 0.0, 0.0), (None, None, None)],
)
def test_the_tightest_epsilon_is_the_smaller_known_one(rdp, pld, tightest):
    assert Epsilons(rdp, pld).tightest == tightest
    assert Result(epsilon_rdp=rdp, epsilon_pld=pld).epsilon.tightest == tightest
    assert ClaimedEpsilon(**{**CLAIM, "epsilon_rdp": rdp, "epsilon_pld": pld}).epsilon == Epsilons(rdp, pld)
