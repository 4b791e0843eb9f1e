"""Lhotse manifests: recordings and supervisions, as every Lhotse recipe writes them (JSONL or JSON, also .gz).

The manifests are read as plain JSON, so Lhotse need not be installed. A supervision is a segment of a recording. Only
recordings in plain files without transforms are used; others are listed as rejected. Nothing that a manifest contains
is executed or downloaded.
"""

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sottovoce.data.corpora.rows import open_text
from sottovoce.data.corpora.spec import CorpusSpec, require_file
from sottovoce.data.manifest import Corpus, Entry, Reason, Rejection
from sottovoce.errors import DataError
from sottovoce.reading import parse_json

Json = dict[str, Any]  # an object of a manifest, which may contain anything


class Lhotse(CorpusSpec):
    """A pair of Lhotse manifests."""

    kind: Literal["lhotse"] = "lhotse"
    recordings: Path = Field(description="the manifest of recordings (.jsonl or .json, also .gz)")
    supervisions: Path = Field(description="the manifest of supervisions (.jsonl or .json, also .gz)")
    language: Literal["en", "fr", "de"] = Field("en", description="the language of the text: en, fr or de")
    audio_root: Path | None = Field(
        None, description="the folder of relative paths (default: the manifest's, then the working folder)"
    )
    label: str | None = Field(None, description="the name shown in statistics (default: the supervisions' name)")

    def read(self) -> Corpus:
        """Return the corpus with every supervision."""
        require_file(self.recordings)
        require_file(self.supervisions)
        label = self.label or self.supervisions.name.split(".")[0]
        return Corpus(label, self.audio_root or self.recordings.parent, (self.language,), self._rows())

    def _rows(self) -> Iterator[Entry | Rejection]:
        recordings: dict[str, _LhotseRecording] = {}
        for recording in _read(self.recordings):
            name, described = str(recording.get("id")), _LhotseRecording.of(recording)
            if recordings.setdefault(name, described) != described:
                # To reject whoever names it would let one speaker remove another by a recording of the same id.
                raise DataError(f"{self.recordings} has two recordings named {name!r}. Give each an id of its own.")
        for supervision in _read(self.supervisions):
            yield self._entry(supervision, recordings)

    def _entry(self, supervision: Json, recordings: "dict[str, _LhotseRecording]") -> Entry | Rejection:
        utterance, speaker = str(supervision.get("id") or ""), str(supervision.get("speaker") or "")
        if not utterance:
            return Rejection("", speaker, Reason.MALFORMED_ROW, "a supervision without an id")
        recording_id = str(supervision.get("recording_id", ""))
        recording = recordings.get(recording_id)
        if recording is None:
            return Rejection(utterance, speaker, Reason.MISSING_FILE, f"no recording {recording_id!r} in the manifest")
        try:
            path, channel = recording.source(supervision.get("channel", 0))
            start, seconds = recording.segment(float(supervision["start"]), float(supervision["duration"]))
        except (ValueError, TypeError, KeyError) as fault:
            return Rejection(utterance, speaker, Reason.MALFORMED_ROW, f"recording {recording_id}: {fault}")
        gender, custom = supervision.get("gender"), supervision.get("custom")
        extra = {"recording": recording_id, "gender": None if gender is None else str(gender)}
        if isinstance(custom, dict):
            extra |= {name: str(value) for name, value in custom.items() if isinstance(value, str | int | float)}
        return Entry(
            utterance=utterance,
            speaker=speaker,
            text=str(supervision.get("text") or ""),
            language=self.language,
            paths=(self._resolved(path),),
            start=start,
            segment_seconds=seconds,
            channel=channel,
            extra=extra,
        )

    def _resolved(self, path: str) -> str:
        """Return the path as it is if it exists below the root, else from the working folder, as Lhotse resolves it."""
        root = self.audio_root or self.recordings.parent
        here = Path(path).absolute()
        return path if self.audio_root or (root / path).exists() or not here.exists() else str(here)


@dataclass(frozen=True, slots=True)
class _LhotseRecording:
    """The files of a recording with their channels, or the reason why it cannot be used."""

    files: tuple[tuple[str, tuple[int, ...]], ...]
    rate: float
    seconds: float
    fault: str | None

    @classmethod
    def of(cls, recording: Json) -> "_LhotseRecording":
        try:
            return cls._usable(recording)
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            return cls((), 1.0, 0.0, str(fault) or type(fault).__name__)

    @classmethod
    def _usable(cls, recording: Json) -> "_LhotseRecording":
        for source in recording["sources"]:
            if source["type"] != "file":
                raise ValueError(f"a source of type {source['type']!r}, not a file")
        if recording.get("transforms"):
            raise ValueError("it has transforms, which are not supported")
        files = tuple((str(source["source"]), tuple(source["channels"])) for source in recording["sources"])
        rate, seconds = float(recording["sampling_rate"]), float(recording["duration"])
        if not files or not rate > 0 or not 0 < seconds < math.inf:
            raise ValueError("it has no files, or no length")
        return cls(files, rate, seconds, None)

    def source(self, channel: Any) -> tuple[str, int | None]:
        """Return the file with the channel and the channel's place in it (None: the mean of all channels)."""
        if self.fault is not None:
            raise ValueError(self.fault)
        if isinstance(channel, list) and len(channel) == 1:
            channel = channel[0]
        if isinstance(channel, list):  # a speaker on several channels, which must be all channels of one file
            if len(self.files) != 1 or sorted(channel) != sorted(self.files[0][1]):
                raise ValueError(f"a supervision over channels {channel}, which are not all those of one file")
            return self.files[0][0], None
        for path, channels in self.files:
            if channel in channels:
                return path, channels.index(channel)
        raise ValueError(f"it has no channel {channel}")

    def segment(self, start: float, seconds: float) -> tuple[float | None, float | None]:
        """Return start and length in seconds, or None for a supervision that covers the whole recording."""
        if not (0 <= start < math.inf and 0 < seconds < math.inf):
            raise ValueError(f"a supervision from {start} s over {seconds} s")
        half_sample = 0.5 / self.rate
        whole = start < half_sample and abs(seconds - self.seconds) < half_sample
        return (None, None) if whole else (start, seconds)


def _read(path: Path) -> Iterator[Json]:
    """Yield the objects of a manifest."""
    name = path.name.removesuffix(".gz")
    if not name.endswith((".jsonl", ".json")):
        raise DataError(f"{path} is not a JSON manifest. Convert it with: lhotse copy {path} {path.stem}.jsonl.gz")
    try:
        with open_text(path) as file:
            rows = parse_json(file.read()) if name.endswith(".json") else map(parse_json, filter(str.strip, file))
            if isinstance(rows, str | int | float | dict | None):
                raise DataError(f"{path} is not a Lhotse manifest: it should contain a list. Check the file.")
            for row in rows:
                if not isinstance(row, dict):
                    raise DataError(f"{path} is not a Lhotse manifest: it should contain objects. Check the file.")
                json.dumps(row, ensure_ascii=False).encode()  # raises an error for bytes that are not UTF-8
                yield row
    except (ValueError, gzip.BadGzipFile, zlib.error, EOFError) as fault:
        raise DataError(f"{path} is not a complete Lhotse manifest: {fault}. Write it again.") from None
