"""No bit of short runs has changed, and the version of the algorithm belongs to their digests; see golden_runs.py."""

import copy

import pytest

from golden_runs import expected_here, fault_of, machine, refreshed, run_all, seal, stored
from sottovoce.version import ALGORITHM


def test_no_bit_of_short_runs_has_changed(tmp_path, monkeypatch):
    expected = expected_here()
    if expected is None:
        pytest.skip(f"bits depend on the machine, and there are no digests of {machine()}")
    monkeypatch.chdir(tmp_path)
    found = run_all(tmp_path)
    assert {name: {what: found[name][what] for what in one} for name, one in expected.items()} == expected


def test_the_version_of_the_algorithm_belongs_to_the_digests():
    fault = fault_of(stored(), ALGORITHM)
    assert fault is None, fault


def test_digests_and_version_are_only_changed_together():
    file = stored()
    here, runs = file["machines"][0]["machine"], file["machines"][0]["runs"]
    assert "refresh them" in fault_of(file, ALGORITHM + 1)
    other = copy.deepcopy(runs)
    other["dim"]["model"] = "0" * 64
    edited = {**file, "machines": [{"machine": here, "runs": other}, *file["machines"][1:]]}
    assert "raise it" in fault_of(edited, ALGORITHM)
    with pytest.raises(ValueError, match="dim have changed: raise ALGORITHM"):
        refreshed(file, other, here, ALGORITHM)
    raised = refreshed(file, other, here, ALGORITHM + 1)
    assert fault_of(raised, ALGORITHM + 1) is None
    assert [one["machine"] for one in raised["machines"]] == [here]  # digests of other machines are void


def test_what_is_no_model_may_be_refreshed_without_a_higher_version():
    file = stored()
    here, runs = file["machines"][0]["machine"], copy.deepcopy(file["machines"][0]["runs"])
    runs["dim"]["metrics"] = "another form"
    runs["new"] = runs["dim"]
    again = refreshed(file, runs, here, ALGORITHM)
    assert fault_of(again, ALGORITHM) is None
    assert len(again["machines"]) == len(file["machines"])
    assert again["seal"] == seal(ALGORITHM, again["machines"])
