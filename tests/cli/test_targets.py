"""The numbers the documentation tells people to expect, measured on real speech. Minutes each: `make test-slow`."""

import json
import subprocess
import sys

import pytest


def sotto(*words):
    subprocess.run([sys.executable, "-m", "sottovoce", *map(str, words)], check=True)


@pytest.mark.slow
def test_tiny_learns_digit_strings_in_twelve_minutes(real_speech, tmp_path):
    store, splits, run = tmp_path / "digits", tmp_path / "splits", tmp_path / "run"
    table = real_speech / "audiomnist" / "index.tsv"
    sotto("data", "prepare", "table", table, "--concatenate", "2:5", "--times", "8", "--out", store)
    sotto("data", "split", store, "--count", 12, "--names", "heldout,train", "--out", splits)
    data = ["--train", f"{store}@{splits}/train.txt", "--dev", f"{store}@{splits}/heldout.txt"]
    sotto("train", "central", "tiny", *data, "--run", run, "--set", "central.max_minutes=12")
    evaluated = subprocess.run(
        [sys.executable, "-m", "sottovoce", "eval", run / "last", f"{store}@{splits}/heldout.txt", "--json"],
        capture_output=True,
        check=True,
    )
    assert json.loads(evaluated.stdout)["wer"] <= 0.05
