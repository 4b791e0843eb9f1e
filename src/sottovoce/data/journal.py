"""The journal of an unfinished store: append-only, and resumable after a kill.

Features are appended to one file in the order of the manifest. The journal gets one line per chunk, but only after the
chunk's features are on disk. After a kill, the complete lines of the journal show how much work is done: the feature
file is cut there and the work resumes. A line counts only while its key is valid. The key is a hash of the chunk's
rows, which include the sizes and times of their files.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from sottovoce.data.extract import Extracted
from sottovoce.data.manifest import ManifestRow, Reason, Rejection
from sottovoce.data.store import BYTES_PER_FRAME, FEATURES
from sottovoce.features.logmel import frame_count
from sottovoce.files import naming, open_shared, written_whole
from sottovoce.reading import parse_json, read_bounded

JOURNAL = "journal.jsonl"
_COMMIT_SECONDS = 1.0


@dataclass(frozen=True)
class JournalLine:
    """One chunk whose features are on disk."""

    key: str
    samples: Sequence[int]  # of every row; 0: rejected
    rejected: Sequence[tuple[int, str, str]]  # place in the chunk, reason, details
    digests: str  # of the audio of all rows that were not rejected, in hexadecimal
    source_rates: Sequence[int]  # in Hz, of every row
    bandwidths: Sequence[int]

    @classmethod
    def of(cls, key: str, chunk: Extracted) -> "JournalLine":
        """Return the line of an extracted chunk."""
        rejected = [(place, *fault) for place, fault in chunk.rejected.items()]
        return cls(key, chunk.samples, rejected, chunk.digests.hex(), chunk.source_rates, chunk.bandwidths)

    @property
    def feature_bytes(self) -> int:
        """The size of the chunk's features."""
        return sum(frame_count(samples) for samples in self.samples) * BYTES_PER_FRAME

    def encode(self) -> bytes:
        """Return the line as it is written to the file."""
        return json.dumps(vars(self), ensure_ascii=False).encode() + b"\n"


class Journal:
    """The features and the journal of an unfinished store."""

    def __init__(self, folder: Path, keys: Sequence[str]) -> None:
        """Resume the work in a folder: keep the leading chunks that are in the journal with the expected keys."""
        self._keys = keys
        features = folder / FEATURES
        size = features.stat().st_size if features.exists() else 0
        self.lines = _valid_lines(folder / JOURNAL, keys, size)
        self.resumed = len(self.lines)
        self._features = _reopened(features, sum(line.feature_bytes for line in self.lines))
        self._journal = _rewritten(folder / JOURNAL, self.lines)
        self._committed = len(self.lines)
        self._last_commit = time.monotonic()

    def append(self, chunk: Extracted) -> None:
        """Add the next chunk."""
        self._features.write(chunk.features)
        self.lines.append(JournalLine.of(self._keys[len(self.lines)], chunk))
        if time.monotonic() - self._last_commit > _COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Put the features on disk, then the journal lines of these features."""
        _to_disk(self._features)
        for line in self.lines[self._committed :]:
            self._journal.write(line.encode())
        _to_disk(self._journal)
        self._committed = len(self.lines)
        self._last_commit = time.monotonic()

    def close(self) -> None:
        """Commit and close the files."""
        self.commit()
        self._features.close()
        self._journal.close()

    def __enter__(self) -> "Journal":
        """Start a block at whose end the journal is closed."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Keep all complete chunks, even if the block raised an error."""
        self.close()


def chunk_key(rows: Sequence[ManifestRow]) -> str:
    """Return the hash by which a later run recognises an unchanged chunk."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def rejections_of(table: pa.Table, lines: Iterable[JournalLine]) -> list[Rejection]:
    """Return the rejections in the chunks of a table; a rejected joined utterance rejects all its parts."""
    rejections: list[Rejection] = []
    first = 0
    for line in lines:
        for place, reason, detail in line.rejected:
            row = table.slice(first + place, 1).select(["utterance", "speaker", "parts"]).to_pylist()[0]
            where = f"in {row['utterance']}: {detail}" if row["parts"] else detail
            for utterance in row["parts"] or [row["utterance"]]:
                rejections.append(Rejection(utterance, row["speaker"], Reason(reason), where))
        first += len(line.samples)
    return rejections


def _valid_lines(path: Path, keys: Sequence[str], available: int) -> list[JournalLine]:
    """Return the lines before the first that is torn, has another key or lacks its features.

    `available` is the size of the feature file in bytes.
    """
    lines: list[JournalLine] = []
    if not path.exists():
        return lines
    for key, text in zip(keys, read_bounded(path).split(b"\n")[:-1], strict=False):
        try:
            line = JournalLine(**parse_json(text))
        except (ValueError, TypeError):
            break
        available -= line.feature_bytes
        if line.key != key or available < 0:
            break
        lines.append(line)
    return lines


def _reopened(path: Path, size: int) -> IO[bytes]:
    """Open a file for appending after its first `size` bytes; the rest is cut off."""
    file = open_shared(path, "r+b" if path.exists() else "w+b")
    file.truncate(size)
    file.seek(size)
    return file


def _rewritten(path: Path, lines: Iterable[JournalLine]) -> IO[bytes]:
    """Write the lines to a new file and open it for appending."""
    with written_whole(path) as file:
        for line in lines:
            file.write(line.encode())
    return open_shared(path, "ab")


def _to_disk(file: IO[bytes]) -> None:
    with naming(Path(file.name)):
        file.flush()
        os.fsync(file.fileno())
