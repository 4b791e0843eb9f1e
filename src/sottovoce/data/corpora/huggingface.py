"""Hugging Face datasets on disk: folders that `save_to_disk` wrote, and Parquet files. Nothing is downloaded.

    FOLDER/dataset_dict.json            the names of the splits; FOLDER/SPLIT is a dataset
    FOLDER/state.json                   a dataset: the names of its Arrow files (stream format)
    FOLDER/dataset_info.json            its features, with the names of class labels
    FOLDER/**/SPLIT-00000-of-00002.parquet   the layout of the Hub

Only pyarrow reads them. The audio of a row is its bytes, which stay in the file, or a path.
"""

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from sottovoce.data.corpora.rows import as_text
from sottovoce.data.corpora.spec import CorpusSpec
from sottovoce.data.embedded import place_of, read_arrow
from sottovoce.data.manifest import Corpus, Entry, Reason, Rejection
from sottovoce.errors import DataError
from sottovoce.reading import BadDocument, parse_json, read_bounded

_ROWS = 10_000  # at a time
_SHARD = re.compile(r"(?P<split>.+?)(?:-\d{5}-of-\d{5}(?:-[0-9a-f]+)?)?\.parquet")


class HuggingFace(CorpusSpec):
    """A dataset of Hugging Face on disk."""

    kind: Literal["huggingface"] = "huggingface"
    place: Path = Field(description="a folder made by save_to_disk, a folder of Parquet files, or one file")
    split: str | None = Field(None, description="the split to read, where there are several")
    language: Literal["en", "fr", "de"] = Field("en", description="the language of the text: en, fr or de")
    audio_column: str = Field("audio", description="the column with the audio: bytes or a path")
    speaker_column: str = Field("speaker", description="the column with the speaker's id")
    text_column: str = Field("text", description="the column with the transcript")
    utterance_column: str | None = Field(
        None, description="the column with the utterance's id (default: the audio's path, or the speaker and a number)"
    )
    audio_root: Path | None = Field(None, description="the folder of relative audio paths (default: PLACE)")
    label: str | None = Field(None, description="the name shown in statistics (default: the folder's name)")

    @property
    def first_language(self) -> str:
        """The language of the corpus."""
        return self.language

    def read(self) -> Corpus:
        """Return the corpus with every row of the dataset."""
        root = self.place if self.place.is_dir() else self.place.parent
        files = self._files()
        return Corpus(self.label or self.place.absolute().stem, root, (self.language,), self._rows(root, files))

    def _files(self) -> list[Path]:
        if not self.place.exists():
            raise DataError(f"{self.place} does not exist. Check the path.")
        if self.place.is_file():
            if self.place.suffix not in (".arrow", ".parquet"):
                raise DataError(f"{self.place} is no dataset. Its name should end in .arrow or .parquet.")
            return [self.place]
        if (self.place / "dataset_dict.json").is_file():
            splits = _document(self.place / "dataset_dict.json").get("splits")
            return _saved_files(self.place / self._split(splits if isinstance(splits, list) else []))
        if (self.place / "state.json").is_file():
            return _saved_files(self.place)
        return self._parquet_files()

    def _split(self, splits: list[Any]) -> str:
        names = [str(split) for split in splits]
        if self.split in names or (self.split is None and len(names) == 1):
            return self.split or names[0]
        fact = "has several splits" if self.split is None else f"has no split {self.split!r}"
        raise DataError(f"{self.place} {fact}. Choose one of {', '.join(names) or 'none'} with --split.")

    def _parquet_files(self) -> list[Path]:
        found: dict[str, list[Path]] = {}
        for path in sorted(self.place.rglob("*.parquet")):
            shard = _SHARD.fullmatch(path.name)
            found.setdefault(shard["split"] if shard else path.stem, []).append(path)
        if not found:
            raise DataError(f"{self.place} holds no dataset: neither state.json nor Parquet files. Check the path.")
        return found[self._split(list(found))]

    def _rows(self, root: Path, files: list[Path]) -> Iterator[Entry | Rejection]:
        numbers: Counter[str] = Counter()  # of rows without an id, by speaker: nobody's rows name anybody else's
        for path in files:
            try:
                yield from self._file_rows(root, path, numbers)
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{path} is damaged: {' '.join(str(error).split())}. Write it again.") from None

    def _file_rows(self, root: Path, path: Path, numbers: "Counter[str]") -> Iterator[Entry | Rejection]:
        shard = _Shard.open(path, self.audio_column)
        wanted = {self.audio_column: "--audio-column", self.speaker_column: "--speaker-column"}
        wanted |= {self.text_column: "--text-column"}
        wanted |= {self.utterance_column: "--utterance-column"} if self.utterance_column else {}
        for column, option in wanted.items():
            if column not in shard.schema.names:
                present = ", ".join(map(repr, shard.schema.names))
                raise DataError(f"{path} has no column {column!r}. It has: {present}. Name another with {option}.")
        file = os.path.relpath(path, root)
        for row, (values, audio) in enumerate(shard.rows()):
            yield self._entry(values, audio, place_of(file, self.audio_column, row), numbers)

    def _entry(
        self, values: Mapping[str, str | None], audio: "_Audio", place: str, numbers: "Counter[str]"
    ) -> Entry | Rejection:
        speaker = values.get(self.speaker_column) or ""
        named = (values.get(self.utterance_column) if self.utterance_column else None) or audio.name
        if named is None:
            named = f"{speaker}-{numbers[speaker]:06d}"
            numbers[speaker] += 1
        if not audio.embedded and not audio.path:
            return Rejection(named, speaker, Reason.MISSING_FILE, "the row has neither bytes nor a path")
        path = place if audio.embedded else str(audio.path)
        if not audio.embedded and self.audio_root is not None:
            path = str((self.audio_root / path).absolute())
        used = {self.speaker_column, self.text_column, self.utterance_column}
        extra = {name: value or None for name, value in values.items() if name not in used}
        return Entry(named, speaker, values.get(self.text_column) or "", self.language, (path,), extra=extra)


@dataclass(frozen=True)
class _Audio:
    """The audio of a row: whether its bytes are in the row, and its path."""

    embedded: bool
    path: str | None

    @property
    def name(self) -> str | None:
        """The path without its ending."""
        return os.path.splitext(self.path)[0] if self.path else None  # noqa: PTH122 - it may be any text


@dataclass(frozen=True)
class _Shard:
    """One file of a dataset."""

    path: Path
    column: str  # with the audio
    schema: pa.Schema
    labels: Mapping[str, list[str]]  # the names of class labels, by column
    table: pa.Table | None  # of an Arrow file, mapped into memory

    @classmethod
    def open(cls, path: Path, column: str) -> "_Shard":
        """Read the schema of a file."""
        table = read_arrow(path) if path.suffix == ".arrow" else None
        schema = pq.read_schema(path) if table is None else table.schema
        return cls(path, column, schema, _class_labels(schema, path), table)

    def rows(self) -> Iterator[tuple[dict[str, str | None], _Audio]]:
        """Yield the plain columns of every row as text, and its audio."""
        plain = [field.name for field in self.schema if field.name != self.column and _is_plain(field.type)]
        for values, audio in self._parts(plain):
            for row, sound in zip(values.to_pylist(), audio, strict=True):
                yield {name: self._as_text(name, value) for name, value in row.items()}, sound

    def _as_text(self, name: str, value: Any) -> str | None:
        names = self.labels.get(name)
        if names is not None and isinstance(value, int):
            return names[value] if 0 <= value < len(names) else None
        return as_text(value)

    def _parts(self, plain: list[str]) -> Iterator[tuple[pa.Table, list[_Audio]]]:
        if self.table is not None:
            for first in range(0, len(self.table), _ROWS):
                part = self.table.slice(first, _ROWS)
                yield part.select(plain), _audio_of(part[self.column], self.path)
            return
        with pq.ParquetFile(self.path) as file:
            for group in range(file.num_row_groups):
                audio = self._parquet_audio(file, group)
                yield file.read_row_group(group, columns=plain), audio

    def _parquet_audio(self, file: pq.ParquetFile, group: int) -> list[_Audio]:
        """Return the audio of a row group; bytes are read only where it is not known which rows have some."""
        rows = file.metadata.row_group(group)
        empty = _null_bytes(rows, f"{self.column}.bytes")
        kind = self.schema.field(self.column).type
        if empty not in (0, rows.num_rows) or "path" not in _struct_names(kind):
            return _audio_of(file.read_row_group(group, columns=[self.column])[self.column], self.path)
        paths = file.read_row_group(group, columns=[f"{self.column}.path"])[self.column].to_pylist()
        return [_Audio(empty == 0, value and value["path"]) for value in paths]


def _audio_of(column: pa.ChunkedArray, path: Path) -> list[_Audio]:
    """Return the audio of a column: a struct of bytes and path, or either of them."""
    names = _struct_names(column.type)
    if {"array", "sampling_rate"} & names:
        raise DataError(f"{path} holds decoded samples. Cast the column to Audio(decode=False), and save it again.")
    if names:
        nothing = itertools.repeat(None, len(column))
        paths = pc.struct_field(column, "path").to_pylist() if "path" in names else nothing
        valid = pc.is_valid(pc.struct_field(column, "bytes")).to_pylist() if "bytes" in names else nothing
        return [_Audio(bool(has), name) for has, name in zip(valid, paths, strict=True)]
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return [_Audio(bool(has), None) for has in pc.is_valid(column).to_pylist()]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [_Audio(False, name) for name in column.to_pylist()]
    raise DataError(f"{path} holds no audio in its column of {column.type}. Name another with --audio-column.")


def _struct_names(kind: pa.DataType) -> set[str]:
    return {kind.field(place).name for place in range(kind.num_fields)} if pa.types.is_struct(kind) else set()


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _null_bytes(group: Any, column: str) -> int | None:
    """Return how many values of a Parquet column are null, as the file itself counts them; None where it does not."""
    for place in range(group.num_columns):
        described = group.column(place)
        if described.path_in_schema == column:
            figures = described.statistics
            return int(figures.null_count) if figures is not None and figures.has_null_count else None
    return None


def _class_labels(schema: pa.Schema, path: Path) -> dict[str, list[str]]:
    """Return the names of class labels, by column, from the file's own metadata or from dataset_info.json."""
    own = (schema.metadata or {}).get(b"huggingface")
    beside = path.parent / "dataset_info.json"
    try:
        info = json.loads(own).get("info", {}) if own else _document(beside) if beside.is_file() else {}
    except (ValueError, AttributeError, RecursionError):
        raise DataError(f"{path} has damaged metadata. Write it again.") from None
    features = info.get("features") if isinstance(info, dict) else None
    found: dict[str, list[str]] = {}
    for name, feature in features.items() if isinstance(features, dict) else ():
        names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
        if isinstance(names, list):
            found[name] = [str(label) for label in names]
    return found


def _saved_files(folder: Path) -> list[Path]:
    """Return the Arrow files of a dataset that was saved to disk, in their order."""
    state = _document(folder / "state.json")
    if state.get("_indices_data_files"):
        raise DataError(f"{folder} holds only an order of rows of other files. Save it again after flatten_indices().")
    listed = state.get("_data_files")
    names = [one.get("filename") if isinstance(one, dict) else None for one in listed] if listed else []
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise DataError(f"{folder} has no file {name!r}, which its state.json names. Copy the whole folder.")
    if not names:
        raise DataError(f"{folder / 'state.json'} names no files. Save the dataset again.")
    return [folder / str(name) for name in names]


def _document(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_bounded(path))
    except FileNotFoundError:
        raise DataError(f"{path} is missing. Give a folder that save_to_disk wrote.") from None
    except BadDocument:
        content = None
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged. Save the dataset again.")
    return content
