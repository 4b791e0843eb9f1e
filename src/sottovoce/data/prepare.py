"""Preparing a store: corpus -> manifest -> features, in parallel, resumable, with nothing lost in silence."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sottovoce.data.corpora import AnyCorpus, Synthetic, read_corpus
from sottovoce.data.extract import Chunk, extract
from sottovoce.data.joining import Joining, join_entries
from sottovoce.data.manifest import Manifest, Rejection, build_manifest
from sottovoce.data.preparation_cost import estimate_preparation, estimate_synthetic_preparation
from sottovoce.data.store import INFO, Store, partial_path
from sottovoce.data.writer import (
    REQUEST,
    Journal,
    chunk_key,
    chunk_rejections,
    finish,
    library_versions,
    publish,
    remove_temporaries,
    require_new,
    write_rejected,
)
from sottovoce.errors import DataError
from sottovoce.features.logmel import DESCRIPTION
from sottovoce.files import as_json, folder_bytes, make_folder, only_writer, require_free, write_json
from sottovoce.processes import Progress, map_ordered

CHUNK_ROWS = 16  # small enough that two workers finish together, large enough that handing over costs nothing


@dataclass(frozen=True)
class Request:
    """What to prepare: a corpus, perhaps joined, and how much of it may be unusable."""

    corpus: AnyCorpus
    joining: Joining | None = None
    max_rejected: float = 0.05

    def record(self) -> dict[str, Any]:
        """Return what determines the content of the store, the same from whichever folder it is asked for."""
        paths = {key: value.absolute() for key, value in self.corpus if isinstance(value, Path)}
        corpus = self.corpus.model_copy(update=paths).model_dump(mode="json")
        return {"corpus": corpus, "joining": self.joining.model_dump(mode="json") if self.joining else None}

    def manifest(self, folder: Path, workers: int, progress: Progress) -> Manifest:
        """Read the corpus (a synthetic one is made in `folder` first) and check every row."""
        corpus = read_corpus(self.corpus, folder, workers, progress)
        joining = self.joining
        arrange = (lambda entries: join_entries(entries, joining)) if joining else None
        return build_manifest(corpus, arrange, progress)


def prepare(request: Request, out: Path, workers: int, progress: Progress) -> Store:
    """Make the store `out`, go on with one that was begun, or return one that is there already.

    Guarantees: `out` appears only when it is whole; a killed preparation goes on where it stopped and gives the same
    bytes; an existing store is never overwritten; every utterance of the corpus is in the store or in rejected.tsv.
    """
    if (out / INFO).exists():
        return _already_there(request, out, workers, progress)
    require_new(out)
    # What cannot work is found before anything is written: an unreadable corpus, a missing engine, a small disk.
    request.corpus.check()
    if isinstance(request.corpus, Synthetic):
        manifest, expected = None, estimate_synthetic_preparation(request.corpus)
    else:
        manifest = request.manifest(out, workers, progress)
        expected = estimate_preparation(manifest)
    partial = partial_path(out)
    require_free(out, expected.bytes - folder_bytes(partial))
    make_folder(partial)
    try:
        with only_writer(partial):
            _begin(request, partial)
            manifest = manifest or request.manifest(partial, workers, progress)
            _write_partial(request, manifest, partial, workers, progress)
            return publish(partial, out)
    except OSError as error:
        error.filename = error.filename or str(partial)  # a failed write does not say where
        raise


def _already_there(request: Request, out: Path, workers: int, progress: Progress) -> Store:
    store = Store.open(out)
    if store.info.request != request.record():
        raise DataError(f"{out} was made with other options (see {out / INFO}). Choose another --out or remove it.")
    if not isinstance(request.corpus, Synthetic):  # its options alone determine a synthetic corpus
        found = _manifest_hash(request, request.manifest(out, workers, progress))
        if found != store.info.manifest_hash:
            raise DataError(f"{out} was made before the corpus changed. Choose another --out or remove it.")
    return store


def _begin(request: Request, partial: Path) -> None:
    """Note what is being made and with what, or check that what was begun here is the same."""
    path, begun = partial / REQUEST, request.record() | {"features": DESCRIPTION, "versions": library_versions()}
    if path.exists() and path.read_bytes() != as_json(begun):
        raise DataError(
            f"{partial} was begun with other options or library versions (see {path}). "
            "Choose another --out or remove it."
        )
    write_json(path, begun)
    remove_temporaries(partial)
    (partial / INFO).unlink(missing_ok=True)  # of a preparation that was killed just before the end


def _write_partial(request: Request, manifest: Manifest, partial: Path, workers: int, progress: Progress) -> None:
    table = manifest.table
    limit = _Limit(request.max_rejected, manifest, partial)
    chunks = [table.slice(first, CHUNK_ROWS) for first in range(0, len(table), CHUNK_ROWS)]
    keys = [chunk_key(chunk.to_pylist()) for chunk in chunks]
    with Journal(partial, keys) as journal:
        limit.add(chunk_rejections(table, journal.lines))
        done = min(journal.resumed * CHUNK_ROWS, len(table))
        progress("features", done, len(table))
        tasks = (Chunk(manifest.root, manifest.tokens, chunk.to_pylist()) for chunk in chunks[journal.resumed :])
        for chunk, result in zip(chunks[journal.resumed :], map_ordered(extract, tasks, workers), strict=True):
            journal.append(result)
            done += len(result.samples)
            progress("features", done, len(table))
            limit.add(chunk_rejections(chunk, journal.lines[-1:]))
    finish(partial, manifest, journal.lines, limit.rejected, request.record(), _manifest_hash(request, manifest))


class _Limit:
    """What is rejected; it stops a preparation as soon as that is more than the given share of the corpus."""

    def __init__(self, share: float, manifest: Manifest, partial: Path) -> None:
        self._share, self._partial, self._found = share, partial, manifest.utterances_found
        self.rejected: list[Rejection] = []
        self.add(manifest.rejected)

    def add(self, rejected: list[Rejection]) -> None:
        """Note more of them; raise DataError if they are too many, with all of them listed."""
        self.rejected += rejected
        if len(self.rejected) <= self._share * self._found:
            return
        path = write_rejected(self._partial, self.rejected)
        raise DataError(
            f"{len(self.rejected)} of {self._found} utterances cannot be used, more than --max-rejected "
            f"{self._share:g}. The reasons are in {path}; mend the corpus or allow more, then run this again."
        )


def _manifest_hash(request: Request, manifest: Manifest) -> str:
    """Return the hash of the rows and the sizes and times of their files (a synthetic corpus' times mean nothing)."""
    table = manifest.table.drop_columns(["modified_ns"]) if isinstance(request.corpus, Synthetic) else manifest.table
    hasher = hashlib.sha256()
    for rows in _row_batches(table):
        hasher.update(json.dumps(rows, sort_keys=True).encode())
    return hasher.hexdigest()


def _row_batches(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    for batch in table.to_batches(max_chunksize=10_000):
        yield batch.to_pylist()
