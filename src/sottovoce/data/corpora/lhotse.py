"""Lhotse manifests: recordings and supervisions, or cuts, as Lhotse writes them (JSONL or JSON, also .gz).

The manifests are read as plain JSON, so Lhotse need not be installed. A supervision is a segment of a recording; in a
cut, which holds its recording, it is one that begins where the cut begins. Only recordings in plain files without
transforms are used; others are listed as rejected, and so are cuts of several tracks. Nothing that a manifest contains
is executed or downloaded.
"""

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sottovoce.data.corpora.rows import open_text
from sottovoce.data.corpora.spec import CorpusSpec, require_file
from sottovoce.data.manifest import Corpus, Entry, Reason, Rejection
from sottovoce.errors import DataError
from sottovoce.reading import parse_json

Json = dict[str, Any]  # an object of a manifest, which may contain anything
_ROUNDING = 0.001  # seconds; Lhotse rounds times


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
        entry = _entry(supervision, recording, recording_id, self.language)
        return _resolved(entry, self.recordings.parent, self.audio_root)


class LhotseCuts(CorpusSpec):
    """A Lhotse manifest of cuts."""

    kind: Literal["lhotse-cuts"] = "lhotse-cuts"
    cuts: Path = Field(description="the manifest of cuts (.jsonl or .json, also .gz)")
    language: Literal["en", "fr", "de"] = Field("en", description="the language of the text: en, fr or de")
    audio_root: Path | None = Field(
        None, description="the folder of relative paths (default: the manifest's, then the working folder)"
    )
    label: str | None = Field(None, description="the name shown in statistics (default: the manifest's name)")

    def read(self) -> Corpus:
        """Return the corpus with every supervision of every cut."""
        require_file(self.cuts)
        label = self.label or self.cuts.name.split(".")[0]
        return Corpus(label, self.audio_root or self.cuts.parent, (self.language,), self._rows())

    def _rows(self) -> Iterator[Entry | Rejection]:
        for cut in _read(self.cuts):
            name, supervisions = str(cut.get("id") or ""), cut.get("supervisions")
            fault = _cut_fault(cut)
            if fault is not None:
                yield Rejection(name, _speaker_of(supervisions), Reason.MALFORMED_ROW, fault)
                continue
            recording = _LhotseRecording.of(cut["recording"])
            for supervision in supervisions or ():
                yield self._entry(cut, supervision, recording)

    def _entry(self, cut: Json, supervision: Json, recording: "_LhotseRecording") -> Entry | Rejection:
        utterance, speaker = str(supervision.get("id") or ""), str(supervision.get("speaker") or "")
        recording_id = str(cut["recording"].get("id", ""))
        if not utterance:
            return Rejection("", speaker, Reason.MALFORMED_ROW, f"cut {cut.get('id')}: a supervision without an id")
        try:
            start, seconds = _inside(cut, supervision)
        except (ValueError, TypeError, KeyError) as fault:
            return Rejection(utterance, speaker, Reason.MALFORMED_ROW, f"cut {cut.get('id')}: {fault}")
        channel = supervision.get("channel", cut.get("channel", 0))
        placed = supervision | {"start": start, "duration": seconds, "channel": channel}
        entry = _entry(placed, recording, recording_id, self.language)
        return _resolved(entry, self.cuts.parent, self.audio_root)


def _cut_fault(cut: Json) -> str | None:
    """Return why a cut cannot be used; None where it can."""
    kind = cut.get("type", "MonoCut")
    if "tracks" in cut or kind not in ("MonoCut", "MultiCut"):
        return f"a cut of type {kind!r}: only cuts of one recording are read, not tracks that are mixed or padded"
    if not isinstance(cut.get("recording"), dict):
        return "a cut without a recording"
    supervisions = cut.get("supervisions")
    if not isinstance(supervisions, list) or not all(isinstance(one, dict) for one in supervisions) or not supervisions:
        return "a cut without a supervision"
    return None


def _speaker_of(supervisions: Any) -> str:
    """Return the speaker of the first supervision; empty where there is none."""
    first = supervisions[0] if isinstance(supervisions, list) and supervisions else None
    return str(first.get("speaker") or "") if isinstance(first, dict) else ""


def _inside(cut: Json, supervision: Json) -> tuple[float, float]:
    """Return where a supervision begins in the recording, and its length; raise ValueError outside the cut."""
    begin, length = float(cut["start"]), float(cut["duration"])
    start, seconds = float(supervision["start"]), float(supervision["duration"])
    if not (start >= -_ROUNDING and start + seconds <= length + _ROUNDING):
        raise ValueError(f"a supervision from {start} s over {seconds} s, which is not inside the cut of {length} s")
    return max(round(begin + start, 9), 0.0), seconds


def _entry(supervision: Json, recording: "_LhotseRecording", recording_id: str, language: str) -> Entry | Rejection:
    """Return the utterance that a supervision of a recording is."""
    utterance, speaker = str(supervision["id"]), str(supervision.get("speaker") or "")
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
        language=language,
        paths=(path,),
        start=start,
        segment_seconds=seconds,
        channel=channel,
        extra=extra,
    )


def _resolved(entry: Entry | Rejection, folder: Path, audio_root: Path | None) -> Entry | Rejection:
    """Return the entry with its path as it is where that exists below the root, else from the working folder."""
    if isinstance(entry, Rejection):
        return entry
    (path,) = entry.paths
    here = Path(path).absolute()
    kept = audio_root is not None or (folder / path).exists() or not here.exists()
    return entry if kept else replace(entry, paths=(str(here),))


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
