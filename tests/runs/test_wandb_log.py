"""Logs for other programs: offline ones of Weights & Biases, and TensorBoard events; both need an extra."""

import os
import sys

import pytest

from sottovoce.errors import DataError
from sottovoce.runs.metrics_log import MetricsLog, MetricsWriter
from sottovoce.runs.wandb_log import require_wandb, write_wandb
from trainings import run_here


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "secret-place"
    folder.mkdir()
    writer = MetricsWriter(folder, 0, 0, events=False)
    writer.write({"step": 1, "epsilon": 1.5, "trust_ratios": {"mlp": 0.25}, "loss": 7.0, "not_private": {"users": 3}})
    writer.close()
    return folder


def logged(folder):
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    return file.read_bytes()


def test_only_public_figures_are_logged_and_nothing_about_the_machine(run, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    out = tmp_path / "log"
    out.mkdir(0o755)
    theirs = {
        "WANDB_TAGS": "their-tag",
        "WANDB_NOTES": "their-note",
        "WANDB_MODE": "online",
        "WANDB_NAME": "their-name",
    }
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    assert write_wandb(run, out) == 1
    assert {name: value for name, value in os.environ.items() if name.startswith("WANDB_")} == theirs
    found = logged(out)
    assert b"their-" not in found
    assert b"epsilon" in found
    assert b"trust_ratios/mlp" in found
    assert not [word for word in (b"loss", b"users", b"secret-place") if word in found]
    assert {path.suffix for path in out.rglob("*") if path.is_file() and not path.is_symlink()} == {".wandb"}
    modes = [oct(folder.stat().st_mode & 0o777) for folder in (out, out / "wandb")]
    assert modes == ["0o755", "0o700"]  # the folder that was named keeps its own
    assert write_wandb(run, out, private=True) == 1
    assert b"loss" in logged(out)  # the only log of this run


def test_a_run_without_public_figures_has_no_log(tmp_path):
    writer = MetricsWriter(tmp_path, 0, 0, events=False)
    writer.write({"step": 1, "loss": 7.0})
    writer.close()
    assert write_wandb(tmp_path, tmp_path / "log") == 0
    assert not (tmp_path / "log").exists()


def test_a_place_that_cannot_be_a_folder_is_refused_before_any_work(tmp_path):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    (tmp_path / "file").write_text("something")
    with pytest.raises(DataError, match=r"Cannot write to .*file"):
        require_wandb(tmp_path / "file")
    require_wandb(tmp_path / "new" / "log")
    assert not (tmp_path / "new").exists()


def test_private_figures_are_asked_for_together_with_the_folder(tmp_path):
    words = ["train", "central", "tiny", "--run", str(tmp_path / "run"), "--wandb-private"]
    refused = run_here(words)
    assert refused.returncode == 1
    assert "--wandb-private goes with --wandb" in refused.stderr


def test_without_tensorboard_the_metrics_are_written_as_always(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard" or "utils.tensorboard" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as where it is not installed
    writer = MetricsWriter(tmp_path, 0, 0)
    writer.write({"step": 1, "epsilon": 1.5, "loss": 7.0})
    writer.close()
    assert [dict(line) for line in MetricsLog(tmp_path).lines()] == [{"step": 1, "epsilon": 1.5, "loss": 7.0}]
    assert not (tmp_path / "tensorboard").exists()
