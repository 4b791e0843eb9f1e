"""Writing the files of a store, complete or not at all.

A store is made in the folder STORE.partial. At the end store.json is written and the folder is renamed to STORE, so an
unfinished store cannot be opened.
"""

import importlib.metadata
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile

from sottovoce.data.digests import DigestArray, as_digests, content_digests
from sottovoce.data.extract import OUTPUT_STRIDE
from sottovoce.data.journal import JOURNAL, JournalLine
from sottovoce.data.manifest import BANDWIDTH, BANDWIDTH_LIMIT, SOURCE_RATE, Manifest, Reason, Rejection
from sottovoce.data.store import (
    CONTENT_FILES,
    DIGESTS,
    FORMAT,
    FRAME_OFFSETS,
    INDEX,
    INFO,
    REJECTED,
    SPEAKER_OFFSETS,
    SPEAKERS,
    TOKEN_OFFSETS,
    TOKENS,
    IntArray,
    MergeRecord,
    PreparationRecord,
    Store,
    StoreInfo,
)
from sottovoce.data.store_files import read_table
from sottovoce.data.text import TokenSet
from sottovoce.errors import DataError
from sottovoce.features import logmel
from sottovoce.files import flush_to_disk, sha256_of, write_json, written_whole
from sottovoce.reading import read_bounded
from sottovoce.version import VERSION

REQUEST = "request.json"
_INDEX_GROUP_ROWS = 65_536
_LONGEST_VALUE = 1_000
_LIBRARIES = ("numpy", "soundfile", "soxr", "kaldi-native-fbank", "unidecode", "num2words", "pyarrow")


def write_rejected(folder: Path, rejected: Iterable[Rejection]) -> Path:
    """Write rejected.tsv; tabs and line ends inside a value become spaces."""
    path = folder / REJECTED
    with written_whole(path) as file:
        file.write(b"utterance\tspeaker\treason\tdetail\n")
        for rejection in rejected:
            values = (rejection.utterance, rejection.speaker, rejection.reason, rejection.detail)
            fields = (" ".join(str(value).split())[:_LONGEST_VALUE] for value in values)
            file.write(("\t".join(fields) + "\n").encode(errors="replace"))
    return path


def read_rejected(folder: Path) -> list[Rejection]:
    """Return the rows of rejected.tsv; one that is not as it was written is a DataError with its number."""
    lines = read_bounded(folder / REJECTED).decode(errors="replace").split("\n")[1:-1]
    return [_read_rejection(line, folder / REJECTED, number) for number, line in enumerate(lines, 2)]


def _read_rejection(line: str, path: Path, number: int) -> Rejection:
    try:
        utterance, speaker, reason, detail = line.split("\t")
        return Rejection(utterance, speaker, Reason(reason), detail)
    except ValueError:  # more or fewer fields, or a reason that this version does not know
        raise DataError(f"{path}: row {number} is damaged. Prepare the store again.") from None


def finish(
    folder: Path,
    manifest: Manifest,
    *,
    lines: Iterable[JournalLine],
    rejected: Sequence[Rejection],
    request: PreparationRecord,
    manifest_hash: str,
) -> None:
    """Write all files of a store except the features, which already exist; store.json is the last one."""
    done = list(lines)
    samples = np.array([count for line in done for count in line.samples], dtype=np.int64)
    rates = np.array([rate for line in done for rate in line.source_rates], dtype=np.int32)
    bandwidths = np.array([bandwidth for line in done for bandwidth in line.bandwidths], dtype=np.int32)
    audio = as_digests(bytes.fromhex("".join(line.digests for line in done)))
    used = samples > 0
    table = manifest.table.drop_columns(["bytes", "modified_ns"]).filter(pa.array(used))
    write_rejected(folder, rejected)
    root = (
        os.path.relpath(manifest.root, folder) if _is_inside(manifest.root, folder) else str(manifest.root.absolute())
    )
    table = table.append_column("root", pa.array(np.zeros(len(table), np.int32)))
    table = table.append_column(SOURCE_RATE, pa.array(rates[used])).append_column(BANDWIDTH, pa.array(bandwidths[used]))
    if request.bandwidth_hz is not None:
        limit = np.full(len(table), request.bandwidth_hz, np.int32)
        table = table.append_column(BANDWIDTH_LIMIT, pa.array(limit))
    write_content(folder, table, samples[used], audio, manifest.tokens)
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


def write_content(folder: Path, table: pa.Table, samples: IntArray, audio: DigestArray, tokens: TokenSet) -> None:
    """Write all files of utterances that are sorted by speaker, but for the features, whose digests are `audio`."""
    frames = np.array([logmel.frame_count(int(count)) for count in samples], dtype=np.int64)
    targets = [tokens.encode(text) for text in table["text"].to_pylist()]
    lengths = np.array([target.size for target in targets], dtype=np.int64)
    seconds = samples / logmel.SAMPLE_RATE_HZ
    _write_array(folder / TOKENS, np.concatenate(targets) if targets else np.zeros(0, np.uint8))
    _write_array(folder / FRAME_OFFSETS, _offsets(frames))
    _write_array(folder / TOKEN_OFFSETS, _offsets(lengths))
    write_digests(folder, audio, content_digests(table, targets, samples, audio))
    starts = _speaker_starts(table["speaker"])
    _write_array(folder / SPEAKER_OFFSETS, np.append(starts, len(table)))
    position = table.column_names.index("text") + 1
    for name, values in (("tokens", lengths), ("frames", frames), ("seconds", seconds)):
        table = table.add_column(position, name, pa.array(values))
    _write_parquet(folder / INDEX, table)
    speakers = pa.table(
        {
            "speaker": table["speaker"].take(pa.array(starts)),
            "utterances": np.diff(np.append(starts, len(table))),
            "seconds": np.add.reduceat(seconds, starts) if len(starts) else seconds,
        }
    )
    _write_parquet(folder / SPEAKERS, speakers)


def write_info(
    folder: Path,
    *,
    label: str,
    request: PreparationRecord | MergeRecord,
    roots: Sequence[str],
    tokens: TokenSet,
    rejected: int,
    manifest_hash: str,
) -> None:
    """Write store.json, which makes the folder a store; sizes and hashes come from the files in the folder."""
    files = {name: sha256_of(folder / name) for name in CONTENT_FILES}
    speakers = read_table(folder / SPEAKERS, None)
    frame_offsets = np.load(folder / FRAME_OFFSETS)
    info = StoreInfo(
        format=FORMAT,
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
        sizes={name: (folder / name).stat().st_size for name in CONTENT_FILES},
        hash=StoreInfo.content_hash(tokens.tokens, logmel.DESCRIPTION, files),
    )
    write_json(folder / INFO, info.model_dump(mode="json"))


def publish(folder: Path, out: Path) -> Store:
    """Rename a complete store to its final name, then remove the files that were needed only to resume."""
    Store.open(folder)
    require_new(out)
    folder.rename(out)
    flush_to_disk(out.absolute().parent)
    for name in (JOURNAL, REQUEST):
        (out / name).unlink(missing_ok=True)
    return Store.open(out)


def require_new(out: Path) -> None:
    """Raise DataError unless a store can get this name: it does not exist yet, or is an empty folder."""
    if out.is_symlink():
        raise DataError(f"{out} is a link. Give the folder itself as --out.")
    if not out.exists():
        return
    if not out.is_dir() or any(out.iterdir()):
        raise DataError(f"{out} exists and is not an empty folder. Choose another --out.")
    if out.is_mount() or out.samefile(Path()):
        raise DataError(f"{out} cannot be replaced by a store. Give a folder inside it as --out.")


def remove_temporaries(folder: Path) -> None:
    """Remove temporary files that a killed process left behind."""
    for path in folder.glob(".*.tmp"):
        path.unlink()


def library_versions() -> dict[str, str]:
    """Return the versions of all libraries that influence the bytes of a store."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"sottovoce": VERSION, "libsndfile": soundfile.__libsndfile_version__} | versions


def _offsets(lengths: IntArray) -> IntArray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _speaker_starts(speakers: pa.ChunkedArray) -> IntArray:
    """Return the first row of every speaker."""
    codes = speakers.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.flatnonzero(np.diff(codes, prepend=-1)).astype(np.int64)


def write_digests(folder: Path, audio: DigestArray, content: DigestArray) -> None:
    """Write the digests of all utterances."""
    _write_array(folder / DIGESTS, np.stack([audio, content], axis=1))


def _write_array(path: Path, array: npt.NDArray[Any]) -> None:
    with written_whole(path) as file:
        np.save(file, array)


def _write_parquet(path: Path, table: pa.Table) -> None:
    with written_whole(path) as file:
        pq.write_table(table, file, row_group_size=_INDEX_GROUP_ROWS, compression="zstd")
