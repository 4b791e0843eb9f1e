"""How fast audio files become text: times real time per core, in batches against file by file, and the first line.

    python benchmarks/transcription.py [--preset tiny] [--audio FOLDER] [--minutes 20] [--json]

The model has random parameters, which take as long as trained ones. FOLDER holds FLAC files (LibriSpeech, for example);
without it, synthetic speech is made first. Speeds of one process are by CPU time, which a busy machine does not change
much, and alternate where they are compared; those of several processes are by the clock.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import soundfile
import torch

from report import print_report
from sottovoce.config import resolve
from sottovoce.data.corpora import Synthetic
from sottovoce.data.corpora.synthetic import generate
from sottovoce.data.text import TokenSet
from sottovoce.evaluation.file_transcription import _tasks
from sottovoce.evaluation.transcription import hear
from sottovoce.evaluation.windows import FilePiece, pieces_of
from sottovoce.features import logmel
from sottovoce.model.recogniser import Recogniser
from sottovoce.processes import available_cores

SOTTO = (sys.executable, "-m", "sottovoce")
ROUNDS = 3


def audio_files(folder: Path | None, scratch: Path, minutes: float) -> list[Path]:
    """Return FLAC files of about this many minutes in total."""
    if folder is None:
        generate(Synthetic(speakers=100), scratch / "speech", available_cores(), lambda *_: None)
        folder = scratch / "speech"
    files = sorted(folder.rglob("*.flac"))
    totals = accumulate(soundfile.info(path).duration for path in files)
    return [path for path, total in zip(files, totals, strict=True) if total <= 60 * minutes] or sys.exit(
        f"error: no FLAC files in {folder}."
    )


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of some work in this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def in_this_process(recogniser: Recogniser, files: list[Path], seconds: float) -> dict[str, float]:
    """Compare batches with one file after another, and with reading and features alone."""
    pieces = [piece for path in files for piece in pieces_of(path)]
    works: dict[str, Callable[[], object]] = {
        "batches": lambda: [hear(recogniser, task) for task in _tasks(iter(pieces))],
        "file by file": lambda: [hear(recogniser, [piece]) for piece in pieces],
        "reading alone": lambda: [list(piece.read()) for piece in pieces],
        "reading and features alone": lambda: [features_of(piece) for piece in pieces],
    }
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            taken[name].append(cpu_seconds(work))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    report = {f"{name}, x real time per core": seconds / taken for name, taken in medians.items()}
    report["batches against file by file"] = medians["file by file"] / medians["batches"]
    return report


def features_of(piece: FilePiece) -> None:
    """Compute the features of a piece."""
    for window in piece.read():
        logmel.features(window.samples)


def whole_command(model: Path, files: list[Path], seconds: float) -> dict[str, float]:
    """Measure `sotto transcribe` with its start, on one process and on all cores, by the clock."""
    report = {}
    for workers in sorted({1, available_cores()}):
        began = time.perf_counter()
        command = [*SOTTO, "transcribe", str(model), *map(str, files), "--workers", str(workers)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        speed = seconds / (time.perf_counter() - began)
        report[f"the command with {workers} workers, x real time per core"] = speed / workers
    return report


def first_line(model: Path, files: list[Path]) -> dict[str, float]:
    """Measure how long the first line of one file, and of all of them, takes, by the clock and by CPU time."""
    report = {}
    for name, chosen in (("one file", files[:1]), ("all files", files)):
        waits, cpu = [], []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            command = [*SOTTO, "transcribe", str(model), *map(str, chosen), "--json", "--workers", "1"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
                process.stdout.readline() if process.stdout else None
                waits.append(time.perf_counter() - began)
                fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
                cpu.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
                process.kill()
        report[f"seconds to the first line of {name}"] = statistics.median(waits)
        report[f"CPU seconds to the first line of {name}"] = statistics.median(cpu)
    return report


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--audio", type=Path, help="a folder with FLAC files")
    parser.add_argument("--minutes", type=float, default=20.0, help="of audio")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        files = audio_files(arguments.audio, scratch, arguments.minutes)
        seconds = sum(soundfile.info(path).duration for path in files)
        recogniser = Recogniser.make(resolve(arguments.preset).config.model, TokenSet(("en",))).initialise(0)
        model = scratch / "model.safetensors"
        recogniser.save(model)
        report = {"files": float(len(files)), "minutes of audio": seconds / 60}
        report |= in_this_process(recogniser, files, seconds)
        report |= first_line(model, files)
        report |= whole_command(model, files, seconds)
    print_report(report, as_json=arguments.json)


if __name__ == "__main__":
    main()
