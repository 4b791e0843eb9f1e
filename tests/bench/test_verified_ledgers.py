"""Ledgers of private rows are verified before they are published, and named under the table."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bench_counts import run_result
from ledgers import charged, checkpoint, mechanism, other_model
from sottovoce.bench.preset import load_bench
from sottovoce.bench.published import PublishedRow, joined_row
from sottovoce.bench.results import row_result
from sottovoce.bench.verified_ledgers import ledger_note, verified_ledger
from sottovoce.errors import DataError, PrivacyError
from sottovoce.privacy.epsilons import Epsilons


def run_in(folder, source="secure"):
    mark = checkpoint(folder, 4, charged(folder, mech=mechanism(source)))
    return mark, replace(run_result(0, {"dev": 0.5}), folder=folder, epsilon=Epsilons(rdp=9.0, pld=8.0))


def row(name, *ledgers):
    bench = load_bench("demo")
    runs = [replace(run_result(seed, {"dev": 0.5}), ledger=ledger) for seed, ledger in enumerate(ledgers)]
    result = row_result(bench, bench.size("mini"), bench.size("mini").rows[0], runs)
    return replace(result, row=SimpleNamespace(name=name))


def test_a_run_that_spent_its_epsilon_is_published_with_its_ledger(tmp_path):
    mark, run = run_in(tmp_path)
    found = verified_ledger("epsilon 8", run)
    assert (found.releases, found.head) == (4, mark.head)
    published = replace(run, folder=None, ledger=found)  # elsewhere, the document is all there is
    assert verified_ledger("epsilon 8", published) is found
    assert ledger_note([row("epsilon 8", found, found), row("seed")]) == (
        "Ledgers that `sotto privacy verify` accepted when they were exported, and the hash of the last line: "
        f"epsilon 8 (seed 0: 4 releases, {mark.head[:12]}, seed 1: 4 releases, {mark.head[:12]})."
    )
    assert ledger_note([row("seed", None)]) == ""


def test_a_ledger_that_does_not_hold_is_not_published(tmp_path):
    _, run = run_in(tmp_path)
    other_model(tmp_path / "checkpoints" / "00000004")
    with pytest.raises(PrivacyError, match=r"'epsilon 8', seed 0, has no ledger that holds: .* is not the model that"):
        verified_ledger("epsilon 8", run)
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(PrivacyError, match="There is no"):
        verified_ledger("epsilon 8", run)


def test_a_simulation_has_no_ledger_to_show(tmp_path):
    _, run = run_in(tmp_path, source="seeded")
    assert verified_ledger("noise", run) is None


def published_row(ledger):
    sets = {"dev": {"part": "dev", "edits": [1]}}
    run = {
        "seed": 0,
        "key": "k",
        "last": {"steps": 4, "sets": sets},
        "best": None,
        "epsilon_rdp": 9.0,
        "epsilon_pld": 8.0,
    }
    row = {"row": "epsilon 8", "kind": "federated", "code": "2", "described": "d", "content": "c", "cohort_size": 20.0}
    more = {"population": 1000, "central_steps": 4, "runs": [run if ledger is None else {**run, "ledger": ledger}]}
    return PublishedRow.model_validate_json(json.dumps({**row, **more}))


def test_runs_of_one_key_with_different_noise_are_not_taken_for_one(tmp_path):
    one, other = ({"releases": 4, "head": letter * 64} for letter in "ab")
    with pytest.raises(DataError, match="has another run of the row 'epsilon 8', seed 0"):
        joined_row(published_row(one), published_row(other), tmp_path)
    for pair in ((one, None), (None, one), (one, one)):
        (run,) = joined_row(*map(published_row, pair), tmp_path).runs
        assert run.ledger.head == "a" * 64, "a document without it takes nothing away"
