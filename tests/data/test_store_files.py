"""A store whose files are damaged is a DataError when it is opened, and never the end of the process."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from report_runs import make_data
from sottovoce.data.store import Store
from sottovoce.errors import DataError
from sottovoce.files import as_json
from sottovoce.reading import parse_json


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    make_data(folder)
    return folder / "store"


@pytest.fixture
def store(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "store")


def without_sizes(store):
    """Let a store look like one of an earlier version, so that the other checks are reached."""
    info = parse_json((store / "store.json").read_bytes())
    del info["sizes"]
    (store / "store.json").write_bytes(as_json(info))


def first(value):
    return lambda array: np.concatenate([[value], array[1:]]).astype(array.dtype)


FAULTS = {
    "first offset 7": ("frame_offsets.npy", first(7)),
    "negative offset": ("frame_offsets.npy", lambda a: np.concatenate([a[:1], [-5], a[2:]])),
    "offset 2^60": ("frame_offsets.npy", lambda a: np.concatenate([a[:1], [2**60], a[2:]])),
    "offsets of another type": ("frame_offsets.npy", lambda a: a.astype(np.float64)),
    "token offsets backwards": ("token_offsets.npy", lambda a: np.concatenate([a[:1], a[1:-1][::-1], a[-1:]])),
    "a speaker without utterances": ("speaker_offsets.npy", lambda a: np.concatenate([a[:1], a[:1], a[2:]])),
    "token 200": ("tokens.npy", first(200)),
    "tokens in two dimensions": ("tokens.npy", lambda a: a.reshape(1, -1)),
    "digests of another shape": ("digests.npy", lambda a: a.reshape(-1, 32)),
}


@pytest.mark.parametrize(("name", "new"), FAULTS.values(), ids=FAULTS)
def test_damaged_arrays_are_found_without_recorded_sizes(store, name, new):
    without_sizes(store)
    Store.open(store)
    np.save(store / name, new(np.load(store / name)))
    with pytest.raises(DataError, match=rf"{name} is damaged: .*Prepare the store again\."):
        Store.open(store)


def test_tables_are_checked_when_the_store_is_opened(store):
    without_sizes(store)
    index = pq.read_table(store / "index.parquet")
    place = index.column_names.index("seconds")
    for table in (
        index.slice(1),
        index.drop_columns(["speaker"]),
        index.set_column(place, "seconds", index["seconds"].cast(pa.string())),
    ):
        pq.write_table(table, store / "index.parquet")
        with pytest.raises(DataError, match=r"index\.parquet is damaged"):
            Store.open(store)
    (store / "index.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"index\.parquet is damaged"):
        Store.open(store)


def test_gaps_in_the_index_are_found_when_it_is_read(store):
    without_sizes(store)
    index = pq.read_table(store / "index.parquet")
    texts = pa.array([None, *index["text"].to_pylist()[1:]], pa.string())
    pq.write_table(index.set_column(index.column_names.index("text"), "text", texts), store / "index.parquet")
    for rows in (None, slice(0, 1)):
        with pytest.raises(DataError, match=r"index\.parquet is damaged: the column 'text' has gaps"):
            Store.open(store).index(rows=rows)


def test_recorded_sizes_find_every_cut(store):
    for path in [path for path in store.iterdir() if path.name != "store.json"]:
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(DataError, match=f"{path.name} is damaged: it has {len(content) - 1} bytes"):
            Store.open(store)
        path.write_bytes(content)
    Store.open(store)


def test_a_file_that_is_cut_while_it_is_in_use_is_an_error(store):
    opened = Store.open(store)
    assert len(opened.features_of(0))
    assert len(opened.tokens_of(0))
    os.truncate(store / "features.f16", 0)
    os.truncate(store / "tokens.npy", 0)
    for read in (opened.features_of, opened.tokens_of):
        with pytest.raises(DataError, match="cut while it was in use"):
            read(0)
