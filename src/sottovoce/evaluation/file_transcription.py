"""Transcribing many files with several processes: results come in the order of the files, as soon as they are there.

The work is cut into tasks of consecutive pieces, by the files alone. So the number of processes changes nothing in the
result. The first task is a single piece: its result is there soon. Only processes that compute load torch.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sottovoce.evaluation.decoding import GREEDY, Decoding
from sottovoce.evaluation.transcripts import HeardPiece, OutputAlphabet, Transcript
from sottovoce.evaluation.windows import FilePiece, pieces_of
from sottovoce.processes import Progress, map_ordered, no_progress, start_worker_server

_TASK_SECONDS = 120.0
_TASK_PIECES = 64
_SECONDS_PER_PROCESS = 300.0  # of audio; with less, starting a process takes longer than it saves
_SCANNED_FIRST = 1000  # files whose lengths are looked up before the work begins, for the progress

Task = tuple[FilePiece, ...]


@dataclass(frozen=True)
class Unread:
    """A file that could not be transcribed, and why, in one line."""

    file: str
    error: str


def transcribe_files(
    model: Path,
    files: Sequence[Path],
    *,
    decoding: Decoding = GREEDY,
    workers: int = 1,
    progress: Progress = no_progress,
) -> Iterator[Transcript | Unread]:
    """Yield the transcript of every file, in their order, or why there is none; memory does not grow with the files.

    Short work takes fewer processes than `workers`. Progress is in seconds of audio or, of very many files, in files.
    Raise DataError where there is no model, or where it is damaged.
    """
    scanned = [pieces_of(path) for path in files] if len(files) <= _SCANNED_FIRST else None
    seconds = None if scanned is None else sum(piece.seconds for pieces in scanned for piece in pieces)
    processes = workers if seconds is None else max(min(workers, math.ceil(seconds / _SECONDS_PER_PROCESS)), 1)
    start_worker_server(processes, "sottovoce.evaluation.transcription")
    pieces, counted = itertools.tee(iter(scanned) if scanned is not None else map(pieces_of, files))
    tasks = _tasks(itertools.chain.from_iterable(pieces))
    results = map_ordered(partial(_hear, model, decoding), tasks, processes, torch=True)
    heard = ((alphabet, piece) for alphabet, task in results for piece in task)
    done = 0.0
    for number, (path, parts) in enumerate(zip(files, counted, strict=True), start=1):
        own: list[HeardPiece] = []
        for part in parts:
            alphabet, piece = next(heard)
            own.append(piece)
            done += part.seconds
            if seconds is not None:
                progress("seconds of audio", round(done), round(seconds))
        error = next((piece.error for piece in own if piece.error is not None), None)
        if seconds is None:
            progress("files", number, len(files))
        yield alphabet.transcript(str(path), own) if error is None else Unread(str(path), error)


def _hear(model: Path, decoding: Decoding, task: Task) -> tuple[OutputAlphabet, list[HeardPiece]]:
    from sottovoce.evaluation.transcription import hear_with  # noqa: PLC0415 - loads torch

    return hear_with(model, decoding, task)


def _tasks(pieces: Iterable[FilePiece]) -> Iterator[Task]:
    """Yield consecutive pieces together, up to a length and a number."""
    held: list[FilePiece] = []
    first = True
    for piece in pieces:
        long = sum(one.seconds for one in held) + piece.seconds > _TASK_SECONDS
        if held and (first or long or len(held) == _TASK_PIECES):
            yield tuple(held)
            held, first = [], False
        held.append(piece)
    if held:
        yield tuple(held)
