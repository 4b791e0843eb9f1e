"""Any table of recordings: TSV, CSV, JSONL or Parquet, with columns for path, speaker and text."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from sottovoce.data.corpora.rows import Malformed, Row, read_rows
from sottovoce.data.corpora.spec import CorpusSpec, require_file
from sottovoce.data.manifest import Corpus, Entry, Reason, Rejection
from sottovoce.errors import DataError


class Table(CorpusSpec):
    """A table with one row per recording; audio paths are relative to the table's folder."""

    kind: Literal["table"] = "table"
    file: Path = Field(description="the table: .tsv, .csv, .jsonl (each also .gz) or .parquet")
    language: tuple[str, ...] = Field(
        ("en",), min_length=1, description="the language: en, fr or de; several need a language column"
    )
    path_column: str = Field("path", description="the column with the audio file")
    speaker_column: str = Field("speaker", description="the column with the speaker's id")
    text_column: str = Field("text", description="the column with the transcript")
    utterance_column: str | None = Field(None, description="the column with the utterance's id (default: the path)")
    language_column: str | None = Field(None, description="the column with each row's language")
    speaker_table: Path | None = Field(
        None, description="a second table with one row per speaker, whose columns are added"
    )
    label: str | None = Field(None, description="the name shown in statistics (default: the table's folder)")

    def read(self) -> Corpus:
        """Return the corpus with every row of the table."""
        require_file(self.file)
        label = self.label or self.file.absolute().parent.name
        return Corpus(label, self.file.parent, self.language, self._rows())

    def _rows(self) -> Iterator[Entry | Rejection]:
        columns = {
            self.path_column: "--path-column",
            self.speaker_column: "--speaker-column",
            self.text_column: "--text-column",
            self.utterance_column: "--utterance-column",
            self.language_column: "--language-column",
        }
        required = {column: f"Name another with {option}." for column, option in columns.items() if column}
        speakers = self._speakers()
        for row in read_rows(self.file, required):
            if isinstance(row, Malformed):
                yield Rejection(f"{self.file.name} {row.place}", "", Reason.MALFORMED_ROW, row.detail)
            else:
                yield self._entry(row, required, speakers)

    def _entry(self, row: Row, used: Collection[str], speakers: dict[str, Row]) -> Entry | Rejection:
        path = row.get(self.path_column) or ""
        speaker = row.get(self.speaker_column) or ""
        if not path:
            return Rejection("", speaker, Reason.MISSING_FILE, "the row names no file")
        language = (row.get(self.language_column) or "" if self.language_column else self.language[0]).lower()
        utterance = row.get(self.utterance_column) if self.utterance_column else os.path.splitext(path)[0]  # noqa: PTH122 - it may be any text
        if language not in self.language:
            known = ", ".join(self.language)
            return Rejection(
                utterance or path, speaker, Reason.MALFORMED_ROW, f"language {language!r} is not one of {known}"
            )
        extra = {name: value or None for name, value in (speakers.get(speaker, {}) | row).items() if name not in used}
        return Entry(utterance or path, speaker, row.get(self.text_column) or "", language, (path,), extra=extra)

    def _speakers(self) -> dict[str, Row]:
        """Return the row of every speaker in the speaker table."""
        if self.speaker_table is None:
            return {}
        speakers: dict[str, Row] = {}
        for row in read_rows(self.speaker_table, {self.speaker_column: "Name another with --speaker-column."}):
            if isinstance(row, Malformed):
                raise DataError(f"{self.speaker_table} {row.place}: {row.detail}. Correct the speaker table.")
            speaker = row.pop(self.speaker_column) or ""
            if speaker in speakers:
                raise DataError(f"{self.speaker_table} has {speaker!r} twice. Give one row per speaker.")
            speakers[speaker] = row
        return speakers
