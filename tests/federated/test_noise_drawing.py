"""Noise drawn by several processes, in a thread while users train."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from drawing import SIZES, request, total_of
from sottovoce.distributed import Group
from sottovoce.errors import DataError, PrivacyError
from sottovoce.federated.noise_drawing import NoiseDrawing
from sottovoce.privacy import step_noise
from sottovoce.privacy.noise import Gaussian
from sottovoce.privacy.step_noise import PIECE, draw_noise


def test_processes_draw_together_only_the_leader_keeps_the_noise_and_an_error_of_one_ends_all(tmp_path):
    code = (
        f"import sys; sys.path[:0] = [{str(Path(__file__).parents[1])!r}]\n"
        "from pathlib import Path\n"
        "from sottovoce.workers import run_workers\n"
        "import drawing\n"
        "if __name__ == '__main__':\n"
        f"    run_workers(drawing.leave_with_the_noise_then_fail, (Path({str(tmp_path)!r}),), 2, 1)\n"
    )
    (tmp_path / "main.py").write_text(code)
    words = [sys.executable, str(tmp_path / "main.py")]
    finished = subprocess.run(words, capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert "DataError: No random bits. Try again." in finished.stderr
    held = {path.stem: torch.load(path) for path in tmp_path.glob("*.pt")}
    for kind in ("seeded", "memory"):
        assert torch.equal(held[f"{kind}-0"], total_of(draw_noise(request(kind))))
    std = request("secure").mechanism.noise_stds[0]
    for start in range(0, 3 * PIECE, PIECE):  # every piece has secure noise of the right size
        assert float(held["secure-0"][start : start + PIECE].double().std() / std) == pytest.approx(1, rel=0.01)
    assert (held["secure-0"] != 0).all()
    assert len(held["secure-1"]) == sum(SIZES) - 2 * PIECE
    assert not any(held[f"{kind}-1"].any() for kind in ("seeded", "secure", "memory"))


def test_an_error_while_drawing_is_raised_where_the_noise_is_collected(monkeypatch):
    def fail(*_):
        raise DataError("No random bits.")

    monkeypatch.setattr(Gaussian, "draw", fail)
    with NoiseDrawing(request("seeded"), Group(), leads=True) as drawing, pytest.raises(DataError, match="random bits"):
        drawing.collected()


def test_a_step_that_fails_stops_the_drawing(monkeypatch):
    monkeypatch.setattr(step_noise, "PIECE", 100)
    before = threading.active_count()
    drawing = NoiseDrawing(request("secure"), Group(), leads=True)
    with pytest.raises(DataError, match="unreadable"), drawing:
        raise DataError("A user's audio is unreadable.")
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="stopped before its end"):
        drawing.collected()


def test_noise_that_is_collected_twice_is_still_used_once():
    with NoiseDrawing(request("secure"), Group(), leads=True) as drawing:
        total_of(drawing.collected())
        with pytest.raises(PrivacyError, match="was used before"):
            total_of(drawing.collected())


def test_a_process_outside_the_group_draws_nothing():
    with NoiseDrawing(request("seeded"), Group(), leads=False) as drawing:
        assert drawing.collected() is None
