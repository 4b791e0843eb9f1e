"""Text normalisation and token sets: what a transcript becomes before a recogniser learns it.

English (LibriSpeech, Common Voice): lower case, punctuation dropped, hyphen and apostrophe kept, letters of other
alphabets turned into a-z by unidecode. French and German keep their letters. Tokens are the CTC blank, the word
boundary, apostrophe, hyphen, a-z and the letters of the language: 29 + blank for English.

Promises: `normalise` is idempotent; what it cannot express (digits, symbols such as the euro sign, letters of another
language) stays in the text and is reported by `TokenSet.unknown`, so that it is rejected rather than learnt wrongly.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from unidecode import unidecode

from sottovoce.errors import ConfigError

BLANK = "<blank>"
BOUNDARY = "|"
BLANK_ID = 0
BOUNDARY_ID = 1

_LETTERS = {"en": "", "fr": "àâæçéèêëîïôœùûüÿ", "de": "äöüß"}
LANGUAGES = tuple(_LETTERS)

# Signs that people type for an apostrophe or a hyphen. They are mapped before NFKC, which would break some of them up,
# and again after it, because it makes new ones.
_SAME_SIGN = str.maketrans(dict.fromkeys("’‘‛ʼʻ´`′＇", "'") | dict.fromkeys("‐‑⁃−", "-"))
# These open a quotation in English and close one in German; only between letters do they mean an apostrophe.
_SINGLE_QUOTE = re.compile(r"(?<!\w)[‘‛]|[‘‛](?!\w)")
# A missing space after the end of a sentence: "the end.Then".
_SENTENCE_END = re.compile(r"(?<=[a-zß-öø-ÿ])\.(?=[A-ZÀ-ÖØ-Þ])")
# Marks that stand between words even without a space; every other punctuation mark vanishes ("U.S.A." is "usa").
_MARKS = "'-.,;:!?/\\()[]"
_SEPARATOR = re.compile(r"[,;:!?/\\()\[\]]|\.{2,}|-{2,}")
# Unicode calls these punctuation, but people speak them: dropping one would make the transcript wrong.
_SPOKEN = "&%‰@#§"


@dataclass(frozen=True)
class TokenSet:
    """The tokens of one language, or of several together; a token's id is its place."""

    languages: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse languages we have no rules for."""
        for language in self.languages:
            if language not in _LETTERS:
                raise ConfigError(f"Language {language!r} is not known. Choose from {', '.join(LANGUAGES)}.")

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """All tokens, the blank first."""
        extra = sorted({letter for language in self.languages for letter in _LETTERS[language]})
        return (BLANK, BOUNDARY, "'", "-", *"abcdefghijklmnopqrstuvwxyz", *extra)

    @cached_property
    def _ids(self) -> dict[str, int]:
        ids = {token: number for number, token in enumerate(self.tokens)}
        return {" ": BOUNDARY_ID} | {token: ids[token] for token in self.tokens if token not in (BLANK, BOUNDARY)}

    def unknown(self, text: str) -> str:
        """Return the characters of a normalised text that have no token, each once, in order."""
        return "".join(dict.fromkeys(character for character in text if character not in self._ids))

    def encode(self, text: str) -> npt.NDArray[np.uint8]:
        """Return the CTC target of a normalised text: its characters between two word boundaries."""
        ids = self._ids
        return np.array([BOUNDARY_ID, *(ids[character] for character in text), BOUNDARY_ID], dtype=np.uint8)

    def decode(self, ids: Sequence[int] | npt.NDArray[np.integer]) -> str:
        """Return the text of token ids; boundaries become single spaces, blanks vanish."""
        text = "".join(" " if i == BOUNDARY_ID else self.tokens[i] for i in ids if i != BLANK_ID)
        return " ".join(text.split())


def normalise(text: str, language: str) -> str:
    """Return the text as words of lower-case letters, apostrophes and hyphens, with single spaces between them."""
    text = _SENTENCE_END.sub(" ", _SINGLE_QUOTE.sub("", text))
    text = unicodedata.normalize("NFKC", text.translate(_SAME_SIGN)).translate(_SAME_SIGN).lower()
    text = _SEPARATOR.sub(" ", text.translate(_RULES[language == "en"])).replace(".", "")
    return " ".join(word for word in text.split() if word.strip("'-"))


class _CharacterRules(dict[int, str]):
    """What each character becomes, worked out once when it is first met (for str.translate)."""

    def __init__(self, to_english: bool) -> None:
        super().__init__()
        self._to_english = to_english

    def __missing__(self, code: int) -> str:
        character = written = chr(code)
        category = unicodedata.category(character)
        if self._to_english and category[0] in "LM":
            written = unidecode(character).lower().translate(_SAME_SIGN)
        self[code] = "".join(map(_without_punctuation, written))
        if not self[code] and category in ("Lu", "Ll", "Lo"):
            self[code] = character  # a letter without an English spelling is reported, not lost
        return self[code]


_RULES = (_CharacterRules(to_english=False), _CharacterRules(to_english=True))


def _without_punctuation(character: str) -> str:
    """Keep the character, drop it, or put a space in its place."""
    category = unicodedata.category(character)
    if character in _MARKS or character in _SPOKEN:
        return character
    if category in ("Pd", "Cc"):
        return " "
    return "" if category[0] == "P" or category == "Cf" else character


def least_outputs(tokens: npt.NDArray[np.uint8]) -> int:
    """Return how many outputs CTC needs for a target: one per token and a blank between equal neighbours."""
    return int(tokens.size + np.count_nonzero(tokens[1:] == tokens[:-1]))
