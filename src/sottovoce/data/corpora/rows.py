"""Rows of TSV, CSV, JSONL and Parquet tables, with every value as text.

An unreadable row is returned as `Malformed` with its place, so that the caller can list it. TSV has no quoting: a quote
is an ordinary character (Common Voice has unbalanced ones).
"""

import csv
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from sottovoce.data.corpora.spec import require_file
from sottovoce.errors import DataError
from sottovoce.reading import BadDocument, parse_json

Row = dict[str, str | None]
_SWALLOWED = "\n"


@dataclass(frozen=True)
class Malformed:
    """A row that could not be read."""

    place: str
    detail: str


def read_rows(path: Path, required: dict[str, str]) -> Iterator[Row | Malformed]:
    """Yield the rows of a table; `required` maps every required column to the advice given if it is missing."""
    require_file(path)
    name = path.name.removesuffix(".gz")
    for suffix, reader in _READERS.items():
        if name.endswith(suffix):
            return _whole(path, reader(path, required))
    raise DataError(f"{path} is not a supported table. Its name should end in {', '.join(_READERS)}.")


def read_json_lines(path: Path) -> Iterator[Row | Malformed]:
    """Yield the objects of a file with one JSON object per line, whatever its name."""
    return _whole(path, _read_jsonl(path, {}))


def open_text(path: Path) -> TextIO:
    """Open a text file, compressed or not; bytes that are not UTF-8 are read as surrogates."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")


def _require_columns(path: Path, columns: list[str], required: dict[str, str]) -> None:
    for column, advice in required.items():
        if column not in columns:
            present = ", ".join(map(repr, columns))
            separated = " Columns are separated by tabs." if len(columns) == 1 else ""
            raise DataError(f"{path} has no column {column!r}. It has: {present}.{separated} {advice}")


def _read_tsv(path: Path, required: dict[str, str]) -> Iterator[Row | Malformed]:
    def split(file: TextIO) -> Iterator[tuple[str, list[str]]]:
        for number, line in enumerate(file, start=1):
            yield f"row {number}", line.rstrip("\r\n").split("\t")

    return _read_fields(path, required, split)


def _read_csv(path: Path, required: dict[str, str]) -> Iterator[Row | Malformed]:
    def split(file: TextIO) -> Iterator[tuple[str, list[str]]]:
        reader = csv.reader(file, strict=True)
        before = 0
        for fields in reader:
            # A line end inside quotes usually comes from an unbalanced quote that swallowed rows: list all of them.
            for line in range(before + 1, reader.line_num):
                yield f"row {line}", [_SWALLOWED]
            yield f"row {reader.line_num}", fields if reader.line_num == before + 1 else [_SWALLOWED]
            before = reader.line_num

    return _read_fields(path, required, split)


def _read_fields(
    path: Path, required: dict[str, str], split: Callable[[TextIO], Iterator[tuple[str, list[str]]]]
) -> Iterator[Row | Malformed]:
    with open_text(path) as file:
        lines = split(file)
        _, header = next(lines, ("", []))
        _require_columns(path, header, required)
        for place, fields in lines:
            if not any(fields):
                continue
            if fields == [_SWALLOWED]:
                yield Malformed(place, "a line end inside quotes: look for an unbalanced quote")
            elif len(fields) != len(header):
                yield Malformed(place, f"{len(fields)} fields where the header has {len(header)}")
            elif not _is_text("".join(fields)):
                yield Malformed(place, "bytes that are not UTF-8")
            else:
                yield dict(zip(header, fields, strict=True))


def _whole(path: Path, rows: Iterator[Row | Malformed]) -> Iterator[Row | Malformed]:
    """Turn errors that occur while reading, such as a truncated file, into a DataError of one line."""
    try:
        yield from rows
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV: {error}. Look for an unbalanced quote.") from None
    except (EOFError, zlib.error, pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged: {error}. Write it again.") from None


def _read_jsonl(path: Path, required: dict[str, str]) -> Iterator[Row | Malformed]:
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            row = _parsed(line)
            if isinstance(row, str):
                yield Malformed(f"row {number}", row)
                continue
            if number == 1:
                _require_columns(path, list(row), required)
            yield {name: as_text(value) for name, value in row.items()}


def _parsed(line: str) -> dict[str, Any] | str:
    """Return the object on a line of JSONL, or the reason why it is malformed."""
    if not _is_text(line):
        return "bytes that are not UTF-8"
    try:
        row = parse_json(line)
    except BadDocument as error:
        return f"not JSON: {error}"
    return row if isinstance(row, dict) else "not a JSON object"


def _read_parquet(path: Path, required: dict[str, str]) -> Iterator[Row | Malformed]:
    file = pq.ParquetFile(path)
    _require_columns(path, file.schema_arrow.names, required)
    for batch in file.iter_batches():
        for row in batch.to_pylist():
            yield {name: as_text(value) for name, value in row.items()}


def as_text(value: Any) -> str | None:
    """Return a value as text: a text as it is, a missing value as None, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):  # many tools write a missing value as NaN
        return None
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_text(text: str) -> bool:
    """Return whether the text came from valid UTF-8; invalid bytes were read as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_READERS: dict[str, Callable[[Path, dict[str, str]], Iterator[Row | Malformed]]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
