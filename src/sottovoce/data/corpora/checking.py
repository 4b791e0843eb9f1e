"""Whether a download is what was published: archives by size and sum, folders and tables by what is in them.

Audio is not decoded: LibriSpeech's hours are those that the headers of its files state, and Common Voice's clips need
only be there. `sotto data prepare` decodes every file and lists those it cannot read.
"""

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import soundfile

from sottovoce.data.corpora.download_figures import COMMON_VOICE, LIBRISPEECH, Archive, Language, Subset
from sottovoce.data.corpora.librispeech import read_transcripts
from sottovoce.data.corpora.rows import Malformed, Row, read_rows
from sottovoce.data.corpora.spec import require_folder
from sottovoce.errors import DataError
from sottovoce.processes import Progress, no_progress
from sottovoce.reading import open_regular, read_bounded

_READ_AT_ONCE = 1 << 22  # bytes
_SHOWN = 3  # names of a list
_ROWS_AT_ONCE = 10_000


class Verdict(StrEnum):
    """What a part of a download is."""

    COMPLETE = "complete"
    PART = "part"
    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class DownloadPart:
    """One archive, subset or table: what is there, what should be, and the verdict with its reason."""

    subset: str
    found: str
    expected: str
    verdict: Verdict
    reason: str = ""

    def __str__(self) -> str:
        """Return the verdict with its reason."""
        return f"{self.verdict.value}{self.reason and f': {self.reason}'}"


def check_librispeech(root: Path, subsets: Sequence[str] = (), progress: Progress = no_progress) -> list[DownloadPart]:
    """Check the subsets, by default all, in `root`, and their archives in it or beside it."""
    require_folder(root)
    _require_known(subsets, LIBRISPEECH, "subset")
    chapters = _listed_chapters(root / "CHAPTERS.TXT")
    found: list[DownloadPart] = []
    for name in subsets or LIBRISPEECH:
        archive = _check_archive(root, LIBRISPEECH[name].archive, progress)
        found += archive
        found.append(_check_subset(root / name, LIBRISPEECH[name], chapters.get(name), archive, progress))
    return found


def check_commonvoice(
    root: Path, languages: Sequence[str] = (), progress: Progress = no_progress
) -> list[DownloadPart]:
    """Check the languages, by default all, in `root`, and their archives in it or beside it."""
    require_folder(root)
    _require_known(languages, COMMON_VOICE, "language")
    found: list[DownloadPart] = []
    for name in languages or COMMON_VOICE:
        archive = _check_archive(root, COMMON_VOICE[name].archive, progress)
        found += archive
        found += _check_language(root / name, COMMON_VOICE[name], archive, progress)
    return found


def require_complete(root: Path, findings: Sequence[DownloadPart]) -> None:
    """Raise DataError with what to do where something is missing or damaged."""
    damaged = [one.subset for one in findings if one.verdict is Verdict.DAMAGED]
    absent = [one.subset for one in findings if one.verdict in (Verdict.PART, Verdict.MISSING)]
    if damaged:
        raise DataError(
            f"{root} is damaged: {_listed(damaged)}. Download that again, and unpack it into an empty folder."
        )
    if absent:
        raise DataError(
            f"{root} is not complete: {_listed(absent)}. Download and unpack what you need, or check only what you use."
        )


def _require_known(names: Sequence[str], known: Collection[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise DataError(f"Nothing is published about a {what} {name}. Choose from: {', '.join(known)}.")


def _check_archive(root: Path, archive: Archive, progress: Progress) -> list[DownloadPart]:
    """Return the finding about an archive where it was kept, and nothing where it was not: folders are what counts."""
    kept = [path for path in (root / archive.name, root.absolute().parent / archive.name) if path.is_file()]
    if not kept:
        return []
    octets = kept[0].stat().st_size
    expected = f"{archive.octets:,} bytes, {archive.algorithm.upper()} {archive.digest}"
    if octets != archive.octets:
        reason = "its size is wrong: the download was cut short" if octets < archive.octets else "its size is wrong"
        return [DownloadPart(archive.name, f"{octets:,} bytes", expected, Verdict.DAMAGED, reason)]
    digest = _digest(kept[0], archive, progress)
    found = f"{octets:,} bytes, {archive.algorithm.upper()} {digest}"
    if digest != archive.digest:
        return [DownloadPart(archive.name, found, expected, Verdict.DAMAGED, "its content is another")]
    return [DownloadPart(archive.name, found, expected, Verdict.COMPLETE)]


def _digest(path: Path, archive: Archive, progress: Progress) -> str:
    hasher = hashlib.new(archive.algorithm, usedforsecurity=False)
    with open_regular(path) as file:
        while piece := file.read(_READ_AT_ONCE):
            hasher.update(piece)
            progress(f"reading {archive.name}", file.tell() >> 20, archive.octets >> 20)
    return hasher.hexdigest()


def _missing(subset: str, archive: Sequence[DownloadPart], expected: str) -> DownloadPart:
    here = archive[0] if archive else None
    unpack = f"unpack {here.subset}" if here is not None and here.verdict is Verdict.COMPLETE else ""
    return DownloadPart(subset, "-", expected, Verdict.MISSING, unpack)


@dataclass
class _Counted:
    """What is in the folder of a subset."""

    speakers: int = 0
    chapters: int = 0
    utterances: int = 0  # with a transcript and a recording
    seconds: float = 0.0
    unreadable: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)  # recordings without a transcript

    def __str__(self) -> str:
        return (
            f"{self.speakers:,} speakers, {self.chapters:,} chapters, {self.utterances:,} utterances, "
            f"{self.seconds / 3600:.1f} h"
        )


def _check_subset(
    folder: Path, published: Subset, chapters: int | None, archive: Sequence[DownloadPart], progress: Progress
) -> DownloadPart:
    told = "" if chapters is None else f"{chapters:,} chapters, "
    expected = f"{published.speakers:,} speakers, {told}{published.utterances:,} utterances, {published.hours} h"
    if not folder.is_dir():
        return _missing(folder.name, archive, expected)
    found = _count_subset(folder, published, progress)
    verdict, reason = _judge(found, published, chapters)
    return DownloadPart(folder.name, str(found), expected, verdict, reason)


def _judge(found: _Counted, published: Subset, chapters: int | None) -> tuple[Verdict, str]:
    if found.unreadable:
        return Verdict.DAMAGED, f"{len(found.unreadable):,} recordings cannot be read: {_listed(found.unreadable)}"
    if found.untold:
        return Verdict.DAMAGED, f"{len(found.untold):,} recordings have no transcript: {_listed(found.untold)}"
    counts = [
        (found.speakers, published.speakers, "speakers"),
        (found.chapters, chapters or found.chapters, "chapters"),
        (found.utterances, published.utterances, "utterances"),
    ]
    verdict, reason = _compared(counts)
    # Hours are printed with one decimal, and sources differ by less than a thousandth.
    if verdict is Verdict.COMPLETE and abs(found.seconds / 3600 - published.hours) > 0.06 + published.hours / 1000:
        return Verdict.DAMAGED, "all utterances are there, but not with all of their audio"
    return verdict, reason


def _count_subset(folder: Path, published: Subset, progress: Progress) -> _Counted:
    found = _Counted()
    for speaker in _folders(folder):
        heard = found.utterances
        for chapter in _folders(speaker):
            found.chapters += 1
            _count_chapter(chapter, found)
            progress(f"reading {folder.name}", found.utterances, published.utterances)
        found.speakers += found.utterances > heard  # an empty folder is nobody
    return found


def _count_chapter(chapter: Path, found: _Counted) -> None:
    texts = chapter / f"{chapter.parent.name}-{chapter.name}.trans.txt"
    told = {utterance for utterance, _ in read_transcripts(texts)}
    for path in sorted(chapter.glob("*.flac")):
        if path.stem not in told:
            found.untold.append(path.stem)
            continue
        try:
            found.seconds += soundfile.info(path).duration
        except (soundfile.SoundFileError, OSError):
            found.unreadable.append(path.stem)
            continue
        found.utterances += 1


def _folders(path: Path) -> Iterator[Path]:
    yield from sorted(below for below in path.iterdir() if below.is_dir())


def _listed_chapters(path: Path) -> dict[str, int]:
    """Return the number of chapters of every subset in CHAPTERS.TXT (ID | READER | MINUTES | SUBSET | ...)."""
    counts: dict[str, int] = {}
    lines = read_bounded(path).decode(errors="replace").splitlines() if path.is_file() else []
    for fields in (line.split("|") for line in lines if not line.startswith(";")):
        if len(fields) > 3:
            counts[fields[3].strip()] = counts.get(fields[3].strip(), 0) + 1
    return counts


def _check_language(
    folder: Path, published: Language, archive: Sequence[DownloadPart], progress: Progress
) -> Iterator[DownloadPart]:
    clips = _names_in(folder / "clips")
    for split, rows in published.rows.items():
        speakers = published.train_speakers if split == "train" else None
        name, table = f"{folder.name} {split}", folder / f"{split}.tsv"
        expected = f"{rows:,} rows{'' if speakers is None else f', {speakers:,} speakers'}"
        if not table.is_file():
            yield _missing(name, archive, expected)
            continue
        found = _Table()
        for place, row in enumerate(_rows(table), start=1):
            found.add(row, clips)
            if place % _ROWS_AT_ONCE == 0:
                progress(f"reading {name}", place, rows)
        verdict, reason = _judge_table(found, rows, speakers)
        yield DownloadPart(name, str(found), expected, verdict, reason)


@dataclass
class _Table:
    """What a table of Common Voice names."""

    rows: int = 0
    malformed: int = 0
    clips: int = 0  # that are there
    speakers: set[str | None] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {len(self.speakers):,} speakers, {self.clips:,} clips"

    def add(self, row: Row | Malformed, clips: Collection[str]) -> None:
        """Count one row."""
        self.rows += 1
        if isinstance(row, Malformed):
            self.malformed += 1
            return
        self.speakers.add(row["client_id"])
        self.clips += row["path"] in clips


def _rows(table: Path) -> Iterator[Row | Malformed]:
    return read_rows(table, dict.fromkeys(("client_id", "path"), "This table is not from Common Voice."))


def _judge_table(found: _Table, rows: int, speakers: int | None) -> tuple[Verdict, str]:
    if found.malformed:
        return Verdict.DAMAGED, f"{found.malformed:,} rows cannot be read"
    counts = [(found.rows, rows, "rows"), (found.clips, found.rows, "clips")]
    if speakers is not None:
        counts.append((len(found.speakers), speakers, "speakers"))
    return _compared(counts)


def _compared(counts: Sequence[tuple[int, int, str]]) -> tuple[Verdict, str]:
    """Return the verdict on numbers: what is there, what should be, and its name."""
    if any(here > there for here, there, _ in counts):
        return Verdict.DAMAGED, "more than was published: it is another version, or other files are among it"
    less = [f"{here:,} of {there:,} {what}" for here, there, what in counts if here < there]
    return (Verdict.PART, ", ".join(less)) if less else (Verdict.COMPLETE, "")


def _names_in(folder: Path) -> set[str]:
    return set(os.listdir(folder)) if folder.is_dir() else set()  # noqa: PTH208 - millions of names


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return f"{', '.join(names[:_SHOWN])}{f' and {more:,} more' if more > 0 else ''}"
