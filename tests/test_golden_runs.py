"""No bit of short runs has changed; see golden_runs.py."""

import pytest

from golden_runs import expected_here, machine, run_all


def test_no_bit_of_short_runs_has_changed(tmp_path, monkeypatch):
    expected = expected_here()
    if expected is None:
        pytest.skip(f"bits depend on the machine, and there are no digests of {machine()}")
    monkeypatch.chdir(tmp_path)
    found = run_all(tmp_path)
    assert {name: {what: found[name][what] for what in one} for name, one in expected.items()} == expected
