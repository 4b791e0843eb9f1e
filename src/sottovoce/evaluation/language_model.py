"""Files of language models: ARPA, plain or gzipped, and KenLM's binary form. KenLM itself computes with them.

Here is what the decoder has to know about a file before that: its words, whether these are words or characters, and
whether it was built from users' transcripts. A model of `sotto lm build` says so in a comment before its first section;
a file from elsewhere says nothing.
"""

import contextlib
import gzip
import io
import json
import mmap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

from sottovoce.data.text import BOUNDARY
from sottovoce.errors import DataError
from sottovoce.evaluation.kneser_ney import BEGIN, END, MAX_ORDER, UNKNOWN, Grams, NgramModel
from sottovoce.files import written_whole
from sottovoce.reading import open_regular

Level = Literal["word", "character"]
USERS_NOTE = "This language model holds speakers' own transcripts, word by word: no privacy guarantee covers it."

_COMMENT = "# sottovoce-lm "
_BINARY_MAGIC = b"mmap lm http://kheafield.com/code"
_GZIP_MAGIC = b"\x1f\x8b"
_SPECIAL = frozenset((UNKNOWN, BEGIN, END))
_MOST_COMMENTS = 1000  # lines before the first section


@dataclass(frozen=True)
class LanguageModelNote:
    """What `sotto lm build` notes in a model."""

    level: Level
    order: int
    sentences: int
    users_transcripts: bool  # whether some of the text is users' own words


@dataclass(frozen=True)
class LanguageModelFile:
    """A model's file as the decoder needs to know it."""

    path: Path
    words: tuple[str, ...]  # without <s>, </s> and <unk>
    note: LanguageModelNote | None  # None: a model from elsewhere

    @property
    def has_users_transcripts(self) -> bool:
        """Whether the model says that it was built from users' transcripts."""
        return self.note is not None and self.note.users_transcripts

    def level(self, tokens: tuple[str, ...]) -> Level:
        """Return whether the model is one of characters: as it says, or where all its words are tokens."""
        if self.note is not None:
            return self.note.level
        return "character" if BOUNDARY in self.words and set(self.words) <= set(tokens) else "word"


def write_arpa(model: NgramModel, path: Path, note: LanguageModelNote) -> None:
    """Write a model whole. One with users' transcripts is for its owner only."""
    with written_whole(path, private=note.users_transcripts) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=False)
        text.write(f"{_COMMENT}{json.dumps(asdict(note))}\n\n\\data\\\n")
        text.writelines(f"ngram {number}={len(grams.word)}\n" for number, grams in enumerate(model.grams, start=1))
        names = [""]
        for number, grams in enumerate(model.grams, start=1):
            names = [f"{names[prefix]} {model.words[word]}" for prefix, word in _pairs(grams)]
            text.write(f"\n\\{number}-grams:\n")
            text.writelines(_lines(names, grams, with_backoff=number < model.order))
        text.write("\n\\end\\\n")
        text.flush()
        text.detach()  # the file stays open: its owner closes it


def _pairs(grams: Grams) -> Iterator[tuple[int, int]]:
    return zip(grams.prefix.tolist(), grams.word.tolist(), strict=True)


def _lines(names: list[str], grams: Grams, *, with_backoff: bool) -> Iterator[str]:
    for name, log_prob, log_backoff in zip(names, grams.log_prob.tolist(), grams.log_backoff.tolist(), strict=True):
        backoff = f"\t{log_backoff:.7f}" if with_backoff else ""
        yield f"{log_prob:.7f}\t{name[1:]}{backoff}\n"


def open_language_model(path: Path) -> LanguageModelFile:
    """Read what a file says about itself, and its words; raise DataError where it is no language model."""
    try:
        with open_regular(path) as file:
            start = file.read(len(_BINARY_MAGIC))
        words, note = (_binary_words(path), None) if start == _BINARY_MAGIC else _arpa_words(path)
    except FileNotFoundError:
        raise DataError(f"There is no language model at {path}. Build one with `sotto lm build`.") from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise DataError(f"{path} cannot be read as a language model: {reason}. {_EXPECTED}") from None
    return LanguageModelFile(path, tuple(word for word in words if word.lower() not in _SPECIAL), note)


_EXPECTED = "Give an ARPA file, such as `sotto lm build` writes, or a binary model of KenLM."


def _binary_words(path: Path) -> list[str]:
    """Return the words at the end of a binary file, each followed by a zero."""
    with open_regular(path) as file, contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as whole:
        start = whole.rfind(UNKNOWN.encode() + b"\0")
        listed = whole[start:] if start >= 0 else b""
    if not listed:
        raise DataError(f"{path} has no list of words. Build it again with KenLM's build_binary, which keeps them.")
    return listed.decode().rstrip("\0").split("\0")


def _arpa_words(path: Path) -> tuple[list[str], LanguageModelNote | None]:
    """Return the single words of an ARPA file, and what its first comment says."""
    note, words = None, []
    with _opened(path) as file:
        lines = iter(file)
        for number, line in enumerate(lines):
            if line.startswith(_COMMENT):
                note = _noted(line.removeprefix(_COMMENT), path)
            if line.startswith(f"ngram {MAX_ORDER + 1}="):
                raise DataError(f"{path} has n-grams of more than {MAX_ORDER} words. Build it with a lower order.")
            if line.strip() == "\\1-grams:":
                break
            if number > _MOST_COMMENTS:
                raise DataError(f"{path} is no language model. {_EXPECTED}")
        else:
            raise DataError(f"{path} is no language model. {_EXPECTED}")
        for line in lines:
            if line.startswith("\\"):
                break
            fields = line.split()
            if len(fields) in (2, 3):
                words.append(fields[1])
    return words, note


def _opened(path: Path) -> IO[str]:
    with open_regular(path) as file:
        zipped = file.read(2) == _GZIP_MAGIC
    return gzip.open(path, "rt", encoding="utf-8") if zipped else path.open(encoding="utf-8")


def _noted(text: str, path: Path) -> LanguageModelNote:
    try:
        document: Any = json.loads(text)
        note = LanguageModelNote(**document)
    except (ValueError, TypeError, RecursionError):
        raise DataError(f"{path} has a damaged note in its first line. Build the model again.") from None
    if note.level not in ("word", "character") or not isinstance(note.users_transcripts, bool):
        raise DataError(f"{path} has a damaged note in its first line. Build the model again.")
    return note
