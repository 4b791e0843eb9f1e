"""Preparing a store: corpus -> manifest -> features, in parallel, resumable, with nothing lost in silence."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sottovoce.data.corpora import AnyCorpus, Synthetic, read_corpus
from sottovoce.data.estimate import estimate, estimate_synthetic
from sottovoce.data.extract import Chunk, extract
from sottovoce.data.joining import Joining, join_entries
from sottovoce.data.manifest import Manifest, build_manifest
from sottovoce.data.store import INFO, Store, partial_path
from sottovoce.data.writer import Journal, chunk_key, chunk_rejections, finish, publish, write_rejected
from sottovoce.errors import DataError
from sottovoce.files import make_folder, only_writer, require_free, write_json
from sottovoce.processes import Progress, map_ordered
from sottovoce.version import VERSION

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
    if out.exists() and (out / INFO).exists():
        return _already_there(request, out, workers, progress)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} exists and is not a store. Choose another --out.")
    # What cannot work is found before anything is written: an unreadable corpus, a missing engine, a small disk.
    request.corpus.check()
    if isinstance(request.corpus, Synthetic):
        manifest, expected = None, estimate_synthetic(request.corpus)
    else:
        manifest = request.manifest(out, workers, progress)
        expected = estimate(manifest)
    partial = partial_path(out)
    if not partial.exists():
        require_free(out, expected.bytes)
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
        found = _table_hash(request.manifest(out, workers, progress).table)
        if found != store.info.manifest_hash:
            raise DataError(f"{out} was made before the corpus changed. Choose another --out or remove it.")
    return store


def _begin(request: Request, partial: Path) -> None:
    """Note what is being made, or check that what was begun here is the same."""
    path, begun = partial / "request.json", request.record() | {"sottovoce": VERSION}
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != begun:
        raise DataError(f"{partial} was begun with other options (see {path}). Choose another --out or remove it.")
    write_json(path, begun)


def _write_partial(request: Request, manifest: Manifest, partial: Path, workers: int, progress: Progress) -> None:
    table = manifest.table
    _stop_if_too_many(request, manifest, len(manifest.rejected), partial, [])
    chunks = [table.slice(first, CHUNK_ROWS) for first in range(0, len(table), CHUNK_ROWS)]
    keys = [chunk_key(chunk.to_pylist()) for chunk in chunks]
    with Journal(partial, keys) as journal:
        done = min(journal.resumed * CHUNK_ROWS, len(table))
        progress("features", done, len(table))
        tasks = (Chunk(manifest.root, manifest.tokens, chunk.to_pylist()) for chunk in chunks[journal.resumed :])
        for result in map_ordered(extract, tasks, workers):
            journal.append(result)
            done += len(result.samples)
            progress("features", done, len(table))
            rejected = len(manifest.rejected) + journal.rejected
            _stop_if_too_many(request, manifest, rejected, partial, journal.lines)
    finish(partial, manifest, journal.lines, request.record(), _table_hash(table))
    (partial / "request.json").unlink()


def _stop_if_too_many(
    request: Request, manifest: Manifest, rejected: int, partial: Path, lines: list[dict[str, Any]]
) -> None:
    """Raise DataError as soon as more than the given share is unusable; what was found is listed."""
    if rejected <= request.max_rejected * manifest.utterances_found:
        return
    path = write_rejected(partial, [*manifest.rejected, *chunk_rejections(manifest.table, lines)])
    raise DataError(
        f"{rejected} of {manifest.utterances_found} utterances cannot be used, more than --max-rejected "
        f"{request.max_rejected:g}. The reasons are in {path}; mend the corpus or allow more, then run this again."
    )


def _table_hash(table: pa.Table) -> str:
    """Return the hash of the rows, without the times of their files."""
    hasher = hashlib.sha256()
    for rows in _row_batches(table.drop_columns(["modified_ns"])):
        hasher.update(json.dumps(rows, sort_keys=True).encode())
    return hasher.hexdigest()


def _row_batches(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    for batch in table.to_batches(max_chunksize=10_000):
        yield batch.to_pylist()
