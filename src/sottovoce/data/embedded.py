"""Audio inside a table: the bytes of one row of an Arrow or Parquet file, as Hugging Face datasets keep them.

Such a place is written FILE#COLUMN[ROW], for example `data-00000-of-00001.arrow#audio[17]`. Guarantee: the file is only
read, one part at a time; nothing is copied to disk.
"""

import io
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_PLACE = re.compile(r"(?P<file>.+\.(?:arrow|parquet))#(?P<column>.+)\[(?P<row>\d+)\]", re.DOTALL)


class EmbeddedFault(Exception):  # noqa: N818 - a finding about a file, turned into a row of rejected.tsv
    """A place that names no audio."""


class EmbeddedPlace(NamedTuple):
    """Where the bytes of one recording are."""

    file: str
    column: str
    row: int


def place_of(file: str, column: str, row: int) -> str:
    """Return the path by which the audio of a row is named."""
    return f"{file}#{column}[{row}]"


def split_place(path: Path | str) -> EmbeddedPlace | None:
    """Return the place that a path names; None where it is a plain file."""
    found = _PLACE.fullmatch(str(path)) if str(path).endswith("]") else None
    return None if found is None else EmbeddedPlace(found["file"], found["column"], int(found["row"]))


def file_of(path: str) -> str:
    """Return the file on disk that a path leads to."""
    place = split_place(path)
    return path if place is None else place.file


def open_embedded(path: Path) -> io.BytesIO | None:
    """Return the bytes that a path names, as a file; None where the path is a plain file.

    Raise EmbeddedFault where the row holds no bytes, or the file is not what its name says.
    """
    place = split_place(path)
    if place is None:
        return None
    changed = Path(place.file).stat().st_mtime_ns
    try:
        column, first = _part(place.file, place.column, place.row, changed)
        value = column[place.row - first].as_py()
    except (pa.ArrowException, KeyError, IndexError) as error:
        raise EmbeddedFault(" ".join(str(error).split())) from None
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        raise EmbeddedFault("the row holds no bytes")
    return io.BytesIO(content)


def _part(file: str, column: str, row: int, changed: int) -> tuple[pa.ChunkedArray, int]:
    """Return the part of a column that holds a row, and the number of its first row."""
    if file.endswith(".arrow"):
        return _arrow_column(file, column, changed), 0
    ends = _row_group_ends(file, changed)
    group = int(np.searchsorted(ends, row, side="right"))
    if group >= len(ends):
        raise IndexError(f"there is no row {row}")
    return _row_group(file, column, group, changed), int(ends[group - 1]) if group else 0


@lru_cache(maxsize=8)
def _arrow_column(file: str, column: str, changed: int) -> pa.ChunkedArray:  # noqa: ARG001 - a changed file is another
    """Return a column of an Arrow file, mapped into memory."""
    return read_arrow(Path(file))[column]


def read_arrow(path: Path) -> pa.Table:
    """Return an Arrow file, in the stream or the file format, mapped into memory."""
    source = pa.memory_map(str(path))
    try:
        return pa.ipc.open_stream(source).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_file(source).read_all()


@lru_cache(maxsize=64)
def _row_group_ends(file: str, changed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:  # noqa: ARG001
    with pq.ParquetFile(file) as opened:
        sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
    return np.cumsum(sizes, dtype=np.int64)


@lru_cache(maxsize=2)  # rows come by speaker, and files are mostly in that order, too
def _row_group(file: str, column: str, group: int, changed: int) -> pa.ChunkedArray:  # noqa: ARG001
    with pq.ParquetFile(file) as opened:
        return opened.read_row_group(group, columns=[column])[column]
