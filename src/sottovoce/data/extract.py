"""Extraction of features from the rows of a manifest: the task of a worker process."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sottovoce.data.audio import BadAudio, Samples, join_audio, read_audio
from sottovoce.data.digests import audio_digest
from sottovoce.data.manifest import ManifestRow, Reason, UtteranceRow
from sottovoce.data.text import TokenSet, least_outputs
from sottovoce.features import logmel

# The recogniser gives one output for three frames. A CTC target must fit into these outputs.
OUTPUT_STRIDE = 3


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a manifest."""

    root: Path
    tokens: TokenSet
    rows: Sequence[ManifestRow]


@dataclass(frozen=True)
class Extracted:
    """The features of a chunk, one utterance after another.

    `samples` has one number per row, 0 for a rejected row; `digests` joins the audio digests of all other rows.
    `rejected` maps the place of a rejected row in the chunk to the reason and the details.
    """

    samples: list[int]
    rejected: dict[int, tuple[Reason, str]]
    features: bytes
    digests: bytes


def extract(chunk: Chunk) -> Extracted:
    """Return the features of every row with usable audio, and the reasons for rejecting the others."""
    samples: list[int] = []
    rejected: dict[int, tuple[Reason, str]] = {}
    features: list[bytes] = []
    for place, row in enumerate(chunk.rows):
        try:
            audio = load_audio(row, chunk.root)
            features.append(_features(audio, chunk.tokens.encode(row["text"])).tobytes())
            samples.append(len(audio))
        except BadAudio as fault:
            rejected[place] = (fault.reason, fault.detail)
            samples.append(0)
    return Extracted(samples, rejected, b"".join(features), b"".join(map(audio_digest, features)))


def load_audio(row: UtteranceRow, root: Path) -> Samples:
    """Return the audio of a manifest or index row at 16 kHz; the files of a joined utterance are joined."""
    parts = [
        read_audio(root / path, start=row["start"], seconds=row["segment_seconds"], channel=row["channel"])
        for path in row["paths"]
    ]
    return parts[0] if len(parts) == 1 else join_audio(parts, row["pauses"])


def _features(audio: Samples, target: npt.NDArray[np.uint8]) -> npt.NDArray[np.float16]:
    outputs, needed = -(-logmel.frame_count(len(audio)) // OUTPUT_STRIDE), least_outputs(target)
    if outputs < needed:
        seconds = len(audio) / logmel.SAMPLE_RATE_HZ
        raise BadAudio(Reason.TOO_SHORT, f"{seconds:.2f} s give {outputs} outputs, CTC needs {needed} for the text")
    energies = logmel.log_mel(audio)
    if energies.min() == energies.max():
        raise BadAudio(Reason.SILENT_AUDIO, f"{len(audio) / logmel.SAMPLE_RATE_HZ:.2f} s without any sound")
    return logmel.standardise(energies)
