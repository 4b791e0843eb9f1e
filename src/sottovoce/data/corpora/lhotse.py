"""Lhotse manifests: recordings and supervisions, as every Lhotse recipe writes them (JSONL or JSON, also .gz).

The manifests are read as plain JSON, so that Lhotse itself need not be installed. A supervision is a segment of a
recording. Sources other than files, and recordings with transforms, are listed as rejected: nothing is executed or
fetched because a manifest says so.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sottovoce.data.corpora.rows import open_text
from sottovoce.data.corpora.spec import CorpusSpec, require_file
from sottovoce.data.manifest import Corpus, Entry, Reason, Rejection
from sottovoce.errors import DataError

Json = dict[str, Any]


class Lhotse(CorpusSpec):
    """A pair of Lhotse manifests."""

    kind: Literal["lhotse"] = "lhotse"
    recordings: Path = Field(description="the manifest of recordings (.jsonl or .json, also .gz)")
    supervisions: Path = Field(description="the manifest of supervisions (.jsonl or .json, also .gz)")
    language: Literal["en", "fr", "de"] = Field("en", description="the language of the text")
    audio_root: Path | None = Field(None, description="where relative paths start (default: the manifest, then here)")
    label: str | None = Field(None, description="the name shown in statistics (default: the supervisions' name)")

    def read(self) -> Corpus:
        """Find every supervision."""
        require_file(self.recordings)
        require_file(self.supervisions)
        label = self.label or self.supervisions.name.split(".")[0]
        return Corpus(label, self.audio_root or self.recordings.parent, (self.language,), self._rows())

    def _rows(self) -> Iterator[Entry | Rejection]:
        recordings = {str(recording.get("id")): recording for recording in _read(self.recordings)}
        for supervision in _read(self.supervisions):
            yield self._entry(supervision, recordings)

    def _entry(self, supervision: Json, recordings: dict[str, Json]) -> Entry | Rejection:
        utterance, speaker = str(supervision.get("id", "")), str(supervision.get("speaker") or "")
        recording_id = str(supervision.get("recording_id", ""))
        recording = recordings.get(recording_id)
        if recording is None:
            return Rejection(utterance, speaker, Reason.MISSING_FILE, f"no recording {recording_id!r} in the manifest")
        try:
            path, channel = _source(recording, supervision.get("channel", 0))
            start, seconds = _segment(recording, supervision)
        except (ValueError, TypeError, KeyError) as fault:
            return Rejection(utterance, speaker, Reason.MALFORMED_ROW, str(fault))
        extra = {"recording": recording_id, "gender": supervision.get("gender")}
        extra |= {name: str(value) for name, value in (supervision.get("custom") or {}).items() if _is_plain(value)}
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
        """Keep a path that exists below the root; Lhotse itself resolves relative paths from the working folder."""
        root = self.audio_root or self.recordings.parent
        here = Path(path).absolute()
        return path if self.audio_root or (root / path).exists() or not here.exists() else str(here)


def _source(recording: Json, channel: int | list[int]) -> tuple[str, int | None]:
    """Return the file that holds the channel, and the channel's place in it (None: average them all)."""
    if recording.get("transforms"):
        raise ValueError(f"recording {recording['id']} has transforms, which are not supported")
    sources = recording["sources"]
    for source in sources:
        if source["type"] != "file":
            raise ValueError(f"recording {recording['id']} has a source of type {source['type']!r}, not a file")
    if isinstance(channel, list):
        if len(sources) > 1:
            raise ValueError(f"supervision over channels {channel} of several files is not supported")
        return sources[0]["source"], None
    for source in sources:
        if channel in source["channels"]:
            return source["source"], source["channels"].index(channel)
    raise ValueError(f"recording {recording['id']} has no channel {channel}")


def _segment(recording: Json, supervision: Json) -> tuple[float | None, float | None]:
    """Return start and length in seconds, or None for a supervision that covers the whole recording."""
    start, seconds = float(supervision["start"]), float(supervision["duration"])
    if start < 0 or seconds <= 0:
        raise ValueError(f"supervision from {start} s over {seconds} s")
    half_sample = 0.5 / float(recording["sampling_rate"])
    whole = start < half_sample and abs(seconds - float(recording["duration"])) < half_sample
    return (None, None) if whole else (start, seconds)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _read(path: Path) -> Iterator[Json]:
    """Yield the objects of a manifest."""
    name = path.name.removesuffix(".gz")
    if not name.endswith((".jsonl", ".json")):
        raise DataError(f"{path} is not a JSON manifest. Convert it with: lhotse copy {path} {path.stem}.jsonl.gz")
    try:
        with open_text(path) as file:
            if name.endswith(".json"):
                yield from json.load(file)
            else:
                yield from (json.loads(line) for line in file if line.strip())
    except (json.JSONDecodeError, gzip.BadGzipFile, EOFError) as fault:
        raise DataError(f"{path} is not a whole Lhotse manifest: {fault}. Write it again.") from None
