"""Which model a place means: best or last, and after how many steps."""

from pathlib import Path

import pytest

from sottovoce.errors import DataError
from sottovoce.runs.chosen_model import chosen_model
from sottovoce.runs.documents import Checkpoint


def make_run(folder: Path, **links: int) -> Path:
    for link, step in links.items():
        checkpoint = folder / "checkpoints" / f"{step:08d}"
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / "model.safetensors").write_bytes(b"")
        counters = Checkpoint(step=step, optimizer_steps=step, best_wer=None, last_wer=None, evaluated=step)
        counters.write(checkpoint)
        (folder / link).symlink_to(Path("checkpoints") / checkpoint.name)
    return folder


def test_a_run_means_its_best_model_and_says_so(tmp_path):
    run = make_run(tmp_path / "run", best=800, last=1000)
    assert str(chosen_model(run)) == f"{run} (best, step 800)"
    assert str(chosen_model(run / "last")) == f"{run / 'last'} (last, step 1,000)"
    assert chosen_model(run / "checkpoints" / "00000800" / "model.safetensors").checkpoint == "best"
    assert chosen_model(make_run(tmp_path / "same", best=5, last=5)).checkpoint == "best and last"
    assert str(chosen_model(make_run(tmp_path / "new", last=7))) == f"{tmp_path / 'new'} (last, step 7)"


def test_a_file_alone_has_no_step(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert str(chosen_model(tmp_path)) == str(tmp_path)
    run = make_run(tmp_path / "run", last=7)
    (run / "last" / "checkpoint.json").write_text("{")
    assert (chosen_model(run).checkpoint, chosen_model(run).step) == ("last", None)
    with pytest.raises(DataError, match="There is no model"):
        chosen_model(tmp_path / "absent")
