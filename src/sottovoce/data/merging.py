"""Merging several stores into one, complete or not at all.

A speaker's name that occurs in two stores may stand for one person or for two. Treating one person as two users would
void their privacy guarantee; treating two people as one would give them a common user. The caller therefore has to say
which it is: `same_speakers` makes equal names one user, `prefix` keeps them apart by adding each store's label to its
names.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.data.digests import DIGEST_BYTES, DigestArray
from sottovoce.data.store import BYTES_PER_FRAME, FEATURES, MergeRecord, Store, partial_path
from sottovoce.data.writer import (
    REQUEST,
    publish,
    read_rejected,
    remove_temporaries,
    write_content,
    write_info,
    write_rejected,
)
from sottovoce.errors import DataError
from sottovoce.features.logmel import SAMPLE_RATE_HZ
from sottovoce.files import make_folder, only_writer, require_free, written_whole
from sottovoce.processes import Progress, no_progress

_COPY_FRAMES = 1 << 16


def merge(
    stores: Sequence[Store],
    out: Path | str,
    *,
    same_speakers: bool = False,
    prefix: bool = False,
    label: str | None = None,
    progress: Progress = no_progress,
) -> Store:
    """Merge stores with the same tokens and features into the store `out`.

    Without `same_speakers` and `prefix`, a name that occurs in two stores is an error. The label is by default the
    stores' labels joined by "+".

    Example:
        store = merge([Store.open("stores/ls-360"), Store.open("stores/ls-500")], "stores/ls-860")
    """
    out = Path(out)
    _require_mergeable(stores, out)
    table = _joined_index(stores, prefix)
    if not same_speakers:
        _refuse_common_speakers(table)
    _refuse_duplicates(table)
    require_free(out, merged_bytes(stores))
    partial = partial_path(out)
    make_folder(partial)
    with only_writer(partial):
        remove_temporaries(partial)
        table = table.sort_by([("speaker", "ascending"), ("utterance", "ascending")])
        copy_features(stores, table, partial / FEATURES, progress)
        samples = np.rint(table["seconds"].to_numpy() * SAMPLE_RATE_HZ).astype(np.int64)
        content = table.drop_columns(["store", "row", "tokens", "frames", "seconds"])
        rejected = [rejection for store in stores for rejection in read_rejected(store.path)]
        write_rejected(partial, rejected)
        write_content(partial, content, samples, _audio_digests(stores, table), stores[0].token_set)
        write_info(
            partial,
            label=label or "+".join(store.info.label for store in stores),
            request=MergeRecord(
                merged=tuple(store.info.hash for store in stores), same_speakers=same_speakers, prefix=prefix
            ),
            roots=[str(store.root_of(root)) for store in stores for root in range(len(store.info.roots))],
            tokens=stores[0].token_set,
            rejected=len(rejected),
            manifest_hash="",
        )
        return publish(partial, out)


def merged_bytes(stores: Sequence[Store]) -> float:
    """Return the size of the merged store, with a margin for its index."""
    return 1.05 * sum(store.info.frames for store in stores) * BYTES_PER_FRAME


def _require_mergeable(stores: Sequence[Store], out: Path) -> None:
    if len(stores) < 2:
        raise DataError("Merging needs at least two stores. Give another one.")
    if out.exists():
        raise DataError(f"{out} exists. Choose another --out.")
    if (partial_path(out) / REQUEST).exists():
        raise DataError(
            f"{partial_path(out)} is an unfinished preparation. Finish it, remove it or choose another --out."
        )
    if not any(len(store) for store in stores):
        raise DataError("The stores contain no utterances. There is nothing to merge.")
    first = stores[0]
    for store in stores[1:]:
        if store.info.tokens != first.info.tokens:
            raise DataError(
                f"{store.path} ({'+'.join(store.info.languages)}) and {first.path} ({'+'.join(first.info.languages)}) "
                "have different token sets. Only stores of the same languages can be merged."
            )
        if store.info.features != first.info.features:
            raise DataError(f"{store.path} and {first.path} have different features. Prepare one of them again.")


def _joined_index(stores: Sequence[Store], prefix: bool) -> pa.Table:
    """Return the rows of all stores, each with the number of its store, its row there and its root in the new list."""
    tables = []
    roots = 0
    labels = _labels(stores)
    for number, store in enumerate(stores):
        table = store.index()
        table = table.append_column("store", pa.array(np.full(len(table), number, np.int64)))
        table = table.append_column("row", pa.array(np.arange(len(table), dtype=np.int64)))
        table = _replaced(table, "root", pc.cast(pc.add(table["root"], roots), pa.int32()))
        if prefix:
            for name in ("speaker", "utterance"):
                table = _replaced(table, name, pc.binary_join_element_wise(f"{labels[number]}:", table[name], ""))
        roots += len(store.info.roots)
        tables.append(table)
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _labels(stores: Sequence[Store]) -> list[str]:
    """Return a different name for every store: its label or, if two labels are equal, its folder."""
    labels = [store.info.label for store in stores]
    if len(set(labels)) < len(labels):
        labels = [store.path.absolute().name for store in stores]
    if len(set(labels)) < len(labels):
        labels = [str(store.path.absolute()) for store in stores]
    return labels


def _replaced(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _refuse_common_speakers(table: pa.Table) -> None:
    pairs = table.group_by(["speaker", "store"]).aggregate([])
    names, counts = np.unique(pairs["speaker"].to_numpy(zero_copy_only=False), return_counts=True)
    if (common := names[counts > 1]).size:
        raise DataError(
            f"{len(common)} speakers, such as {common[0]!r}, are in more than one store. "
            "Use --same-speakers if they are the same people, or --prefix to keep them apart."
        )


def _refuse_duplicates(table: pa.Table) -> None:
    counts = table.group_by(["speaker", "utterance"]).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1))
    if len(twice):
        name = twice["utterance"][0].as_py()
        raise DataError(f"{len(twice)} utterances, such as {name!r}, are in more than one store. Use --prefix.")


def _audio_digests(stores: Sequence[Store], table: pa.Table) -> DigestArray:
    """Return the digests that the stores hold of the table's audio."""
    source, rows = table["store"].to_numpy(), table["row"].to_numpy()
    digests = np.zeros((len(table), DIGEST_BYTES), np.uint8)
    for number, store in enumerate(stores):
        own = source == number
        digests[own] = store.audio_digests[rows[own]]
    return digests


def copy_features(stores: Sequence[Store], table: pa.Table, path: Path, progress: Progress) -> None:
    """Copy the frames in the order of the table, one run of contiguous rows at a time."""
    source = table["store"].to_numpy()
    rows = table["row"].to_numpy()
    breaks = np.flatnonzero((np.diff(source) != 0) | (np.diff(rows) != 1)) + 1
    starts = np.concatenate([np.zeros(1, np.int64), breaks])
    ends = np.append(breaks, len(table))
    with written_whole(path) as file:
        for first, last in zip(starts, ends, strict=True):
            store = stores[int(source[first])]
            begin, end = int(store.frame_offsets[rows[first]]), int(store.frame_offsets[rows[last - 1] + 1])
            for frame in range(begin, end, _COPY_FRAMES):
                file.write(store.frames(frame, min(frame + _COPY_FRAMES, end)).tobytes())
            progress("features", int(last), len(table))
