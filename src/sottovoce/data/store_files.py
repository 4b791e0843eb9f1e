"""The files of a store, checked when they are opened and read in ranges.

Guarantees: nothing is mapped into memory, so a file that is cut while it is in use is a DataError and not the end of
the process. The header of an array decides nothing that is not checked: type, number of dimensions and length. Reading
a range costs one system call, which is no slower than paging in a mapping that is then copied (see `batching.load`).
"""

import contextlib
import os
import re
import stat
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sottovoce.errors import DataError

_SCANNED = 1 << 24  # values at a time
_LONGEST_HEADER = 1024  # ours have 128 bytes
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<|][a-z]\d)', 'fortran_order': False, 'shape': \(([\d, ]{0,60})\), \} *\n",
    re.DOTALL,
)


def damaged(path: Path, why: object) -> DataError:
    """Return the error about a file of a store that is not as it was written."""
    return DataError(f"{path} is damaged: {' '.join(str(why).split())}. Prepare the store again.")


class ArrayFile:
    """An array on disk: rows of one type and one shape, after a header or without one."""

    def __init__(self, path: Path, dtype: type[np.generic], row_shape: tuple[int, ...] = (), *, header: bool) -> None:
        """Open a file; with a header it is one of NumPy (.npy), whose type and shape must be these."""
        self.path, self._dtype, self._row_shape = path, np.dtype(dtype), row_shape
        self._row_bytes = self._dtype.itemsize * int(np.prod(row_shape, dtype=np.int64))
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise damaged(path, "it is not a regular file")
        self._start = self._read_header() if header else 0
        self.length, rest = divmod(found.st_size - self._start, self._row_bytes)
        if rest or (header and self.length != self._announced):
            raise damaged(path, f"it has {found.st_size} bytes, which are not whole rows, or not those of its header")

    def _read_header(self) -> int:
        """Return where the rows begin.

        The header is compared with what `numpy.save` writes, not evaluated: NumPy's reader takes any literal.
        """
        start = os.pread(self._descriptor, _LONGEST_HEADER, 0)
        found = _HEADER.match(start)
        end = 10 + int.from_bytes(start[8:10], "little")
        if found is None or found.end() != end:
            raise damaged(self.path, "its header is not that of an array")
        kind, shape = found[1].decode(), tuple(int(size) for size in found[2].decode().split(",") if size.strip())
        if kind != self._dtype.str or not shape or shape[1:] != self._row_shape:
            raise damaged(self.path, f"its header says {kind} {shape}")
        self._announced = shape[0]
        return end

    def rows(self, first: int, last: int) -> npt.NDArray[Any]:
        """Return the rows from `first` up to `last`, in memory."""
        rows = np.empty((max(last - first, 0), *self._row_shape), self._dtype)
        self.fill(rows, first)
        return rows

    def fill(self, rows: npt.NDArray[Any], first: int) -> None:
        """Fill a contiguous array of this type with the rows from `first` on, straight from the file."""
        room = rows.data.cast("B") if rows.size else memoryview(b"")
        place = self._start + first * self._row_bytes
        while room:
            done = os.preadv(self._descriptor, [room], place)
            if not done:
                raise damaged(self.path, "it was cut while it was in use")
            room, place = room[done:], place + done

    def whole(self) -> npt.NDArray[Any]:
        """Return all rows."""
        return self.rows(0, self.length)


def read_offsets(path: Path, count: int, end: int, *, empty: bool) -> npt.NDArray[np.int64]:
    """Return the offsets of `count` items that fill `end` places in order; `empty` says whether items may be empty."""
    offsets: npt.NDArray[np.int64] = ArrayFile(path, np.int64, header=True).whole()
    if len(offsets) != count + 1 or offsets[0] != 0 or offsets[-1] != end:
        raise damaged(path, "it does not match the other files")
    # Compared, not subtracted: a difference could overflow.
    in_order = offsets[1:] >= offsets[:-1] if empty else offsets[1:] > offsets[:-1]
    if not in_order.all():
        raise damaged(path, "it is not in order")
    return offsets


def require_tokens(tokens: ArrayFile, count: int) -> None:
    """Raise DataError where a target is not one of the `count` tokens."""
    for first in range(0, tokens.length, _SCANNED):
        if tokens.rows(first, min(first + _SCANNED, tokens.length)).max(initial=0) >= count:
            raise damaged(tokens.path, "it has targets that are no tokens")


def read_schema(path: Path) -> pa.Schema:
    """Return the columns of a table, without reading it."""
    with _faults_of(path):
        return pq.read_schema(path)


def require_table(path: Path, rows: int, types: dict[str, pa.DataType], required: tuple[str, ...]) -> None:
    """Raise DataError where a table lacks rows or required columns, or where a column has another type than ours."""
    with _faults_of(path), pq.ParquetFile(path) as file:
        schema, found = file.schema_arrow, file.metadata.num_rows
    if found != rows:
        raise damaged(path, f"it has {found} rows, not {rows}")
    require_columns(path, schema.names, required)
    for name in schema.names:
        if name in types and (schema.names.count(name) > 1 or schema.field(name).type != types[name]):
            raise damaged(path, f"the column {name!r} is there twice, or does not hold {types[name]}")


def require_columns(path: Path, present: list[str], required: tuple[str, ...] | list[str]) -> None:
    """Raise DataError where a column is missing."""
    for name in required:
        if name not in present:
            raise damaged(path, f"it has no column {name!r}")


def read_table(path: Path, columns: list[str] | None) -> pa.Table:
    """Return a table, or some of its columns.

    It is read without Arrow's threads: where memory is short and a thread does not start, they wait for it for ever.
    """
    with _faults_of(path), pq.ParquetFile(path, memory_map=False) as file:
        table = file.read(columns=columns, use_threads=False)
        return table if columns is None else table.select(columns)


def read_rows(path: Path, start: int, stop: int, columns: list[str] | None) -> pa.Table:
    """Return a range of rows; only the row groups that overlap it are read."""
    with _faults_of(path), pq.ParquetFile(path, memory_map=False) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        ends = np.cumsum(sizes, dtype=np.int64)
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, stop, side="left"))
        groups = list(range(first, min(last, len(sizes) - 1) + 1))
        table = file.read_row_groups(groups, columns=columns, use_threads=False)
        return table.slice(start - (int(ends[first]) - sizes[first] if groups else 0), stop - start)


@contextlib.contextmanager
def _faults_of(path: Path) -> Any:
    """Turn what Arrow finds wrong with a file into a DataError."""
    try:
        yield
    except MemoryError:  # Arrow's is an ArrowException, too, and says nothing about the file
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
        raise damaged(path, error) from None
