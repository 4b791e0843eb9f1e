"""Helpers for all tests: real speech if it is available, generated audio, small stores, and the command line."""

import json
import os
import signal
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import settings

from sottovoce.cli.lazy_command import LazyCommand
from sottovoce.cli.main import run
from sottovoce.data.corpora import Table
from sottovoce.data.preparation import prepare
from sottovoce.data.store import CONTENT_FILES, INFO, Store

torch.set_num_threads(1)  # tests run side by side, one process per core
# A process that a script starts in the background ignores Ctrl-C, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the time of an example depends on the machine. The examples are the same on every machine, and new with
# SOTTO_TEST_SEARCH=1.
settings.register_profile("any machine", deadline=None, derandomize="SOTTO_TEST_SEARCH" not in os.environ)
settings.load_profile("any machine")

ROOT = Path(__file__).parent.parent
REAL_SPEECH = Path(os.environ.get("SOTTO_TEST_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def real_speech() -> Path:
    """The folder with LibriSpeech, AN4 and AudioMNIST; without it the test is skipped."""
    if not (REAL_SPEECH / "LibriSpeech").is_dir():
        pytest.skip(f"needs real speech in {REAL_SPEECH} (set SOTTO_TEST_DATA to another folder)")
    return REAL_SPEECH


def voice(seconds: float, seed: int, rate: int = 16_000) -> np.ndarray:
    """Return a buzzing, wavering sound with enough structure to test codecs and features."""
    rng = np.random.default_rng(seed)
    time = np.arange(round(seconds * rate)) / rate
    pitch = 90 + 120 * rng.random() + 8 * np.sin(2 * np.pi * 3 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    buzz = sum(np.sin(number * phase) / number for number in range(1, 12))
    envelope = 0.5 + 0.5 * np.sin(2 * np.pi * (2 + rng.random()) * time)
    return (0.2 * buzz * envelope + 0.01 * rng.standard_normal(len(time))).astype(np.float32)


def write_audio(path: Path, seconds: float, seed: int = 0, rate: int = 16_000) -> Path:
    """Write a real audio file; its format follows the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, voice(seconds, seed, rate), rate)
    return path


def store_content(store: Path) -> dict[str, bytes]:
    """Return the bytes of every file of a store."""
    return {name: (store / name).read_bytes() for name in (*CONTENT_FILES, INFO)}


def is_alive(pid: int | str) -> bool:
    """Return whether a process is still running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def make_table(tmp_path: Path) -> Callable[..., Path]:
    """Make a table of real FLAC files, with the given number of utterances for every speaker."""

    def make(counts: dict[str, int], seconds: float = 1.0, name: str = "corpus") -> Path:
        lines = ["path\tspeaker\ttext\tmood"]
        for speaker, count in counts.items():
            for number in range(count):
                path = f"{speaker}/{speaker}{number:03d}.flac"
                length = seconds + 0.1 * (hash_of(path) % 7)
                write_audio(tmp_path / name / path, length, zlib.crc32(path.encode()))  # no two are equal
                lines.append(
                    f"{path}\t{speaker}\thello number{' again' * (number % 3)} {'abcdefghij'[number % 10]}\tcalm"
                )
        table = tmp_path / name / "index.tsv"
        table.write_text("\n".join(lines) + "\n")
        return table

    return make


def hash_of(text: str) -> int:
    """Return a small number that is the same in every process."""
    return sum(ord(character) * place for place, character in enumerate(text, start=1)) % 9973


@pytest.fixture
def make_store(make_table: Callable[..., Path], tmp_path: Path) -> Callable[..., Store]:
    """Prepare a store from `make_table`."""

    def make(counts: dict[str, int], name: str = "corpus", seconds: float = 1.0) -> Store:
        corpus = Table(file=make_table(counts, seconds, name))
        return prepare(corpus, tmp_path / f"{name}-store", workers=1)

    return make


def loaded(command: Any) -> Any:
    """Return the command that a lazy command stands for; any other command as it is."""
    return command.load() if isinstance(command, LazyCommand) else command


@dataclass
class Outcome:
    """The exit code and the output of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.stdout)

    @property
    def error(self) -> str:
        """The line that an error prints."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.stderr
        assert "Traceback" not in self.stderr
        return lines[0]


@pytest.fixture
def sotto(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in this process."""

    def call(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["sotto", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "200")
        capfd.readouterr()
        with pytest.raises(SystemExit) as leaving:
            run()
        captured = capfd.readouterr()
        return Outcome(int(leaving.value.code or 0), captured.out, captured.err)

    return call
