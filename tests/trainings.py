"""What the tests of trainings share: command lines, starting, waiting for steps, comparing what is left behind."""

import contextlib
import hashlib
import io
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sottovoce.cli.main import run as command_line_of_sotto
from sottovoce.runs.metrics_log import MetricsLog

PYTHON = (sys.executable, "-m")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
SMALL_MODEL = (
    *("model.blocks=2", "model.width=16", "model.heads=2", "model.mlp_width=32"),
    *("model.dropout=0.2", "model.layer_drop=0.3"),
)


def command_line(
    kind: str, run: Path, data: Mapping[str, str], settings: Sequence[str], workers: int, python: Sequence[str] = PYTHON
) -> list[str]:
    """Return the words that start a training of the preset tiny."""
    words = ["train", kind, "tiny", "--run", str(run), "--workers", str(workers)]
    words += [word for name, selection in data.items() for word in (f"--{name}", selection)]
    # The two dashes keep torchrun from taking our --run for one of its own options.
    dashes = ["--"] if "torch.distributed.run" in python else []
    return [*python, "sottovoce", *dashes, *words, *(word for setting in settings for word in ("--set", setting))]


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end: with one worker in this process, which saves seconds, otherwise as a process."""
    if words[: len(PYTHON) + 1] == [*PYTHON, "sottovoce"] and words[words.index("--workers") + 1] == "1":
        return run_here(words[len(PYTHON) + 1 :])
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


def run_here(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run the words of a `sotto` command in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["sotto", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command_line_of_sotto()
    except SystemExit as leaving:
        return subprocess.CompletedProcess(sys.argv, int(leaving.code or 0), out.getvalue(), err.getvalue())
    finally:
        sys.argv = before
    raise AssertionError("a command ends by SystemExit")


def started(words: list[str], folder: Path, step: int = 0, **options: bool) -> "subprocess.Popen[bytes]":
    """Start a training and return when it has taken a step that it had not taken before, and at least `step`."""
    before = steps_taken(folder)
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, **options)
    try:
        while steps_taken(folder) <= before or steps_taken(folder) < step:
            assert process.poll() is None
            # A run that goes on first cuts off what it will do again.
            before = min(before, steps_taken(folder))
            time.sleep(0.005)
    except BaseException:
        process.kill()  # or its warning fails a later test
        process.wait()
        raise
    return process


def metrics(folder: Path) -> list[dict]:
    """Return the whole lines of a run's metrics, public and private keys together."""
    return [dict(line) for line in MetricsLog(folder).lines()]


def steps_taken(folder: Path) -> int:
    """Return the number of the last training step in the metrics."""
    return max((line["step"] for line in metrics(folder)), default=0)


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of the last and the best checkpoint."""
    files = [path for link in ("last", "best") for path in sorted((folder / link).iterdir())]
    return {f"{path.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def error_line(finished: subprocess.CompletedProcess[str]) -> str:
    """Return the one line of a command that failed, as it should: without a traceback."""
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    (line,) = [line for line in finished.stderr.splitlines() if line.startswith("error: ")]
    return line
