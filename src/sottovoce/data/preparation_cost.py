"""The expected cost of a preparation: seconds of audio, bytes of the store, and time."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from sottovoce.data.corpora import Synthetic
from sottovoce.data.embedded import EmbeddedFault, open_embedded
from sottovoce.data.extract import Chunk, extract
from sottovoce.data.manifest import Manifest, ManifestRow
from sottovoce.data.store import BYTES_PER_FRAME
from sottovoce.features import logmel

_SAMPLE_ROWS = 200
_TIMED_ROWS = 24
_BYTES_PER_ROW = 400  # index, offsets and targets
_MARGIN = 1.05
_LONGEST_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class PreparationCost:
    """The expected number of utterances, seconds of audio and bytes on disk."""

    utterances: int
    seconds: float
    bytes: float


def estimate_preparation(manifest: Manifest) -> PreparationCost:
    """Estimate the store of a manifest from the headers of a sample of its files, spread evenly over the manifest."""
    lengths = [
        length for row in _sample(manifest, _SAMPLE_ROWS) if (length := _seconds(row, manifest.root)) is not None
    ]
    seconds = len(manifest.table) * float(np.mean(lengths)) if lengths else 0.0
    return PreparationCost(len(manifest.table), seconds, _store_bytes(len(manifest.table), seconds))


def estimate_synthetic_preparation(corpus: Synthetic) -> PreparationCost:
    """Estimate the audio and the store of a synthetic corpus before it is generated."""
    utterances, seconds = corpus.expected_utterances(), corpus.expected_seconds()
    size = _store_bytes(utterances, seconds) + _MARGIN * corpus.expected_audio_bytes()
    return PreparationCost(utterances, seconds, size)


def measure_extraction_speed(manifest: Manifest) -> float:
    """Return how many seconds of audio one core turns into features per second, measured on a few rows."""
    rows = _sample(manifest, _TIMED_ROWS)
    started = time.perf_counter()
    result = extract(Chunk(manifest.root, manifest.tokens, rows))
    elapsed = time.perf_counter() - started
    return sum(result.samples) / logmel.SAMPLE_RATE_HZ / elapsed


def _store_bytes(utterances: int, seconds: float) -> float:
    features = seconds * logmel.FRAMES_PER_SECOND * BYTES_PER_FRAME
    return _MARGIN * (features + utterances * _BYTES_PER_ROW)


def _sample(manifest: Manifest, count: int) -> list[ManifestRow]:
    table = manifest.table
    rows = np.unique(np.linspace(0, len(table) - 1, min(count, len(table))).round().astype(np.int64))
    sampled: list[ManifestRow] = table.take(rows).to_pylist()
    return sampled


def _seconds(row: ManifestRow, root: Path) -> float | None:
    """Return the length of a row's audio according to the headers of its files; None if they cannot be read."""
    if row["segment_seconds"] is not None:
        return float(row["segment_seconds"])
    try:
        lengths = [soundfile.info(open_embedded(root / path) or root / path).duration for path in row["paths"]]
        seconds = float(sum(lengths) + sum(row["pauses"]))
    except (soundfile.SoundFileError, EmbeddedFault, OSError):
        return None
    return seconds if seconds < _LONGEST_SECONDS else None  # a header may announce any length
