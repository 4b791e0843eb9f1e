"""No bit of short runs has changed; see golden_runs.py."""

import json

import pytest

from golden_runs import DIGESTS, machine, run_all

EXPECTED = json.loads(DIGESTS.read_text())


def test_no_bit_of_short_runs_has_changed(tmp_path, monkeypatch):
    if machine() != EXPECTED["machine"]:
        pytest.skip(f"bits depend on the machine: these are of {EXPECTED['machine']}, and this is {machine()}")
    monkeypatch.chdir(tmp_path)
    assert run_all(tmp_path) == EXPECTED["runs"]
