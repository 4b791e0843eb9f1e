"""The examples run as they are, and the guide shows one of them to the letter."""

import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from sottovoce.config import resolve
from sottovoce.data.preparation import prepare

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Make the corpus of `quick` once for all examples."""
    config = resolve("quick").config
    return prepare(config.corpus, tmp_path_factory.mktemp("quick") / "corpus", workers=1).path


@pytest.mark.parametrize(
    ("example", "run", "says"),
    [
        ("federated", "quick", "loss fell from"),
        ("own_server_optimizer", "yogi", "WER on test"),
        pytest.param("own_model", "gru", "width=64", marks=pytest.mark.slow),
        ("own_noise", "stepped", "epsilon of 3 releases"),
        ("own_local_rule", "momentum", "with momentum"),
    ],
)
def test_an_example_runs(example, run, says, corpus, tmp_path, monkeypatch, capsys):
    shutil.copytree(corpus, tmp_path / "runs" / run / "corpus")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [example])
    runpy.run_path(str(EXAMPLES / f"{example}.py"), run_name="__main__")
    assert says in capsys.readouterr().out


def test_the_guide_shows_the_model_of_the_examples():
    shown = re.search(
        r"```python\n(\"\"\"A model of your own.*?)```", (ROOT / "docs" / "api.md").read_text(), re.DOTALL
    )
    assert shown[1] == (EXAMPLES / "own_model.py").read_text()
    code = [line for line in shown[1].splitlines() if line.strip()]
    assert len(code) <= 40
