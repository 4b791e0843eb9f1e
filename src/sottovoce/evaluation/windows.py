"""Audio files as overlapping windows of samples, read in pieces that several processes can work on.

A window has 18 s, and neighbours overlap by 3 s. A piece is some windows of a file. The pieces of a file follow from
the file alone, so that nothing depends on who reads them. A file that fits into one window is read as it is when a
corpus is prepared. Memory does not grow with the length of a file. Nothing here loads torch.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from sottovoce.data.audio import RATES_HZ, BadAudio, at_16_khz, require_whole
from sottovoce.errors import DataError
from sottovoce.features import logmel

Samples = npt.NDArray[np.float32]

WINDOW_FRAMES = 1800
OVERLAP_FRAMES = 300
HOP_FRAMES = WINDOW_FRAMES - OVERLAP_FRAMES
WINDOW_SAMPLES = (WINDOW_FRAMES - 1) * logmel.STRIDE_SAMPLES + logmel.WINDOW_SAMPLES
HOP_SAMPLES = HOP_FRAMES * logmel.STRIDE_SAMPLES
PIECE_WINDOWS = 16  # of a piece: four minutes
_HOP_SECONDS = HOP_SAMPLES // logmel.SAMPLE_RATE_HZ  # a whole number, so that windows begin at a sample at any rate
_SETTLING_SECONDS = 1  # of audio before a later piece, for the resampler and for decoders that look back (MP3)
_BLOCK_SAMPLES = 1 << 20  # over all channels, that are read at once: a header may announce a thousand channels
_UNKNOWN_LENGTH = 1 << 36  # libsndfile reports more if the header has no length


@dataclass(frozen=True)
class AudioWindow:
    """Samples of a file at 16 kHz, from HOP_SAMPLES times its number on."""

    number: int
    samples: Samples
    ends: bool  # nothing follows it

    @property
    def end(self) -> int:
        """The sample of the file after its last one."""
        return self.number * HOP_SAMPLES + len(self.samples)


@dataclass(frozen=True)
class FilePiece:
    """Consecutive windows of a file."""

    path: Path
    first: int = 0  # the number of its first window
    windows: int | None = None  # None: all to the end of the file
    seconds: float = 0.0  # about as long as it is by the header; 0: unknown

    def read(self) -> Iterator[AudioWindow]:
        """Yield the windows; raise DataError of one line where the file is not usable audio."""
        with _faults_of(self.path), _InOrder(self.path) as file:
            yield from itertools.islice(_windows(_blocks(file, self), self.first), self.windows)


def pieces_of(path: Path) -> list[FilePiece]:
    """Return a file in pieces by the length in its header; an unusable file is a piece whose reading says why."""
    seconds = _announced_seconds(path)
    if seconds is None:
        return [FilePiece(path)]
    samples = math.ceil(seconds * logmel.SAMPLE_RATE_HZ)
    count = 1 + max(math.ceil((samples - WINDOW_SAMPLES) / HOP_SAMPLES), 0)
    firsts = range(0, count, PIECE_WINDOWS)
    pieces = []
    for first in firsts:
        # The last one goes on to the end, wherever the header says that is.
        windows = None if first == firsts[-1] else PIECE_WINDOWS
        length = min(PIECE_WINDOWS * _HOP_SECONDS, seconds - first * _HOP_SECONDS)
        pieces.append(FilePiece(path, first, windows, length))
    return pieces


def missing_end(path: Path) -> str | None:
    """Return what a readable file lacks at its end by its own header, in words; None where it is whole."""
    try:
        with soundfile.SoundFile(path) as file:
            require_whole(file, path)
    except BadAudio as error:
        return error.detail
    except (soundfile.SoundFileError, OSError):
        return None
    return None


def _announced_seconds(path: Path) -> float | None:
    with contextlib.suppress(DataError), _faults_of(path), soundfile.SoundFile(path) as file:
        if file.seekable() and 0 < file.frames < _UNKNOWN_LENGTH and RATES_HZ[0] <= file.samplerate <= RATES_HZ[1]:
            return float(file.frames / file.samplerate)
    return None


@contextlib.contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    """Turn errors of the file system and of the decoder into a DataError."""
    if not path.is_file():
        why = "it is not a file" if path.exists() else "there is no such file"
        raise DataError(f"{path} cannot be read: {why}. Check the path.")
    try:
        yield
    except BadAudio as error:
        raise DataError(f"{path} cannot be read: {error.detail}. Give an audio file.") from None
    except (soundfile.SoundFileError, OSError) as error:
        reason = getattr(error, "error_string", None) or str(error)  # libsndfile's own words, without the path
        raise DataError(f"{path} cannot be read: {' '.join(reason.split()).rstrip('.')}. Give an audio file.") from None


class _InOrder(soundfile.SoundFile):  # type: ignore[misc] # it has no types
    """An audio file that is read block after block.

    soundfile seeks after every block of a file that it can seek in. In an MP3 that costs the decoder what it remembers,
    and the first tenth of a second of the next block is damaged.
    """

    def seekable(self) -> bool:
        """Return that it is not, which `seek` itself does not ask."""
        return False


def _blocks(file: soundfile.SoundFile, piece: FilePiece) -> Iterator[Samples]:
    """Yield the audio from the first window of a piece on, as mono at 16 kHz."""
    rate = int(file.samplerate)
    if not RATES_HZ[0] <= rate <= RATES_HZ[1]:
        raise DataError(
            f"{piece.path} cannot be read: {rate:,} samples a second, outside {RATES_HZ[0]:,} to {RATES_HZ[1]:,}. "
            "Give an audio file."
        )
    start = piece.first * _HOP_SECONDS
    if start == 0:
        yield from _from_start(file, rate, piece.path)
        return
    file.seek(min((start - _SETTLING_SECONDS) * rate, file.frames))
    skip = _SETTLING_SECONDS * logmel.SAMPLE_RATE_HZ
    for block in _resampled(_mono_blocks(file, piece.path), rate):
        dropped = min(skip, len(block))
        skip -= dropped
        yield block[dropped:]


def _mono_blocks(file: soundfile.SoundFile, path: Path) -> Iterator[Samples]:
    frames = max(_BLOCK_SAMPLES // file.channels, 1)
    while len(block := file.read(frames, dtype="float32", always_2d=True)):
        if not np.isfinite(block).all():
            raise DataError(f"{path} cannot be read: samples that are not finite numbers. Give an audio file.")
        yield block[:, 0] if block.shape[1] == 1 else block.mean(axis=1, dtype=np.float32)


def _from_start(file: soundfile.SoundFile, rate: int, path: Path) -> Iterator[Samples]:
    """Yield a file at 16 kHz: at once where it fits into a window, as in a corpus, or else as a stream."""
    blocks = _mono_blocks(file, path)
    head: list[Samples] = []
    fits = WINDOW_SAMPLES * rate // logmel.SAMPLE_RATE_HZ
    for block in blocks:
        head.append(block)
        if sum(map(len, head)) > fits:
            yield from _resampled(itertools.chain(head, blocks), rate)
            return
    if head:
        yield at_16_khz(np.concatenate(head), rate, path)


def _resampled(blocks: Iterator[Samples], rate: int) -> Iterator[Samples]:
    if rate == logmel.SAMPLE_RATE_HZ:
        yield from blocks
        return
    resampler = soxr.ResampleStream(rate, logmel.SAMPLE_RATE_HZ, 1)
    for block in blocks:
        yield resampler.resample_chunk(block)
    yield resampler.resample_chunk(np.zeros(0, dtype=np.float32), last=True)


def _windows(blocks: Iterator[Samples], number: int) -> Iterator[AudioWindow]:
    """Yield the windows of blocks, the first of which begins with the first of these windows."""
    held: list[Samples] = []
    for block in blocks:
        held.append(block)
        if sum(map(len, held)) <= WINDOW_SAMPLES:
            continue
        joined = np.concatenate(held)
        while len(joined) > WINDOW_SAMPLES:  # more follows, so this window is not the last
            yield AudioWindow(number, joined[:WINDOW_SAMPLES], ends=False)
            joined, number = joined[HOP_SAMPLES:], number + 1
        held = [joined]
    if sum(map(len, held)):
        yield AudioWindow(number, np.concatenate(held), ends=True)
