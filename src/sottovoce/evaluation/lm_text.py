"""Text for a language model: lines of files and transcripts of stores, normalised as targets of a recogniser are."""

from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

from sottovoce.data.population import Population
from sottovoce.data.spelling import spelt_out
from sottovoce.data.text import BOUNDARY, TokenSet, normalise
from sottovoce.errors import DataError
from sottovoce.evaluation.language_model import Level
from sottovoce.reading import open_regular


class LmText:
    """Normalises sentences and counts those that cannot be used."""

    def __init__(self, language: str) -> None:
        """Raise ConfigError for a language without rules."""
        self.token_set = TokenSet((language,))
        self.left_out = 0  # lines with characters that have no token
        self._language = language

    def lines_of(self, files: Sequence[Path]) -> Iterator[str]:
        """Yield the sentences of text files, one per line; empty lines are skipped."""
        for path in files:
            try:
                with TextIOWrapper(open_regular(path), encoding="utf-8") as file:
                    for line in file:
                        yield from self._usable(line)
            except UnicodeDecodeError:
                raise DataError(f"{path} is not text in UTF-8. Give a file with a sentence per line.") from None
            except OSError as error:
                raise DataError(f"{path} cannot be read: {error.strerror}. Give a text file.") from None

    def transcripts_of(self, population: Population) -> Iterator[str]:
        """Yield the transcripts of some speakers. They are normalised already."""
        store = population.store
        if store.info.tokens != self.token_set.tokens:
            spoken = "+".join(store.info.languages)
            raise DataError(f"{store.path} is in {spoken}. Choose its language with --language.")
        for row in population.all_rows().tolist():
            yield self.token_set.decode(store.tokens_of(row))

    def _usable(self, line: str) -> Iterator[str]:
        text = normalise(line, self._language)
        if self.token_set.unknown(text):
            text = spelt_out(line, self._language, self.token_set)
        if self.token_set.unknown(text):
            self.left_out += 1
        elif text:
            yield text


def units(sentence: str, level: Level) -> list[str]:
    """Return the words of a sentence, or its characters as a recogniser writes them: a boundary around every word."""
    return sentence.split() if level == "word" else list(f" {sentence} ".replace(" ", BOUNDARY))
