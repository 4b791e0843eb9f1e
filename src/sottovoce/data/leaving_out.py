"""A store without some of its speakers, as preparing the corpus without them would have made it."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.data.manifest import FULL_REFERENCE
from sottovoce.data.merging import copy_features
from sottovoce.data.store import FEATURES, Store, partial_path
from sottovoce.data.writer import publish, read_rejected, require_new, write_content, write_info, write_rejected
from sottovoce.features.logmel import SAMPLE_RATE_HZ
from sottovoce.files import make_folder, only_writer, require_free
from sottovoce.processes import Progress, no_progress


def leave_out(store: Store, speakers: Collection[str], out: Path, progress: Progress = no_progress) -> Store:
    """Write the store `out` with everything of `store` but these speakers; a name that is not in it is an error.

    Its content, and the hash of it, are those of a store that was prepared from the corpus without them.

    Example: `leave_out(Store.open("stores/digits"), ["07"], Path("stores/digits-without-07"))`
    """
    store.speaker_numbers(speakers)
    require_new(out)
    require_free(out, (store.path / FEATURES).stat().st_size)
    partial = partial_path(out)
    make_folder(partial)
    with only_writer(partial):
        index = store.index()
        rows = np.flatnonzero(pc.invert(pc.is_in(index["speaker"], pa.array(speakers, pa.string()))).to_numpy())
        table = _as_prepared(index.take(pa.array(rows)))
        places = table.append_column("store", pa.array(np.zeros(len(rows), np.int64)))
        copy_features([store], places.append_column("row", pa.array(rows)), partial / FEATURES, progress)
        rejected = [rejection for rejection in read_rejected(store.path) if rejection.speaker not in speakers]
        write_rejected(partial, rejected)
        samples = np.rint(table["seconds"].to_numpy() * SAMPLE_RATE_HZ).astype(np.int64)
        write_content(
            partial,
            table.drop_columns(["tokens", "frames", "seconds"]),
            samples,
            store.audio_digests[rows],
            store.token_set,
        )
        write_info(
            partial,
            label=store.info.label,
            request=store.info.request,
            roots=[str(store.root_of(root)) for root in range(len(store.info.roots))],
            tokens=store.token_set,
            rejected=len(rejected),
            manifest_hash="",
        )
        return publish(partial, out)


def _as_prepared(table: pa.Table) -> pa.Table:
    """Return the table with the types it had when it was written: Parquet gives the elements of lists another name.

    The column of full references is dropped where nobody who is left needs it.
    """
    if FULL_REFERENCE in table.column_names and table[FULL_REFERENCE].null_count == len(table):
        table = table.drop_columns([FULL_REFERENCE])
    types = [pa.list_(field.type.value_type) if pa.types.is_list(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, types, strict=True))))
