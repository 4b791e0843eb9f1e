"""Writing a store: append-only, resumable after a kill, whole or not at all.

A store is made in STORE.partial. Features are appended to one file in the order of the manifest; a journal gets one
line per chunk only after the chunk's features are on disk. After a kill the journal's whole lines say how far the
work came: the feature file is cut there and the work goes on. A line counts only while its key (a hash of the chunk's
rows, with the sizes and times of their files) is still the right one. At the end store.json is written and the folder
renamed to STORE, so that an unfinished store can never be opened.
"""

import hashlib
import importlib.metadata
import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile

from sottovoce.data import store as names
from sottovoce.data.extract import OUTPUT_STRIDE, Extracted
from sottovoce.data.manifest import Manifest, Reason, Rejection
from sottovoce.data.store import Store, StoreInfo
from sottovoce.data.text import TokenSet
from sottovoce.errors import DataError
from sottovoce.features import logmel
from sottovoce.files import sha256_of, sync_folder, write_json, written_whole
from sottovoce.version import VERSION

JOURNAL = "journal.jsonl"
REQUEST = "request.json"
_COMMIT_SECONDS = 1.0
_INDEX_GROUP_ROWS = 65_536
_LONGEST_VALUE = 1_000
_LIBRARIES = ("numpy", "soundfile", "soxr", "kaldi-native-fbank", "unidecode", "pyarrow")


class Journal:
    """The features and the journal of an unfinished store."""

    def __init__(self, folder: Path, keys: Sequence[str]) -> None:
        """Take up the work where it stopped: keep the chunks that are journalled under their right keys."""
        self._keys = keys
        features = folder / names.FEATURES
        size = features.stat().st_size if features.exists() else 0
        self.lines, vouched = _kept_lines(folder / JOURNAL, keys, size)
        self.resumed = len(self.lines)
        self._features = _reopened(features, vouched)
        self._journal = _rewritten(folder / JOURNAL, self.lines)
        self._committed = len(self.lines)
        self._last_commit = time.monotonic()

    def append(self, chunk: Extracted) -> None:
        """Add the next chunk."""
        self._features.write(chunk.features)
        rejected = [[place, reason, detail] for place, (reason, detail) in chunk.rejected.items()]
        self.lines.append({"key": self._keys[len(self.lines)], "samples": chunk.samples, "rejected": rejected})
        if time.monotonic() - self._last_commit > _COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Put features on disk first, then the journal lines that vouch for them."""
        _to_disk(self._features)
        for line in self.lines[self._committed :]:
            self._journal.write(_line(line))
        _to_disk(self._journal)
        self._committed = len(self.lines)
        self._last_commit = time.monotonic()

    def close(self) -> None:
        """Commit and close the files."""
        self.commit()
        self._features.close()
        self._journal.close()

    def __enter__(self) -> "Journal":
        """Use as a context: closed however the block ends."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Keep what is complete, also when the block raised."""
        self.close()


def chunk_key(rows: Sequence[dict[str, Any]]) -> str:
    """Return the hash that says whether a chunk of rows is still the same."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _kept_lines(path: Path, keys: Sequence[str], available: int) -> tuple[list[dict[str, Any]], int]:
    """Return the journal's lines up to the first that is torn, belongs to other rows or lacks its features.

    The second value is how many bytes of features these lines vouch for.
    """
    lines: list[dict[str, Any]] = []
    vouched = 0
    if not path.exists():
        return lines, vouched
    for key, text in zip(keys, path.read_bytes().split(b"\n")[:-1], strict=False):
        try:
            line = json.loads(text)
        except ValueError:
            break
        size = sum(logmel.frame_count(samples) for samples in line["samples"]) * names.BYTES_PER_FRAME
        if line["key"] != key or vouched + size > available:
            break
        lines.append(line)
        vouched += size
    return lines, vouched


def _reopened(path: Path, size: int) -> IO[bytes]:
    file = path.open("r+b" if path.exists() else "w+b")
    file.truncate(size)
    file.seek(size)
    return file


def _rewritten(path: Path, lines: Iterable[dict[str, Any]]) -> IO[bytes]:
    with written_whole(path) as file:
        for line in lines:
            file.write(_line(line))
    return path.open("ab")


def _line(line: dict[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def write_rejected(folder: Path, rejected: Iterable[Rejection]) -> Path:
    """Write rejected.tsv; tabs and line ends inside a value become spaces."""
    path = folder / names.REJECTED
    with written_whole(path) as file:
        file.write(b"utterance\tspeaker\treason\tdetail\n")
        for one in rejected:
            values = (one.utterance, one.speaker, one.reason, one.detail)
            fields = (" ".join(str(value).split())[:_LONGEST_VALUE] for value in values)
            file.write(("\t".join(fields) + "\n").encode(errors="replace"))
    return path


def read_rejected(folder: Path) -> list[Rejection]:
    """Return what rejected.tsv lists."""
    lines = (folder / names.REJECTED).read_text(encoding="utf-8", errors="replace").split("\n")[1:-1]
    rows = [line.split("\t") for line in lines]
    return [Rejection(row[0], row[1], Reason(row[2]), row[3]) for row in rows]


def chunk_rejections(table: pa.Table, lines: Sequence[dict[str, Any]]) -> list[Rejection]:
    """Return the rejections of the journal's chunks by the ids of the corpus: all parts of a joined utterance."""
    found: list[Rejection] = []
    first = 0
    for line in lines:
        for place, reason, detail in line["rejected"]:
            row = table.slice(first + place, 1).select(["utterance", "speaker", "parts"]).to_pylist()[0]
            where = f"in {row['utterance']}: {detail}" if row["parts"] else detail
            for utterance in row["parts"] or [row["utterance"]]:
                found.append(Rejection(utterance, row["speaker"], Reason(reason), where))
        first += len(line["samples"])
    return found


def finish(
    folder: Path,
    manifest: Manifest,
    lines: Sequence[dict[str, Any]],
    rejected: Sequence[Rejection],
    request: dict[str, Any],
    manifest_hash: str,
) -> None:
    """Write everything but the features, which are there, and store.json last."""
    samples = np.array([count for line in lines for count in line["samples"]], dtype=np.int64)
    used = samples > 0
    table = manifest.table.drop_columns(["bytes", "modified_ns"]).filter(pa.array(used))
    write_rejected(folder, rejected)
    root = (
        os.path.relpath(manifest.root, folder) if _is_inside(manifest.root, folder) else str(manifest.root.absolute())
    )
    write_content(
        folder, table.append_column("root", pa.array(np.zeros(len(table), np.int32))), samples[used], manifest.tokens
    )
    write_info(
        folder,
        label=manifest.label,
        request=request,
        roots=[root],
        tokens=manifest.tokens,
        rejected=len(rejected),
        manifest_hash=manifest_hash,
    )


def _is_inside(path: Path, folder: Path) -> bool:
    return path.absolute().is_relative_to(folder.absolute())


def write_content(folder: Path, table: pa.Table, samples: npt.NDArray[np.int64], tokens: TokenSet) -> None:
    """Write index, speakers, targets and offsets of utterances sorted by speaker."""
    frames = np.array([logmel.frame_count(int(count)) for count in samples], dtype=np.int64)
    targets = [tokens.encode(text) for text in table["text"].to_pylist()]
    lengths = np.array([target.size for target in targets], dtype=np.int64)
    seconds = samples / logmel.SAMPLE_RATE_HZ
    _write_array(folder / names.TOKENS, np.concatenate(targets) if targets else np.zeros(0, np.uint8))
    _write_array(folder / names.FRAME_OFFSETS, _offsets(frames))
    _write_array(folder / names.TOKEN_OFFSETS, _offsets(lengths))
    starts = _speaker_starts(table["speaker"])
    _write_array(folder / names.SPEAKER_OFFSETS, np.append(starts, len(table)))
    position = table.column_names.index("text") + 1
    for name, values in (("tokens", lengths), ("frames", frames), ("seconds", seconds)):
        table = table.add_column(position, name, pa.array(values))
    _write_parquet(folder / names.INDEX, table)
    speakers = pa.table(
        {
            "speaker": table["speaker"].take(pa.array(starts)),
            "utterances": np.diff(np.append(starts, len(table))),
            "seconds": np.add.reduceat(seconds, starts) if len(starts) else seconds,
        }
    )
    _write_parquet(folder / names.SPEAKERS, speakers)


def write_info(
    folder: Path,
    *,
    label: str,
    request: dict[str, Any],
    roots: list[str],
    tokens: TokenSet,
    rejected: int,
    manifest_hash: str,
) -> None:
    """Write store.json from what the folder holds, which makes it a store."""
    files = {name: sha256_of(folder / name) for name in names.CONTENT_FILES}
    speakers = pq.read_table(folder / names.SPEAKERS)
    frame_offsets = np.load(folder / names.FRAME_OFFSETS, mmap_mode="r")
    info = StoreInfo(
        format=names.FORMAT,
        label=label,
        request=request,
        roots=tuple(roots),
        languages=tokens.languages,
        tokens=tokens.tokens,
        features=logmel.DESCRIPTION,
        output_stride=OUTPUT_STRIDE,
        utterances=len(frame_offsets) - 1,
        speakers=len(speakers),
        frames=int(frame_offsets[-1]),
        seconds=float(np.sum(speakers["seconds"].to_numpy())),
        rejected=rejected,
        manifest_hash=manifest_hash,
        versions=library_versions(),
        files=files,
        hash=StoreInfo.content_hash(tokens.tokens, logmel.DESCRIPTION, files),
    )
    write_json(folder / names.INFO, info.model_dump(mode="json"))


def publish(folder: Path, out: Path) -> Store:
    """Give a whole store its name; what was needed to go on after a kill is removed only after that."""
    Store.open(folder)
    require_new(out)
    folder.rename(out)
    sync_folder(out.absolute().parent)
    for name in (JOURNAL, REQUEST):
        (out / name).unlink(missing_ok=True)
    return Store.open(out)


def require_new(out: Path) -> None:
    """Raise DataError unless a store can get this name: nothing is there, or an empty folder of its own."""
    if out.is_symlink():
        raise DataError(f"{out} is a link. Give the folder itself as --out.")
    if not out.exists():
        return
    if not out.is_dir() or any(out.iterdir()):
        raise DataError(f"{out} exists and is not an empty folder. Choose another --out.")
    if out.is_mount() or out.samefile(Path()):
        raise DataError(f"{out} cannot be replaced by a store. Give a folder inside it as --out.")


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed writer left behind."""
    for path in folder.glob(".*.tmp"):
        path.unlink()


def library_versions() -> dict[str, str]:
    """Return the versions of all that decides a store's bytes."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"sottovoce": VERSION, "libsndfile": soundfile.__libsndfile_version__} | versions


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _speaker_starts(speakers: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the first row of every speaker."""
    codes = speakers.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.flatnonzero(np.diff(codes, prepend=-1)).astype(np.int64)


def _write_array(path: Path, array: npt.NDArray[Any]) -> None:
    with written_whole(path) as file:
        np.save(file, array)


def _write_parquet(path: Path, table: pa.Table) -> None:
    with written_whole(path) as file:
        pq.write_table(table, file, row_group_size=_INDEX_GROUP_ROWS, compression="zstd")
