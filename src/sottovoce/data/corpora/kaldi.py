"""Kaldi data directories: wav.scp, text and utt2spk, with segments and spk2gender where they exist.

wav.scp names plain files. Guarantee: a command in it (a line that ends in a pipe) is rejected and never executed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from sottovoce.data.corpora.rows import open_text
from sottovoce.data.corpora.spec import CorpusSpec, require_folder
from sottovoce.data.manifest import Corpus, Entry, Reason, Rejection
from sottovoce.errors import DataError


class Kaldi(CorpusSpec):
    """A Kaldi data directory."""

    kind: Literal["kaldi"] = "kaldi"
    folder: Path = Field(description="the data directory, with wav.scp, text and utt2spk")
    language: Literal["en", "fr", "de"] = Field("en", description="the language of the text: en, fr or de")
    audio_root: Path | None = Field(
        None, description="the folder of relative paths (default: the working folder, as in Kaldi, then FOLDER)"
    )
    label: str | None = Field(None, description="the name shown in statistics (default: the folder's name)")

    @property
    def first_language(self) -> str:
        """The language of the corpus."""
        return self.language

    def read(self) -> Corpus:
        """Return the corpus with every utterance of `segments`, or of wav.scp where there are no segments."""
        require_folder(self.folder)
        for name in ("wav.scp", "text", "utt2spk"):
            if not (self.folder / name).is_file():
                raise DataError(f"{self.folder} has no {name}. Give a Kaldi data directory.")
        label = self.label or self.folder.absolute().name
        return Corpus(label, self.audio_root or self.folder, (self.language,), self._rows())

    def _rows(self) -> Iterator[Entry | Rejection]:
        recordings = self._recordings()
        texts, speakers = self._table("text", empty=True), self._table("utt2spk")
        genders = self._table("spk2gender") if (self.folder / "spk2gender").is_file() else {}
        parts = self._segments() if (self.folder / "segments").is_file() else None
        names = recordings if parts is None else parts
        for utterance in names:
            speaker = speakers.get(utterance, "")
            part = _Part(utterance) if parts is None else parts[utterance]
            if isinstance(part, str):
                yield Rejection(utterance, speaker, Reason.MALFORMED_ROW, part)
                continue
            path = recordings.get(part.recording)
            if path is None:
                yield Rejection(utterance, speaker, Reason.MISSING_FILE, f"wav.scp has no {part.recording!r}")
                continue
            if isinstance(path, _NoFile):
                yield Rejection(utterance, speaker, Reason.NOT_A_FILE, path.detail)
                continue
            yield Entry(
                utterance=utterance,
                speaker=speaker,
                text=texts.get(utterance, ""),
                language=self.language,
                paths=(path,),
                start=part.start,
                segment_seconds=part.seconds,
                channel=part.channel,
                extra=_described(part, genders.get(speaker)),
            )
        for utterance, text in texts.items():
            if utterance not in names:
                detail = f"text names it, {'wav.scp' if parts is None else 'segments'} does not: {text[:80]}"
                yield Rejection(utterance, speakers.get(utterance, ""), Reason.MISSING_FILE, detail)

    def _recordings(self) -> "dict[str, str | _NoFile]":
        """Return the file of every recording, or what it is instead; raise DataError where there is no file at all."""
        found: dict[str, str | _NoFile] = {}
        for name, place in self._table("wav.scp").items():
            if place.endswith("|"):
                found[name] = _NoFile(f"a command, and commands are never run: {place[:60]}")
            elif _is_archive(place):
                found[name] = _NoFile(f"a place in an archive: {place[:60]}")
            else:
                found[name] = self._resolved(place)
        first = next(iter(found.values()), None)
        if isinstance(first, _NoFile) and all(isinstance(one, _NoFile) for one in found.values()):
            raise DataError(
                f"{self.folder / 'wav.scp'} names no file. Its first recording is {first.detail}. Write the audio to "
                "files, and name these."
            )
        return found

    def _resolved(self, place: str) -> str:
        """Return the path from the working folder, as Kaldi resolves it, where it exists there; else as it is."""
        here = Path(place).absolute()
        return str(here) if self.audio_root is None and here.exists() else place

    def _segments(self) -> "dict[str, _Part | str]":
        """Return the part of a recording that every utterance is, or what is wrong with its line."""
        return {name: _part(line) for name, line in self._table("segments").items()}

    def _table(self, name: str, *, empty: bool = False) -> dict[str, str]:
        """Return the rest of every line of a file by its first word; `empty` allows lines without a rest."""
        path = self.folder / name
        table: dict[str, str] = {}
        try:
            with open_text(path) as file:
                for number, line in enumerate(file, start=1):
                    key, _, value = line.strip().partition(" ") if "\t" not in line else line.strip().partition("\t")
                    if not key:
                        continue
                    line.encode()  # raises an error for bytes that are not UTF-8
                    if key in table:
                        raise DataError(f"{path} has {key!r} twice. Give each id one line.")
                    if not value.strip() and not empty:
                        raise DataError(f"{path} line {number} has only one field. Correct it.")
                    table[key] = value.strip()
        except UnicodeEncodeError:
            raise DataError(f"{path} is not UTF-8. Convert it.") from None
        return table


@dataclass(frozen=True)
class _NoFile:
    """A recording that wav.scp names no file for."""

    detail: str


@dataclass(frozen=True)
class _Part:
    """A recording, or a part of it."""

    recording: str
    start: float | None = None
    seconds: float | None = None
    channel: int | None = None


def _part(line: str) -> _Part | str:
    """Return the part that a line of `segments` describes: RECORDING START END [CHANNEL]; an END of -1 is the end."""
    fields = line.split()
    if len(fields) not in (3, 4):
        return f"segments: {len(fields)} fields after the id, not 3 or 4"
    try:
        start, end = float(fields[1]), float(fields[2])
        channel = int(fields[3]) if len(fields) == 4 else None
    except ValueError:
        return f"segments: {line[:80]!r} does not hold numbers"
    to_the_end = end == -1
    if not (0 <= start < math.inf) or not (to_the_end or start < end < math.inf) or (channel or 0) < 0:
        return f"segments: from {fields[1]} s to {fields[2]} s"
    return _Part(fields[0], start, None if to_the_end else round(end - start, 6), channel)


def _is_archive(place: str) -> bool:
    """Return whether a place is an offset in an archive, as in wav.ark:1234."""
    file, colon, offset = place.rpartition(":")
    return bool(colon) and offset.isdigit() and not Path(place).exists() and bool(file)


def _described(part: _Part, gender: str | None) -> dict[str, str | None]:
    described: dict[str, str | None] = {"gender": gender}
    return described if part.start is None else {"recording": part.recording, **described}
