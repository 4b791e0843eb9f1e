"""The manifest: every utterance of a corpus, checked and sorted before any audio is read.

A corpus reader yields one `Entry` per utterance, or a `Rejection` where it already sees a fault. `build_manifest`
normalises the text, checks ids, speakers, characters and files, and sorts by speaker and utterance, so that the audio
of a speaker is contiguous in the store. No utterance is dropped silently: an unusable one becomes a row of
rejected.tsv.

Guarantee: what becomes of a speaker's rows depends on these rows and their files only. Ids are unique within a speaker;
nothing that another speaker carries, be it the same ids, texts, files or columns, changes, renames or rejects them. So
removing one user leaves the content of all others as it is, on which user-level privacy rests.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TypedDict, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.data.embedded import file_of
from sottovoce.data.spelling import KEEP, REJECT, UnknownLetters, spelt_out, writable
from sottovoce.data.text import TokenSet, normalise
from sottovoce.errors import DataError
from sottovoce.processes import Progress, no_progress

Item = TypeVar("Item")
FULL_REFERENCE = "full_reference"
SOURCE_RATE, BANDWIDTH, BANDWIDTH_LIMIT = "source_rate_hz", "bandwidth_hz", "bandwidth_limit_hz"


class Reason(StrEnum):
    """Why an utterance cannot be used. The texts are part of rejected.tsv and thus of a store's hash."""

    MALFORMED_ROW = "malformed row"
    NO_SPEAKER = "no speaker"
    NO_TRANSCRIPT = "no transcript"
    EMPTY_TEXT = "text normalises to nothing"
    UNKNOWN_CHARACTERS = "characters outside the token set"
    DUPLICATE_ID = "duplicate id"
    TOO_FEW_TO_JOIN = "too few utterances to join"
    MISSING_FILE = "missing file"
    NOT_A_FILE = "not a file"
    UNREADABLE_AUDIO = "unreadable audio"
    EMPTY_AUDIO = "empty audio"
    TRUNCATED_AUDIO = "truncated audio"
    SILENT_AUDIO = "silent audio"
    TOO_SHORT = "audio too short for its text"


@dataclass(frozen=True, slots=True)
class Rejection:
    """An unusable utterance, the reason and the details."""

    utterance: str
    speaker: str
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One utterance: its speaker, its text and its audio.

    `start`, `segment_seconds` and `channel` select a part of a recording; None selects all of it. A joined utterance
    has several files, the pauses between them and, in `parts`, the ids of the utterances it was joined from. Readers
    leave `bytes`, `modified_ns` and `full_reference` alone; the manifest fills them in. `full_reference` is the text
    with the characters that have no token, where there are some. `extra` holds all other columns of the corpus.
    """

    utterance: str
    speaker: str
    text: str
    language: str
    paths: tuple[str, ...]
    start: float | None = None
    segment_seconds: float | None = None
    channel: int | None = None
    pauses: tuple[float, ...] = ()
    parts: tuple[str, ...] = ()
    bytes: int = 0
    modified_ns: int = 0
    full_reference: str | None = None
    extra: Mapping[str, str | None] = field(default_factory=dict)


class UtteranceRow(TypedDict):
    """The columns that a row of a manifest and a row of a store's index share; other columns may follow."""

    utterance: str
    speaker: str
    text: str
    language: str
    paths: list[str]
    start: float | None
    segment_seconds: float | None
    channel: int | None
    pauses: list[float]
    parts: list[str]


class ManifestRow(UtteranceRow):
    """A row of a manifest: an utterance with the total size and the last change of its files."""

    bytes: int
    modified_ns: int


@dataclass(frozen=True)
class Corpus:
    """The content of a corpus. `rows` can be read only once; audio paths are relative to `root`."""

    label: str
    root: Path
    languages: tuple[str, ...]
    rows: Iterable[Entry | Rejection]


@dataclass(frozen=True)
class Manifest:
    """The usable utterances, one row each, sorted by speaker and utterance; and the rejected ones."""

    label: str
    root: Path
    tokens: TokenSet
    table: pa.Table
    rejected: list[Rejection]

    @property
    def corpus_utterances(self) -> int:
        """The number of utterances in the corpus, usable or not; a joined utterance counts as its parts."""
        usable = pc.sum(pc.list_value_length(self.table["paths"])).as_py() or 0
        return int(usable) + len(self.rejected)


# The manifest's columns, each a field of Entry. The other columns of the corpus follow them.
_SCHEMA = pa.schema(
    [
        ("utterance", pa.string()),
        ("speaker", pa.string()),
        ("text", pa.string()),
        ("language", pa.string()),
        ("paths", pa.list_(pa.string())),
        ("start", pa.float64()),
        ("segment_seconds", pa.float64()),
        ("channel", pa.int32()),
        ("pauses", pa.list_(pa.float64())),
        ("parts", pa.list_(pa.string())),
        ("bytes", pa.int64()),
        ("modified_ns", pa.int64()),
    ]
)
_REFERENCE = pa.field(FULL_REFERENCE, pa.string())  # a column only where an utterance needs it
# Names that the store uses itself. A corpus column with such a name, prefixes aside, gets one prefix more.
_OWN_NAMES = frozenset(
    [
        *_SCHEMA.names,
        *(FULL_REFERENCE, SOURCE_RATE, BANDWIDTH, BANDWIDTH_LIMIT),
        *("root", "frames", "seconds", "tokens", "store", "row"),
    ]
)
_PREFIX = "corpus_"
_BATCH_ROWS = 50_000
_PROGRESS_ROWS = 1_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029\ud800-\udfff]")


def build_manifest(
    corpus: Corpus,
    arrange: Callable[[Iterable[Entry]], Iterable[Entry | Rejection]] | None = None,
    progress: Progress = no_progress,
    unknown_letters: UnknownLetters = REJECT,
) -> Manifest:
    """Check every row of a corpus and return its manifest; `arrange` may join the usable entries into others.

    `unknown_letters` says what becomes of texts with characters outside the token set (see `spelling`).
    """
    rejected: list[Rejection] = []
    tokens = TokenSet(corpus.languages)
    usable = _without_rejections(_checked(corpus, tokens, unknown_letters, progress), rejected)
    table = _to_table(_without_rejections(arrange(usable), rejected) if arrange else usable)
    if len(table) == 0 and not rejected:
        raise DataError(f"{corpus.root} contains no utterances. Check the folder and the options.")
    table = table.sort_by([("speaker", "ascending"), ("utterance", "ascending")])
    return Manifest(corpus.label, corpus.root, tokens, table, rejected)


def _without_rejections(rows: Iterable[Entry | Rejection], rejected: list[Rejection]) -> Iterator[Entry]:
    """Yield the entries and append the rejections to `rejected`."""
    for row in rows:
        if isinstance(row, Rejection):
            rejected.append(row)
        else:
            yield row


def _checked(
    corpus: Corpus, tokens: TokenSet, unknown_letters: UnknownLetters, progress: Progress
) -> Iterator[Entry | Rejection]:
    """Yield the result of checking every row."""
    seen: dict[str, set[str]] = defaultdict(set)  # ids by speaker: nobody's ids concern anybody else
    for number, row in enumerate(corpus.rows, start=1):
        if number % _PROGRESS_ROWS == 0:
            progress("rows", number, 0)
        yield row if isinstance(row, Rejection) else _check(row, corpus.root, seen, tokens, unknown_letters)


def _check(
    entry: Entry, root: Path, seen: dict[str, set[str]], tokens: TokenSet, unknown_letters: UnknownLetters
) -> Entry | Rejection:
    """Return the entry with its text normalised and its files measured, or a rejection."""

    def reject(reason: Reason, detail: str) -> Rejection:
        return Rejection(entry.utterance, entry.speaker, reason, detail)

    speaker = entry.speaker.strip()
    if entry.utterance in seen[speaker]:
        return reject(Reason.DUPLICATE_ID, f"{entry.utterance} was seen before")
    seen[speaker].add(entry.utterance)
    if _CONTROL.search(entry.utterance + entry.speaker):
        return reject(Reason.MALFORMED_ROW, "a control character or line end in the id or the speaker")
    if not speaker:
        return reject(Reason.NO_SPEAKER, f"file {entry.paths[0]}")
    text, reference = normalise(entry.text, entry.language), None
    if unknown_letters == KEEP and tokens.unknown(text):
        full = spelt_out(entry.text, entry.language, tokens)
        text = writable(full, tokens)
        reference = None if text == full else full
    elif fault := _text_fault(entry.text, text, tokens):
        return reject(
            fault, f"{tokens.unknown(text)} in: {entry.text}" if text else f"{entry.text!r}, file {entry.paths[0]}"
        )
    try:
        # For a million utterances, pathlib objects would cost more than everything else.
        files = [os.stat(os.path.join(root, file_of(path))) for path in entry.paths]  # noqa: PTH116, PTH118
    except (OSError, ValueError) as error:  # missing, a name too long, a loop of links, a zero byte in the name
        return reject(Reason.MISSING_FILE, f"{entry.paths[0][:200]!r}: {getattr(error, 'strerror', None) or error}")
    size, modified = sum(file.st_size for file in files), max(file.st_mtime_ns for file in files)
    return replace(entry, speaker=speaker, text=text, full_reference=reference, bytes=size, modified_ns=modified)


def _text_fault(raw: str, text: str, tokens: TokenSet) -> Reason | None:
    if not raw.strip():
        return Reason.NO_TRANSCRIPT
    if not text:
        return Reason.EMPTY_TEXT
    return Reason.UNKNOWN_CHARACTERS if tokens.unknown(text) else None


def _to_table(entries: Iterable[Entry]) -> pa.Table:
    """Return the entries as one table, built batch by batch."""
    batches = [_batch(list(rows)) for rows in _batched(entries, _BATCH_ROWS)]
    return pa.concat_tables(batches or [_batch([])], promote_options="default").combine_chunks()


def _batch(entries: Sequence[Entry]) -> pa.Table:
    names = dict.fromkeys(name for entry in entries for name in entry.extra)
    columns = [pa.array([getattr(entry, column.name) for entry in entries], column.type) for column in _SCHEMA]
    fields = list(_SCHEMA)
    if any(entry.full_reference is not None for entry in entries):
        columns.append(pa.array([entry.full_reference for entry in entries], _REFERENCE.type))
        fields.append(_REFERENCE)
    for name in names:
        kept = f"{_PREFIX}{name}" if _without_prefixes(name) in _OWN_NAMES else name
        columns.append(pa.array([entry.extra.get(name) for entry in entries], pa.string()))
        fields.append(pa.field(kept, pa.string()))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _without_prefixes(name: str) -> str:
    while name.startswith(_PREFIX):
        name = name.removeprefix(_PREFIX)
    return name


def _batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """Yield the items in groups of `size`; the last may be smaller (itertools.batched needs Python 3.12)."""
    iterator = iter(items)
    while group := tuple(islice(iterator, size)):
        yield group
