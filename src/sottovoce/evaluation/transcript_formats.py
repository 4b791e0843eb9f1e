"""Transcripts as text, JSON, subtitles (SRT, WebVTT) and Praat's TextGrid.

Subtitles follow the usual rules: at most two lines of 42 characters and six seconds, a new one after a pause, and shown
for at least a second where the next one leaves the time.
"""

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum

from sottovoce.evaluation.transcripts import Transcript, Word

_LINE_CHARACTERS = 42
_CUE_LINES = 2
_CUE_SECONDS = 6.0
_PAUSE_SECONDS = 0.8
_LEAST_SECONDS = 1.0


class TranscriptFormat(StrEnum):
    """How transcripts are written."""

    TXT = "txt"
    JSON = "json"
    JSONL = "jsonl"
    SRT = "srt"
    VTT = "vtt"
    TEXTGRID = "textgrid"

    @property
    def ending(self) -> str:
        """The ending of a file's name."""
        return ".TextGrid" if self is TranscriptFormat.TEXTGRID else f".{self.value}"

    @property
    def holds_one(self) -> bool:
        """Whether a document holds the transcript of one file alone."""
        return self in (TranscriptFormat.SRT, TranscriptFormat.VTT, TranscriptFormat.TEXTGRID)


def as_document(transcript: Transcript, form: TranscriptFormat) -> str:
    """Return a transcript as a whole document, with a line end after its last line."""
    return _WRITERS[form](transcript)


def as_object(transcript: Transcript) -> dict[str, object]:
    """Return a transcript as a JSON object: file, seconds, words with their times, and the text."""
    return asdict(transcript) | {"text": transcript.text}


def _text(transcript: Transcript) -> str:
    return f"{transcript.text}\n"


def _json(transcript: Transcript) -> str:
    return json.dumps(as_object(transcript), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _json_line(transcript: Transcript) -> str:
    return json.dumps(as_object(transcript), ensure_ascii=False, allow_nan=False) + "\n"


def _srt(transcript: Transcript) -> str:
    cues = enumerate(_cues(transcript), start=1)
    return "\n".join(
        f"{number}\n{_clock(start, ',')} --> {_clock(end, ',')}\n{text}\n" for number, (start, end, text) in cues
    )


def _vtt(transcript: Transcript) -> str:
    cues = (f"\n{_clock(start, '.')} --> {_clock(end, '.')}\n{text}\n" for start, end, text in _cues(transcript))
    return "WEBVTT\n" + "".join(cues)


def _textgrid(transcript: Transcript) -> str:
    """Return the words as an interval tier without gaps: silence is an empty interval."""
    end = max([transcript.seconds, *(word.end for word in transcript.words)])
    intervals = list(_intervals(transcript.words, end))
    lines = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0",
        f"xmax = {end:.6f}",
        "tiers? <exists>",
        "size = 1",
        "item []:",
        "    item [1]:",
        '        class = "IntervalTier"',
        '        name = "words"',
        "        xmin = 0",
        f"        xmax = {end:.6f}",
        f"        intervals: size = {len(intervals)}",
    ]
    for number, (start, stop, text) in enumerate(intervals, start=1):
        lines += [
            f"        intervals [{number}]:",
            f"            xmin = {start:.6f}",
            f"            xmax = {stop:.6f}",
            f'            text = "{text}"',
        ]
    return "\n".join(lines) + "\n"


def _intervals(words: Sequence[Word], end: float) -> Iterator[tuple[float, float, str]]:
    at = 0.0
    for word in words:
        if word.start > at:
            yield at, word.start, ""
        yield word.start, word.end, word.word.replace('"', '""')
        at = word.end
    if end > at:
        yield at, end, ""


def _cues(transcript: Transcript) -> Iterator[tuple[float, float, str]]:
    """Yield start, end and lines of every subtitle."""
    groups: list[list[Word]] = []
    for word in transcript.words:
        if groups and _continues(groups[-1], word):
            groups[-1].append(word)
        else:
            groups.append([word])
    for place, group in enumerate(groups):
        least = min(group[0].start + _LEAST_SECONDS, transcript.seconds)
        start, end = group[0].start, max(group[-1].end, least)
        if place + 1 < len(groups):
            end = max(min(end, groups[place + 1][0].start), group[-1].end)
        yield start, end, "\n".join(_lines(group))


def _continues(group: Sequence[Word], word: Word) -> bool:
    """Return whether a word still fits into a subtitle."""
    fits = len(_lines([*group, word])) <= _CUE_LINES
    return fits and word.start - group[-1].end < _PAUSE_SECONDS and word.end - group[0].start <= _CUE_SECONDS


def _lines(group: Sequence[Word]) -> list[str]:
    return textwrap.wrap(" ".join(word.word for word in group), _LINE_CHARACTERS, break_long_words=False)


def _clock(seconds: float, point: str) -> str:
    """Return a time as hours:minutes:seconds with three decimals."""
    milliseconds = round(1000 * seconds)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}{point}{rest % 1000:03d}"


_WRITERS: dict[TranscriptFormat, Callable[[Transcript], str]] = {
    TranscriptFormat.TXT: _text,
    TranscriptFormat.JSON: _json,
    TranscriptFormat.JSONL: _json_line,
    TranscriptFormat.SRT: _srt,
    TranscriptFormat.VTT: _vtt,
    TranscriptFormat.TEXTGRID: _textgrid,
}


class TranscriptStream:
    """Writes transcripts one after another as they come; what was written is whole after `close`."""

    def __init__(self, write: Callable[[str], object], form: TranscriptFormat, *, named: bool) -> None:
        """Write by calling `write`; `named` text begins with the name of its file."""
        self._write, self._form, self._named = write, form, named
        self._before = "[\n"

    def add(self, transcript: Transcript) -> None:
        """Write a transcript; named text has a line for every file, also for one without words."""
        if self._form is TranscriptFormat.JSON:
            self._write(self._before + textwrap.indent(_json(transcript), "  ").rstrip("\n"))
            self._before = ",\n"
        elif self._form is not TranscriptFormat.TXT:
            self._write(as_document(transcript, self._form))
        elif self._named:
            self._write(f"{transcript.file}: {transcript.text}".rstrip() + "\n")
        elif transcript.words:
            self._write(_text(transcript))

    @property
    def begun(self) -> bool:
        """Whether a document was begun that `close` must end."""
        return self._before != "[\n"

    def close(self) -> None:
        """Write what ends the document."""
        if self._form is TranscriptFormat.JSON:
            self._write("\n]\n" if self.begun else "[]\n")
