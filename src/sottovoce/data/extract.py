"""Extraction of features from the rows of a manifest: the task of a worker process."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sottovoce.data.audio import BadAudio, Samples, SourceAudio, join_audio, read_recording
from sottovoce.data.digests import audio_digest
from sottovoce.data.manifest import ManifestRow, Reason, UtteranceRow
from sottovoce.data.text import TokenSet, least_outputs
from sottovoce.features import logmel
from sottovoce.features.bandwidth import limit_bandwidth, measure_bandwidth

# The recogniser gives one output for three frames. A CTC target must fit into these outputs.
OUTPUT_STRIDE = 3


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a manifest, and the bandwidth that their audio is limited to."""

    root: Path
    tokens: TokenSet
    rows: Sequence[ManifestRow]
    bandwidth_hz: int | None = None


@dataclass(frozen=True)
class Extracted:
    """The features of a chunk, one utterance after another.

    `samples` has one number per row, 0 for a rejected row; `digests` joins the audio digests of all other rows.
    `source_rates` and `bandwidths`, in Hz, have one number per row, too; they say nothing of a rejected row.
    `rejected` maps the place of a rejected row in the chunk to the reason and the details.
    """

    samples: list[int]
    rejected: dict[int, tuple[Reason, str]]
    features: bytes
    digests: bytes
    source_rates: list[int]
    bandwidths: list[int]


def extract(chunk: Chunk) -> Extracted:
    """Return the features of every row with usable audio, and the reasons for rejecting the others."""
    samples: list[int] = []
    heard: list[tuple[int, int]] = []  # the source's rate and the bandwidth
    rejected: dict[int, tuple[Reason, str]] = {}
    features: list[bytes] = []
    for place, row in enumerate(chunk.rows):
        try:
            recording = load_recording(row, chunk.root, chunk.bandwidth_hz)
            audio = recording.samples
            features.append(_features(audio, chunk.tokens.encode(row["text"])).tobytes())
            samples.append(len(audio))
            heard.append((recording.source_rate_hz, measure_bandwidth(audio)))
        except BadAudio as fault:
            rejected[place] = (fault.reason, fault.detail)
            samples.append(0)
            heard.append((0, 0))
    digests = b"".join(map(audio_digest, features))
    rates, bandwidths = [rate for rate, _ in heard], [bandwidth for _, bandwidth in heard]
    return Extracted(samples, rejected, b"".join(features), digests, rates, bandwidths)


def load_audio(row: UtteranceRow, root: Path, bandwidth_hz: int | None = None) -> Samples:
    """Return the audio of a manifest or index row at 16 kHz, limited to a bandwidth where one is given."""
    return load_recording(row, root, bandwidth_hz).samples


def load_recording(row: UtteranceRow, root: Path, bandwidth_hz: int | None = None) -> SourceAudio:
    """Return the audio of a manifest or index row with its source's rate; the files of a joined utterance are joined.

    Where its files have several sampling rates, the lowest one counts. With `bandwidth_hz` the audio is limited to it.
    """
    parts = [
        read_recording(root / path, start=row["start"], seconds=row["segment_seconds"], channel=row["channel"])
        for path in row["paths"]
    ]
    joined = parts[0].samples if len(parts) == 1 else join_audio([part.samples for part in parts], row["pauses"])
    limited = joined if bandwidth_hz is None else limit_bandwidth(joined, bandwidth_hz)
    return SourceAudio(limited, min(part.source_rate_hz for part in parts))


def _features(audio: Samples, target: npt.NDArray[np.uint8]) -> npt.NDArray[np.float16]:
    outputs, needed = -(-logmel.frame_count(len(audio)) // OUTPUT_STRIDE), least_outputs(target)
    if outputs < needed:
        seconds = len(audio) / logmel.SAMPLE_RATE_HZ
        raise BadAudio(Reason.TOO_SHORT, f"{seconds:.2f} s give {outputs} outputs, CTC needs {needed} for the text")
    energies = logmel.log_mel(audio)
    if energies.min() == energies.max():
        raise BadAudio(Reason.SILENT_AUDIO, f"{len(audio) / logmel.SAMPLE_RATE_HZ:.2f} s without any sound")
    return logmel.standardise(energies)
