"""Sizes of the real world, which take a minute to set up: `make test-slow`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import data as benchmark


@pytest.mark.slow
def test_ten_million_utterances_open_in_seconds_and_little_memory(tmp_path):
    report = benchmark.bench_open(None, tmp_path)
    assert report["open, s"] < 3
    assert report["peak memory, MB"] < 2000
