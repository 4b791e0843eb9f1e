"""Preparation of a store from a corpus.

The manifest lists and checks every utterance; worker processes extract the features, chunk by chunk; one process writes
them in order. An interrupted preparation resumes. Every utterance that cannot be used is listed with its reason.
"""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from sottovoce.data.corpora import AnyCorpus, Synthetic, read_corpus
from sottovoce.data.extract import Chunk, extract
from sottovoce.data.joining import Joining, join_entries
from sottovoce.data.journal import JOURNAL, Journal, chunk_key, rejections_of
from sottovoce.data.manifest import Manifest, Rejection, build_manifest
from sottovoce.data.preparation_cost import estimate_preparation, estimate_synthetic_preparation
from sottovoce.data.spelling import REJECT, UnknownLetters
from sottovoce.data.store import INFO, REJECTED, PreparationRecord, Store, partial_path
from sottovoce.data.writer import (
    REQUEST,
    finish,
    library_versions,
    publish,
    remove_temporaries,
    require_new,
    write_rejected,
)
from sottovoce.errors import ConfigError, DataError
from sottovoce.features.bandwidth import FULL_HZ, LEAST_HZ
from sottovoce.features.logmel import DESCRIPTION
from sottovoce.files import as_json, folder_bytes, make_folder, only_writer, require_free, write_json
from sottovoce.processes import Progress, leave_if_unguarded, map_ordered, no_progress
from sottovoce.reading import read_bounded

CHUNK_ROWS = 16  # small enough that all workers finish at about the same time, large enough to hand over cheaply
MAX_REJECTED = 0.05
_HASHED_ROWS = 10_000  # at a time; part of the hash


class _StartRecord(PreparationRecord):
    """The content of request.json: everything that must stay the same when an unfinished store is resumed."""

    features: dict[str, JsonValue]
    versions: dict[str, str]


@dataclass(frozen=True)
class Request:
    """The corpus to prepare, how its utterances are joined, ...: all that determines the content of a store."""

    corpus: AnyCorpus
    joining: Joining | None = None
    unknown_letters: UnknownLetters = REJECT
    bandwidth_hz: int | None = None

    def record(self) -> PreparationRecord:
        """Return the request as store.json keeps it: paths are absolute, so the working folder does not matter."""
        paths = {key: value.absolute() for key, value in self.corpus if isinstance(value, Path)}
        corpus = self.corpus.model_copy(update=paths).model_dump(mode="json")
        joining = self.joining and self.joining.model_dump(mode="json")
        return PreparationRecord(
            corpus=corpus, joining=joining, unknown_letters=self.unknown_letters, bandwidth_hz=self.bandwidth_hz
        )

    @property
    def hash(self) -> str:
        """The SHA-256 of the record. Options at their defaults are left out, so that new ones change no hash."""
        record = json.dumps(self.record().model_dump(mode="json", exclude_defaults=True), sort_keys=True)
        return hashlib.sha256(record.encode()).hexdigest()

    def manifest(self, folder: Path, *, workers: int, progress: Progress) -> Manifest:
        """Read the corpus and check every utterance; a synthetic corpus is generated in `folder` first."""
        corpus = read_corpus(self.corpus, folder, workers=workers, progress=progress)
        joining = self.joining
        arrange = (lambda entries: join_entries(entries, joining)) if joining else None
        return build_manifest(corpus, arrange, progress, self.unknown_letters)


def require_bandwidth(bandwidth_hz: int | None) -> None:
    """Raise ConfigError where audio cannot be limited to this bandwidth."""
    if bandwidth_hz is not None and not LEAST_HZ <= bandwidth_hz < FULL_HZ:
        raise ConfigError(f"Expected a bandwidth from {LEAST_HZ:g} to less than {FULL_HZ} Hz, not {bandwidth_hz}.")


def prepare(
    corpus: AnyCorpus,
    out: Path | str,
    *,
    joining: Joining | None = None,
    unknown_letters: UnknownLetters = REJECT,
    bandwidth_hz: int | None = None,
    max_rejected: float = MAX_REJECTED,
    workers: int = 1,
    progress: Progress = no_progress,
) -> Store:
    """Prepare the store `out` from a corpus, with `workers` processes.

    A script with more than one worker calls this below `if __name__ == "__main__":`.

    Guarantees: `out` appears only when it is complete; an interrupted preparation resumes where it stopped and gives
    the same bytes; an existing store is never overwritten, and is returned if it was made from the same corpus with
    the same options; every utterance of the corpus is in the store or in rejected.tsv. If more than the share
    `max_rejected` of the utterances is unusable, the preparation stops with an error. `unknown_letters="keep"`, for
    test sets, rejects no utterance for the characters of its text (see `spelling`). `bandwidth_hz` limits the audio, as
    if it had been recorded at twice that rate.

    Example:
        store = prepare(LibriSpeech(root=Path("LibriSpeech"), subset=("LS-100",)), "stores/ls-100")
    """
    leave_if_unguarded(workers)
    require_bandwidth(bandwidth_hz)
    request, out = Request(corpus, joining, unknown_letters, bandwidth_hz), Path(out)
    if (out / INFO).exists():
        return _existing_store(request, out, workers, progress)
    require_new(out)
    # An unreadable corpus, a missing speech engine or a full disk is noticed before anything is written.
    corpus.check()
    if isinstance(corpus, Synthetic):
        manifest, expected = None, estimate_synthetic_preparation(corpus)
    else:
        manifest = request.manifest(out, workers=workers, progress=progress)
        expected = estimate_preparation(manifest)
    partial = partial_path(out)
    require_free(out, expected.bytes - folder_bytes(partial))
    make_folder(partial)
    try:
        with only_writer(partial):
            _begin(request, partial)
            manifest = manifest or request.manifest(partial, workers=workers, progress=progress)
            limit = _RejectionLimit(max_rejected, manifest, partial)
            _write_partial(request, manifest, partial, limit=limit, workers=workers, progress=progress)
            return publish(partial, out)
    except OSError as error:
        error.filename = error.filename or str(partial)  # a failed write does not name its file
        raise


def _existing_store(request: Request, out: Path, workers: int, progress: Progress) -> Store:
    """Return the store if it was made from this request and the corpus has not changed since."""
    store = Store.open(out)
    if store.info.request != request.record():
        raise DataError(f"{out} was made with other options (see {out / INFO}). Choose another --out or remove it.")
    if not isinstance(request.corpus, Synthetic):  # a synthetic corpus depends on its options alone
        manifest = request.manifest(out, workers=workers, progress=progress)
        if _manifest_hash(request, manifest) != store.info.manifest_hash:
            raise DataError(f"{out} was made before the corpus changed. Choose another --out or remove it.")
    return store


def _begin(request: Request, partial: Path) -> None:
    """Record the request and the library versions, or check that an unfinished store has the same ones."""
    record = _StartRecord(**dict(request.record()), features=DESCRIPTION, versions=library_versions())
    path, start = partial / REQUEST, record.model_dump(mode="json")
    remove_temporaries(partial)
    if path.exists() and read_bounded(path) != as_json(start):
        if _holds_work(partial):
            raise DataError(
                f"{partial} holds the work of a preparation with other options or library versions (see {path}). "
                "Remove that folder, or choose another --out."
            )
        for name in (JOURNAL, REJECTED):
            (partial / name).unlink(missing_ok=True)
    write_json(path, start)
    (partial / INFO).unlink(missing_ok=True)  # left by a preparation that was killed just before the end


def _holds_work(partial: Path) -> bool:
    """Return whether an unfinished store has features or generated audio, rather than rejected utterances alone."""
    others = (path for path in partial.rglob("*") if path.name not in (REQUEST, JOURNAL, REJECTED))
    return any(path.is_file() and path.stat().st_size for path in others)


def _write_partial(
    request: Request,
    manifest: Manifest,
    partial: Path,
    *,
    limit: "_RejectionLimit",
    workers: int,
    progress: Progress,
) -> None:
    """Extract the features of all chunks that are not in the journal yet, and write the other files of the store."""
    table = manifest.table
    chunks = [table.slice(first, CHUNK_ROWS) for first in range(0, len(table), CHUNK_ROWS)]
    keys = [chunk_key(chunk.to_pylist()) for chunk in chunks]
    with Journal(partial, keys) as journal:
        limit.add(rejections_of(table, journal.lines))
        done = min(journal.resumed * CHUNK_ROWS, len(table))
        progress("features", done, len(table))
        tasks = (
            Chunk(manifest.root, manifest.tokens, chunk.to_pylist(), request.bandwidth_hz)
            for chunk in chunks[journal.resumed :]
        )
        for chunk, result in zip(chunks[journal.resumed :], map_ordered(extract, tasks, workers), strict=True):
            journal.append(result)
            done += len(result.samples)
            progress("features", done, len(table))
            limit.add(rejections_of(chunk, journal.lines[-1:]))
    finish(
        partial,
        manifest,
        lines=journal.lines,
        rejected=limit.rejected,
        request=request.record(),
        manifest_hash=_manifest_hash(request, manifest),
    )


class _RejectionLimit:
    """Collects rejections and stops the preparation when they exceed a share of the corpus."""

    def __init__(self, share: float, manifest: Manifest, partial: Path) -> None:
        self._share, self._partial, self._total = share, partial, manifest.corpus_utterances
        self.rejected: list[Rejection] = []
        self.add(manifest.rejected)

    def add(self, rejected: list[Rejection]) -> None:
        """Add rejections; raise DataError if there are too many, after listing all of them in rejected.tsv."""
        self.rejected += rejected
        if len(self.rejected) <= self._share * self._total:
            return
        path = write_rejected(self._partial, self.rejected)
        reason, count = Counter(one.reason for one in self.rejected).most_common(1)[0]
        detail = next(one.detail for one in self.rejected if one.reason == reason)
        example = f", such as {detail[:80]}" if detail else ""
        raise DataError(
            f"{len(self.rejected):,} of {self._total:,} utterances cannot be used, more than --max-rejected "
            f"{self._share:g}. Most often: {reason}{example} ({count:,}). All reasons are in {path}; repair the corpus "
            "or allow more, then run this again."
        )


def _manifest_hash(request: Request, manifest: Manifest) -> str:
    """Return the hash of the rows, with the sizes and times of their files (no times for a synthetic corpus)."""
    table = manifest.table.drop_columns(["modified_ns"]) if isinstance(request.corpus, Synthetic) else manifest.table
    hasher = hashlib.sha256()
    for rows in table.to_batches(max_chunksize=_HASHED_ROWS):
        hasher.update(json.dumps(rows.to_pylist(), sort_keys=True).encode())
    return hasher.hexdigest()
