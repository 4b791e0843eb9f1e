"""Text normalisation and token sets: from a transcript to the target of a recogniser.

English (LibriSpeech, Common Voice) becomes lower case without punctuation; hyphens and apostrophes stay, and unidecode
turns letters of other alphabets into a-z. French and German keep their own letters. The tokens are the CTC blank, the
word boundary, apostrophe, hyphen, a-z and the letters of the language: 29 and the blank for English.

Guarantees: `normalise` is idempotent. Characters that it cannot express (digits, symbols such as the euro sign, letters
of another language) stay in the text and `TokenSet.unknown` reports them, so such an utterance is rejected instead of
learnt wrongly or, in a test set, kept (`spelling.py`).
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

# Characters that people type for an apostrophe or a hyphen. They are mapped before NFKC, which would decompose some of
# them, and again after it, because it produces new ones.
_SAME_SIGN = str.maketrans(dict.fromkeys("’‘‛ʼʻ´`′＇", "'") | dict.fromkeys("‐‑⁃−", "-"))
# These open a quotation in English and close one in German. They are apostrophes only between letters.
_SINGLE_QUOTE = re.compile(r"(?<!\w)[‘‛]|[‘‛](?!\w)")
# A missing space after the end of a sentence: "the end.Then".
_SENTENCE_END = re.compile(r"(?<=[a-zß-öø-ÿ])\.(?=[A-ZÀ-ÖØ-Þ])")
# Marks that separate words even without a space; all other punctuation is removed ("U.S.A." is "usa").
_MARKS = "'-.,;:!?/\\()[]"
_SEPARATOR = re.compile(r"[,;:!?/\\()\[\]]|\.{2,}|-{2,}")
# Unicode calls these punctuation, but they are spoken: without them the transcript would be wrong.
_SPOKEN = "&%‰@#§"


@dataclass(frozen=True)
class TokenSet:
    """The tokens of one or several languages; the id of a token is its place in `tokens`.

    Example:
        tokens = TokenSet(("en",))
        tokens.decode(tokens.encode(normalise("Good morning!", "en")))  # "good morning"
    """

    languages: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise ConfigError for a language without rules."""
        for language in self.languages:
            if language not in _LETTERS:
                raise ConfigError(f"Language {language!r} is unknown. Choose from {', '.join(LANGUAGES)}.")

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
        """Return the characters of a normalised text that have no token, each once, in order of appearance."""
        return "".join(dict.fromkeys(character for character in text if character not in self._ids))

    def encode(self, text: str) -> npt.NDArray[np.uint8]:
        """Return the CTC target of a normalised text: its characters between two word boundaries."""
        ids = self._ids
        return np.array([BOUNDARY_ID, *(ids[character] for character in text), BOUNDARY_ID], dtype=np.uint8)

    def decode(self, ids: Sequence[int] | npt.NDArray[np.integer]) -> str:
        """Return the text of token ids; boundaries become single spaces, blanks are removed."""
        text = "".join(" " if i == BOUNDARY_ID else self.tokens[i] for i in ids if i != BLANK_ID)
        return " ".join(text.split())


def normalise(text: str, language: str) -> str:
    """Return the text as words of lower-case letters, apostrophes and hyphens, with single spaces between them."""
    text = _SENTENCE_END.sub(" ", _SINGLE_QUOTE.sub("", text))
    text = unicodedata.normalize("NFKC", text.translate(_SAME_SIGN)).translate(_SAME_SIGN).lower()
    text = _SEPARATOR.sub(" ", text.translate(_RULES[language == "en"])).replace(".", "")
    return " ".join(word for word in text.split() if word.strip("'-"))


class _CharacterRules(dict[int, str]):
    """The replacement of every character, for str.translate; each is computed when the character first occurs."""

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
            self[code] = character  # keep a letter without an English spelling, so that it is reported
        return self[code]


_RULES = (_CharacterRules(to_english=False), _CharacterRules(to_english=True))


def _without_punctuation(character: str) -> str:
    """Return the character, nothing, or a space in its place."""
    category = unicodedata.category(character)
    if character in _MARKS or character in _SPOKEN:
        return character
    if category in ("Pd", "Cc"):
        return " "
    return "" if category[0] == "P" or category == "Cf" else character


def least_outputs(tokens: npt.NDArray[np.uint8]) -> int:
    """Return the number of outputs that CTC needs for a target: one per token and a blank between equal neighbours."""
    return int(tokens.size + np.count_nonzero(tokens[1:] == tokens[:-1]))
