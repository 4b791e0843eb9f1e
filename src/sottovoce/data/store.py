"""A store: the features and CTC targets of a corpus, read in ranges, with an index for people.

    store.json            where the store comes from; written last, so it exists only in a complete store
    features.f16          float16 (frames, 80), all utterances one after another, row-major, no header
    tokens.npy            uint8, the CTC targets of all utterances one after another
    frame_offsets.npy     int64 (utterances + 1): utterance i has the frames offsets[i] to offsets[i + 1]
    token_offsets.npy     int64 (utterances + 1): the same for the targets
    speaker_offsets.npy   int64 (speakers + 1): speaker k has the utterances offsets[k] to offsets[k + 1]
    digests.npy           uint8 (utterances, 2, 16): the digests of the audio and of the content of every utterance
    speakers.parquet      row k: the name and the totals of speaker k
    index.parquet         row i: utterance, speaker, text, frames, seconds, paths, source_rate_hz (of the file),
                          bandwidth_hz (measured) and other columns of utterance i
    rejected.tsv          the utterances that could not be used, and why

Guarantees: opening checks every file against store.json and the others: sizes, types, order, and that targets are
tokens; for that it reads offsets and targets once. Features are read when they are used, so memory does not grow with
the corpus, but for 24 bytes an utterance. Utterances are sorted by speaker, so a user's data is contiguous. A file that
is damaged, or cut while it is in use, is a DataError.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NotRequired

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from sottovoce.data.digests import DIGEST_BYTES, DigestArray
from sottovoce.data.manifest import BANDWIDTH, BANDWIDTH_LIMIT, FULL_REFERENCE, SOURCE_RATE, UtteranceRow
from sottovoce.data.spelling import REJECT, UnknownLetters
from sottovoce.data.store_files import (
    ArrayFile,
    damaged,
    read_offsets,
    read_rows,
    read_schema,
    read_table,
    require_columns,
    require_table,
    require_tokens,
)
from sottovoce.data.text import TokenSet
from sottovoce.errors import DataError
from sottovoce.features import logmel
from sottovoce.files import sha256_of
from sottovoce.reading import BadDocument, parse_json, read_bounded

FORMAT = "sottovoce-store-2"
OLDER_FORMAT = "sottovoce-store-1"  # without digests
INFO = "store.json"
FEATURES = "features.f16"
TOKENS = "tokens.npy"
FRAME_OFFSETS = "frame_offsets.npy"
TOKEN_OFFSETS = "token_offsets.npy"  # noqa: S105 - not a password
SPEAKER_OFFSETS = "speaker_offsets.npy"
DIGESTS = "digests.npy"
SPEAKERS = "speakers.parquet"
INDEX = "index.parquet"
REJECTED = "rejected.tsv"
CONTENT_FILES = (FEATURES, TOKENS, FRAME_OFFSETS, TOKEN_OFFSETS, SPEAKER_OFFSETS, DIGESTS, SPEAKERS, INDEX, REJECTED)
BYTES_PER_FRAME = logmel.BINS * np.dtype(np.float16).itemsize

IntArray = npt.NDArray[np.int64]  # row numbers, offsets, lengths
Count = Annotated[int, Field(ge=0, le=2**53)]


class IndexRow(UtteranceRow):
    """A row of the index: an utterance with its sizes; `root` is the number of the folder its paths start from.

    Stores of earlier versions know neither source rate nor bandwidth. Only stores that were limited on purpose have a
    limit.
    """

    tokens: int
    frames: int
    seconds: float
    root: int
    source_rate_hz: NotRequired[int | None]
    bandwidth_hz: NotRequired[int | None]
    bandwidth_limit_hz: NotRequired[int | None]


_INDEX_TYPES = {
    **{name: pa.string() for name in ("utterance", "speaker", "text", "language", FULL_REFERENCE)},
    **{name: pa.float64() for name in ("start", "segment_seconds", "seconds")},
    **{name: pa.int64() for name in ("tokens", "frames")},
    **{name: pa.int32() for name in ("channel", "root", SOURCE_RATE, BANDWIDTH, BANDWIDTH_LIMIT)},
    **{name: pa.list_(pa.string()) for name in ("paths", "parts")},
    "pauses": pa.list_(pa.float64()),
}
_ALWAYS = ("utterance", "speaker", "seconds")  # the columns that training needs
_WITHOUT_GAPS = (
    *("utterance", "speaker", "text", "language", "paths", "pauses", "parts"),
    *("root", "tokens", "frames", "seconds"),
)


class PreparationRecord(BaseModel):
    """The corpus and the joining that a store was prepared from, what became of letters outside the token set, and the
    bandwidth that the audio was limited to.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: dict[str, JsonValue]
    joining: dict[str, JsonValue] | None
    unknown_letters: UnknownLetters = REJECT
    bandwidth_hz: int | None = None


class MergeRecord(BaseModel):
    """The hashes of the stores that a store was merged from, and how their speakers were treated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    merged: tuple[str, ...]
    same_speakers: bool
    prefix: bool


class StoreInfo(BaseModel):
    """The content of store.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str
    label: str
    request: PreparationRecord | MergeRecord
    roots: tuple[str, ...]
    languages: tuple[str, ...]
    tokens: tuple[str, ...]
    features: dict[str, JsonValue]
    output_stride: int
    utterances: Count
    speakers: Count
    frames: Count
    seconds: float = Field(ge=0, allow_inf_nan=False)
    rejected: Count
    manifest_hash: str
    versions: dict[str, str]
    files: dict[str, str]
    sizes: dict[str, int] = {}  # of the files in bytes; stores of earlier versions do not have it
    hash: str

    @staticmethod
    def content_hash(tokens: Sequence[str], features: Mapping[str, JsonValue], files: Mapping[str, str]) -> str:
        """Return the hash that identifies the content of a store, wherever the store and its corpus lie."""
        document = {"format": FORMAT, "tokens": list(tokens), "features": features, "files": files}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


class Store:
    """A complete store, opened for reading.

    Example:
        store = Store.open("stores/ls-100")
        store.features_of(0), store.token_set.decode(store.tokens_of(0))
    """

    def __init__(self, path: Path, info: StoreInfo) -> None:
        """Use `Store.open`, which checks the files."""
        self.path = path
        self.info = info
        self.token_set = TokenSet(info.languages)

    @classmethod
    def open(cls, path: Path | str) -> "Store":
        """Open a store; a missing, unfinished or damaged store is a DataError of one line."""
        path = Path(path)
        store = cls(path, read_info(path))
        if store.token_set.tokens != store.info.tokens:
            raise DataError(f"{path} was made with another token set. Prepare it again.")
        store._check_files()
        return store

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path only; the receiving process opens the files itself."""
        return Store.open, (self.path.absolute(),)

    def _check_files(self) -> None:
        """Raise DataError if a file is missing, truncated, of another type, or contradicts the others.

        The offsets and targets are read once; the features, texts and names are not.
        """
        for name in CONTENT_FILES:
            if not (self.path / name).is_file():
                raise DataError(f"{self.path} has no {name}. Prepare the store again.")
            size, expected = (self.path / name).stat().st_size, self.info.sizes.get(name)
            if expected not in (None, size):
                raise damaged(self.path / name, f"it has {size} bytes, not {expected}")
        if self._features.length != self.info.frames:
            size, expected = (self.path / FEATURES).stat().st_size, self.info.frames * BYTES_PER_FRAME
            raise DataError(f"{self.path / FEATURES} has {size} bytes, not {expected}. Prepare the store again.")
        _ = self.frame_offsets, self.token_offsets, self.speaker_offsets  # which checks them
        require_tokens(self._tokens, len(self.info.tokens))
        if self._digests.length != self.info.utterances:
            raise damaged(self.path / DIGESTS, "it does not match the other files")
        require_table(self.path / INDEX, self.info.utterances, _INDEX_TYPES, _ALWAYS)
        require_table(self.path / SPEAKERS, self.info.speakers, {"speaker": pa.string()}, ("speaker",))

    def __len__(self) -> int:
        """Return the number of utterances."""
        return self.info.utterances

    @cached_property
    def _features(self) -> ArrayFile:
        return ArrayFile(self.path / FEATURES, np.float16, (logmel.BINS,), header=False)

    @cached_property
    def _tokens(self) -> ArrayFile:
        return ArrayFile(self.path / TOKENS, np.uint8, header=True)

    @cached_property
    def _digests(self) -> ArrayFile:
        return ArrayFile(self.path / DIGESTS, np.uint8, (2, DIGEST_BYTES), header=True)

    @cached_property
    def frame_offsets(self) -> IntArray:
        """The first frame of every utterance, and the end."""
        return read_offsets(self.path / FRAME_OFFSETS, self.info.utterances, self.info.frames, empty=False)

    @cached_property
    def token_offsets(self) -> IntArray:
        """The first token of every utterance, and the end."""
        return read_offsets(self.path / TOKEN_OFFSETS, self.info.utterances, self._tokens.length, empty=True)

    @cached_property
    def speaker_offsets(self) -> IntArray:
        """The first utterance of every speaker, and the end."""
        return read_offsets(self.path / SPEAKER_OFFSETS, self.info.speakers, self.info.utterances, empty=False)

    @property
    def audio_digests(self) -> DigestArray:
        """The digest of every utterance's audio (utterances, 16); see `digests`."""
        return self._digests.whole()[:, 0]

    @property
    def content_digests(self) -> DigestArray:
        """The digest of every utterance's content (utterances, 16)."""
        return self._digests.whole()[:, 1]

    def frames(self, first: int, last: int) -> npt.NDArray[np.float16]:
        """Return a range of the frames of all utterances (frames, 80), in memory."""
        return self._features.rows(first, last)

    def tokens(self) -> npt.NDArray[np.uint8]:
        """Return all targets of all utterances, in memory."""
        return self._tokens.whole()

    def features_of(self, row: int) -> npt.NDArray[np.float16]:
        """Return the features of one utterance (frames, 80), in memory."""
        return self.frames(int(self.frame_offsets[row]), int(self.frame_offsets[row + 1]))

    def fill_features(self, room: npt.NDArray[np.float16], row: int) -> None:
        """Write the features of one utterance to the beginning of a contiguous array (frames, 80)."""
        first, last = int(self.frame_offsets[row]), int(self.frame_offsets[row + 1])
        self._features.fill(room[: last - first], first)

    def tokens_of(self, row: int) -> npt.NDArray[np.uint8]:
        """Return the target of one utterance, in memory."""
        return self._tokens.rows(int(self.token_offsets[row]), int(self.token_offsets[row + 1]))

    @cached_property
    def full_references(self) -> dict[int, str]:
        """The normalised texts, by row, that hold characters without a token: evaluation counts errors by them."""
        if FULL_REFERENCE not in self.index_columns():
            return {}
        texts = self.index([FULL_REFERENCE])[FULL_REFERENCE].combine_chunks()
        rows = np.flatnonzero(pc.is_valid(texts).to_numpy(zero_copy_only=False))
        return dict(zip(rows.tolist(), texts.take(pa.array(rows)).to_pylist(), strict=True))

    def frames_of(self, rows: IntArray) -> IntArray:
        """Return the number of frames of each of these utterances."""
        return self.frame_offsets[rows + 1] - self.frame_offsets[rows]

    def speaker_names(self) -> pa.Array:
        """Return the speakers' names in the order of their numbers."""
        names = read_table(self.path / SPEAKERS, ["speaker"])["speaker"].combine_chunks()
        if names.null_count:
            raise damaged(self.path / SPEAKERS, "a speaker has no name")
        return names

    def speakers_of(self, rows: IntArray) -> list[str]:
        """Return the names of the speakers of these utterances, in the order of their numbers."""
        numbers = np.unique(np.searchsorted(self.speaker_offsets, rows, side="right") - 1)
        names: list[str] = self.speaker_names().take(pa.array(numbers)).to_pylist()
        return names

    def speaker_numbers(self, speakers: Iterable[str]) -> IntArray:
        """Return the numbers of the named speakers; a name that is not in the store, or is given twice, is an error."""
        wanted = list(speakers)
        places = pc.index_in(pa.array(wanted, pa.string()), value_set=self.speaker_names())
        if places.null_count:
            missing = [name for name, place in zip(wanted, places, strict=True) if not place.is_valid]
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise DataError(f"Speaker {missing[0]!r}{more} not in {self.path}. See `sotto data inspect {self.path}`.")
        numbers: IntArray = places.to_numpy().astype(np.int64)
        if len(np.unique(numbers)) != len(numbers):
            raise DataError(f"The list of speakers for {self.path} names a speaker twice. Name each speaker once.")
        return numbers

    def index(self, columns: list[str] | None = None, rows: slice | None = None) -> pa.Table:
        """Return the index, or some of its columns, or a range of its rows."""
        wanted = sorted(IndexRow.__required_keys__) if columns is None else columns
        require_columns(self.path / INDEX, self.index_columns(), wanted)
        if rows is None:
            table = read_table(self.path / INDEX, columns)
        else:
            table = read_rows(self.path / INDEX, rows.start, rows.stop, columns)
        for name in _WITHOUT_GAPS:
            if name in table.column_names and table[name].null_count:
                raise damaged(self.path / INDEX, f"the column {name!r} has gaps")
        return table

    def index_columns(self) -> list[str]:
        """Return the names of the index's columns."""
        names: list[str] = self.index_schema().names
        return names

    def index_schema(self) -> pa.Schema:
        """Return the names and types of the index's columns."""
        return read_schema(self.path / INDEX)

    def root_of(self, root: int) -> Path:
        """Return the folder with this number, from which the audio paths of index rows start."""
        if not 0 <= root < len(self.info.roots):
            raise damaged(self.path / INDEX, f"it names a folder with the number {root}")
        return Path(os.path.normpath(self.path.absolute() / self.info.roots[root]))

    def damaged_files(self) -> list[str]:
        """Read every file and return the names of those whose hash differs from the one in store.json."""
        return [name for name in CONTENT_FILES if sha256_of(self.path / name) != self.info.files.get(name)]


def partial_path(path: Path) -> Path:
    """Return the folder in which a store is made until it is complete."""
    return Path(f"{path if path.name else path.absolute()}.partial")


def read_info(path: Path, expected: str = FORMAT) -> StoreInfo:
    """Read store.json of a store of the expected format; raise DataError where it is missing, damaged or another."""
    try:
        document = parse_json(read_bounded(path / INFO))
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(_why_absent(path)) from None
    except BadDocument as error:
        raise DataError(f"{path / INFO} is damaged: {error}. Prepare the store again.") from None
    known = document.get("format") if isinstance(document, dict) else None
    if known == OLDER_FORMAT and expected == FORMAT:
        raise DataError(f"{path} was made by an older version. Complete it with `sotto data upgrade {path}`.")
    if known != expected:
        raise DataError(f"{path} is not a store of this version ({expected}). Prepare it again.")
    try:
        return StoreInfo.model_validate(document)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise DataError(f"{path / INFO} is damaged at {place}. Prepare the store again.") from None


def _why_absent(path: Path) -> str:
    if partial_path(path).exists():
        return f"{path} is not finished. Run the command that prepares it again to resume."
    if path.is_dir():
        return f"{path} contains no store. Give the folder that `sotto data prepare ... --out` made."
    return f"There is no store at {path}. Make one with `sotto data prepare`."
