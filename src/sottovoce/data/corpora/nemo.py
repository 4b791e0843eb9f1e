"""NeMo manifests: one JSON object per line with audio_filepath, text, speaker and, for a part of a file, offset."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from sottovoce.data.corpora.rows import Malformed, Row, read_json_lines
from sottovoce.data.corpora.spec import CorpusSpec, require_file
from sottovoce.data.manifest import Corpus, Entry, Reason, Rejection

_OWN = ("audio_filepath", "offset", "duration")


class NeMo(CorpusSpec):
    """A manifest of NVIDIA NeMo."""

    kind: Literal["nemo"] = "nemo"
    manifest: Path = Field(description="the manifest: one JSON object per line (.json or .jsonl, also .gz)")
    language: Literal["en", "fr", "de"] = Field("en", description="the language of the text: en, fr or de")
    speaker_key: str = Field("speaker", description="the key with the speaker's id")
    text_key: str = Field("text", description="the key with the transcript")
    utterance_key: str | None = Field(None, description="the key with the utterance's id (default: path and offset)")
    audio_root: Path | None = Field(None, description="the folder of relative paths (default: the manifest's)")
    label: str | None = Field(None, description="the name shown in statistics (default: the manifest's name)")

    @property
    def first_language(self) -> str:
        """The language of the corpus."""
        return self.language

    def read(self) -> Corpus:
        """Return the corpus with every line of the manifest."""
        require_file(self.manifest)
        label = self.label or self.manifest.name.split(".")[0]
        return Corpus(label, self.audio_root or self.manifest.parent, (self.language,), self._rows())

    def _rows(self) -> Iterator[Entry | Rejection]:
        for row in read_json_lines(self.manifest):
            if isinstance(row, Malformed):
                yield Rejection(f"{self.manifest.name} {row.place}", "", Reason.MALFORMED_ROW, row.detail)
            else:
                yield self._entry(row)

    def _entry(self, row: Row) -> Entry | Rejection:
        path, speaker = row.get("audio_filepath") or "", row.get(self.speaker_key) or ""
        if not path:
            return Rejection("", speaker, Reason.MISSING_FILE, "the line names no audio_filepath")
        named = (row.get(self.utterance_key) if self.utterance_key else None) or _named(path, row.get("offset"))
        try:
            start, seconds = _segment(row)
        except ValueError as fault:
            return Rejection(named, speaker, Reason.MALFORMED_ROW, str(fault))
        used = {*_OWN, self.speaker_key, self.text_key, self.utterance_key}
        extra = {name: value or None for name, value in row.items() if name not in used}
        return Entry(
            utterance=named,
            speaker=speaker,
            text=row.get(self.text_key) or "",
            language=self.language,
            paths=(path,),
            start=start,
            segment_seconds=seconds,
            extra=extra,
        )


def _named(path: str, offset: str | None) -> str:
    """Return an id for a file, or for the part of it that begins at an offset."""
    name = os.path.splitext(path)[0]  # noqa: PTH122 - it may be any text
    return name if offset is None else f"{name}@{offset}"


def _segment(row: Row) -> tuple[float | None, float | None]:
    """Return start and length of a part of a file; None for a whole file, whose duration is that of the file."""
    offset, duration = _number(row, "offset"), _number(row, "duration")
    if offset is None:
        return None, None
    if offset < 0 or (duration is not None and duration <= 0):
        raise ValueError(f"a part from {offset:g} s over {duration} s")
    return offset, duration


def _number(row: Row, key: str) -> float | None:
    value = row.get(key)
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{key} is {value[:40]!r}, not a number of seconds")
    return number
