"""Progress on a terminal, and results that go elsewhere."""

import contextlib
import io
import sys

import pytest
from rich.console import Console

from sottovoce.cli import console, training_display


def test_a_progress_bar_leaves_standard_output_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else results of `sotto ... > FILE` would appear above the bar, and the file would be empty."""
    terminal, results = Console(file=io.StringIO(), force_terminal=True), io.StringIO()
    monkeypatch.setattr(sys, "stdout", results)
    for module in (console, training_display):
        monkeypatch.setattr(module, "stderr", terminal)
    with console.ProgressDisplay() as progress:
        progress("files", 1, 2)
        assert sys.stdout is results
    with contextlib.closing(training_display.TrainingDisplay()):
        assert sys.stdout is results
    assert "files" in terminal.file.getvalue()
