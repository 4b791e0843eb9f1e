"""Reading audio: any file that libsndfile decodes (FLAC, WAV, MP3, OGG, ...), as mono float32 at 16 kHz.

Guarantees: unusable audio raises BadAudio with a reason for rejected.tsv; nothing is repaired silently. A file that is
shorter than its header says is not used.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from sottovoce.data.embedded import EmbeddedFault, open_embedded, split_place
from sottovoce.data.manifest import Reason
from sottovoce.features.logmel import SAMPLE_RATE_HZ

Samples = npt.NDArray[np.float32]

_MISSING_SECONDS = 0.1  # MP3 headers may be off by a few frames; if more is missing, the file is truncated
_BLOCK_SAMPLES = 1 << 22  # files are read in blocks, because a header may announce any length or none
_UNKNOWN_LENGTH = 1 << 36  # the largest length of FLAC; libsndfile reports more if the header has no length
RATES_HZ = (4_000, 400_000)
_OGG_LARGEST_PAGE = 65_307
_OGG_END_OF_STREAM = 4
# libsndfile corrects a WAV or AIFF header that announces more data than the file holds, and says so in its log.
_CORRECTED = re.compile(r"^\s*(?:data|SSND)\s*:\s*(\d+) \(should be (\d+)\)", re.MULTILINE)
_STREAMED_BYTES = 0x7FFFF000  # the length in a header that was written before the length was known


class BadAudio(Exception):  # noqa: N818 - a finding about a file, turned into a row of rejected.tsv
    """Audio that cannot be used, with the reason and the details."""

    def __init__(self, reason: Reason, detail: str) -> None:
        """Keep the reason and the details apart."""
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        """Return both in one line."""
        return f"{self.reason}: {self.detail}"


@dataclass(frozen=True)
class SourceAudio:
    """Mono samples at 16 kHz, and the sampling rate that they were stored with."""

    samples: Samples
    source_rate_hz: int


def read_audio(
    path: Path, *, start: float | None = None, seconds: float | None = None, channel: int | None = None
) -> Samples:
    """Return a file, or `seconds` of it from `start` on, as mono at 16 kHz: one channel or the mean of all."""
    return read_recording(path, start=start, seconds=seconds, channel=channel).samples


def read_recording(
    path: Path, *, start: float | None = None, seconds: float | None = None, channel: int | None = None
) -> SourceAudio:
    """Return what `read_audio` returns, with the sampling rate of the file.

    The path may also name bytes in a row of an Arrow or Parquet file (`embedded`).
    """
    with _faults_of(path), soundfile.SoundFile(open_embedded(path) or path) as file:
        rate = int(file.samplerate)
        if not RATES_HZ[0] <= rate <= RATES_HZ[1]:
            raise BadAudio(Reason.UNREADABLE_AUDIO, f"{path.name}: {rate} samples a second")
        first, announced = round((start or 0.0) * rate), _announced(file)
        wanted = round(seconds * rate) if seconds is not None else max(announced - first, 0) if announced else None
        if first:
            file.seek(min(first, file.frames))
        samples = _read_blocks(file, wanted)
        _require_last_page(file, path)
    if wanted is not None:
        _require_length(len(samples), wanted, rate, path)
    return SourceAudio(at_16_khz(_mono(samples, channel, path), rate, path), rate)


def require_whole(file: soundfile.SoundFile, path: Path) -> None:
    """Raise BadAudio where a file that was opened holds less than its header announces, before it is decoded."""
    _require_last_page(file, path)
    if (announced := _announced(file)) is not None:
        _require_length(int(file.frames), announced, int(file.samplerate), path)


def read_beginning(path: Path, seconds: float) -> Samples:
    """Return the first seconds of a file, or all of a shorter one, as mono at 16 kHz."""
    with _faults_of(path), soundfile.SoundFile(path) as file:
        rate = int(file.samplerate)
        if not RATES_HZ[0] <= rate <= RATES_HZ[1]:
            raise BadAudio(Reason.UNREADABLE_AUDIO, f"{path.name}: {rate} samples a second")
        samples = _read_blocks(file, round(seconds * rate))
    return at_16_khz(_mono(samples, None, path), rate, path)


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    """Turn errors of the file system and of the decoder into BadAudio."""
    try:
        if split_place(path) is None and path.stat().st_size == 0:
            raise BadAudio(Reason.EMPTY_AUDIO, f"{path.name} has no bytes")
        yield
    except FileNotFoundError:
        raise BadAudio(Reason.MISSING_FILE, str(path)) from None
    except (soundfile.SoundFileError, EmbeddedFault, PermissionError, IsADirectoryError) as error:
        raise BadAudio(Reason.UNREADABLE_AUDIO, f"{path.name}: {reason_unread(path, error)}") from None


def _require_last_page(file: soundfile.SoundFile, path: Path) -> None:
    if file.format == "OGG" and not _ogg_is_whole(_last_bytes(path)):
        raise BadAudio(Reason.TRUNCATED_AUDIO, f"{path.name}: the last page of its stream is missing")


def _require_length(samples: int, wanted: int, rate: int, path: Path) -> None:
    if samples < wanted - _MISSING_SECONDS * rate:
        raise BadAudio(
            Reason.TRUNCATED_AUDIO, f"{path.name}: {samples / rate:.2f} s where {wanted / rate:.2f} s are announced"
        )


def _announced(file: soundfile.SoundFile) -> int | None:
    """Return the number of samples in the original header, even if libsndfile corrected it; None if it has none."""
    frames = int(file.frames)
    corrected = _CORRECTED.search(file.extra_info)
    if corrected and int(corrected[2]) < int(corrected[1]) < _STREAMED_BYTES:
        return round(frames * int(corrected[1]) / max(int(corrected[2]), 1))
    return frames if 0 < frames < _UNKNOWN_LENGTH else None


def _last_bytes(path: Path) -> bytes:
    """Return the end of a file, long enough for the last page of an OGG stream."""
    with open_embedded(path) or path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _OGG_LARGEST_PAGE, 0))
        return file.read()


def _ogg_is_whole(end: bytes) -> bool:
    """Return whether the last page of an OGG file is marked as the end of the stream."""
    last = end.rfind(b"OggS")
    return last >= 0 and len(end) > last + 5 and bool(end[last + 5] & _OGG_END_OF_STREAM)


def _read_blocks(file: soundfile.SoundFile, wanted: int | None) -> Samples:
    """Read `wanted` samples, or up to the end of the file."""
    blocks: list[Samples] = []
    left = wanted
    while left is None or left > 0:
        block = file.read(min(_BLOCK_SAMPLES, left or _BLOCK_SAMPLES), dtype="float32", always_2d=True)
        if len(block) == 0:
            break
        blocks.append(block)
        left = None if left is None else left - len(block)
    if len(blocks) == 1:
        return blocks[0]
    return np.concatenate(blocks) if blocks else np.zeros((0, file.channels), dtype=np.float32)


def join_audio(parts: Sequence[Samples], pauses: Sequence[float]) -> Samples:
    """Return the parts one after another, with a silence of pauses[i] seconds after part i."""
    pieces: list[Samples] = []
    for number, part in enumerate(parts):
        pieces.append(part)
        if number < len(pauses):
            pieces.append(np.zeros(round(pauses[number] * SAMPLE_RATE_HZ), dtype=np.float32))
    return np.concatenate(pieces)


def _mono(samples: Samples, channel: int | None, path: Path) -> Samples:
    if channel is None:
        return samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1, dtype=np.float32)
    if channel >= samples.shape[1]:
        raise BadAudio(Reason.UNREADABLE_AUDIO, f"{path.name}: channel {channel} of {samples.shape[1]} asked for")
    return samples[:, channel]


def at_16_khz(samples: Samples, rate: int, path: Path) -> Samples:
    """Return mono audio at 16 kHz; raise BadAudio where there is none, or where samples are not finite."""
    if samples.size == 0:
        raise BadAudio(Reason.EMPTY_AUDIO, f"{path.name} has no samples")
    if not np.isfinite(samples).all():
        raise BadAudio(Reason.UNREADABLE_AUDIO, f"{path.name}: samples that are not finite numbers")
    if rate == SAMPLE_RATE_HZ:
        return np.ascontiguousarray(samples)
    resampled: Samples = soxr.resample(samples, rate, SAMPLE_RATE_HZ, quality="HQ")
    return resampled


def reason_unread(path: Path, error: Exception) -> str:
    """Return why a file was not decoded, in a few words without its path and without a full stop.

    Where the file cannot even be opened, libsndfile only says "System error"; the system itself says more.
    """
    try:
        with path.open("rb"):
            pass
    except OSError as cause:
        return cause.strerror or type(cause).__name__
    words = getattr(error, "error_string", None) or str(error)
    return " ".join(words.split()).rstrip(".")
