"""Spelling out what a transcript holds beyond the letters of its language, so that no test utterance is dropped.

The rule of `normalise` (text.py), which is the paper's, comes first and alone decides text that it covers. Only where
characters without a token remain, and `unknown_letters` is `keep`, this happens to the raw text:

- Numbers become words (num2words): 42, 1,000 (en) or 1.000 (fr, de), 3.5 or 3,5, 2nd or 2e, and years of four digits.
  Digits after a leading 0 are read one by one.
- `&` and `%` become words.
- Latin letters of other languages become letters of the token set (unidecode): "señor" is "senor" in French.

What still has no token, such as a currency sign or another script, stays in the full reference, by which evaluation
counts errors: such a word is an error whatever the model writes. The target holds all other characters. Trainings leave
such an utterance out (`Population.trainable`).
"""

import re
import unicodedata
from typing import Literal

from unidecode import unidecode

from sottovoce.data.text import TokenSet, normalise

UnknownLetters = Literal["reject", "keep"]
REJECT: UnknownLetters = "reject"
KEEP: UnknownLetters = "keep"

_SIGNS = {"en": ("and", "percent"), "fr": ("et", "pour cent"), "de": ("und", "prozent")}
_ORDINAL_ENDS = {"en": "st|nd|rd|th", "fr": "ers?|res?|e|ème|eme", "de": "te[nrsm]?"}
_GROUPED = {"en": r"\d{1,3}(?:,\d{3})+", "fr": r"\d{1,3}(?:[.\u00a0\u202f]\d{3})+", "de": r"\d{1,3}(?:\.\d{3})+"}
_POINT = {"en": r"\.", "fr": ",", "de": ","}
_NUMBERS = {
    language: re.compile(
        rf"(?<![\d.,])(?:(?P<grouped>{_GROUPED[language]})|(?P<decimal>\d+{_POINT[language]}\d+)"
        rf"|(?P<ordinal>\d+)(?:{_ORDINAL_ENDS[language]})(?!\w)|(?P<plain>\d+))(?![.,]?\d)",
        re.ASCII,
    )
    for language in _SIGNS
}
_MOST_DIGITS = 15  # a longer number is no quantity
_YEARS = range(1100, 2000)  # four digits that are read in hundreds


def spelt_out(raw: str, language: str, tokens: TokenSet) -> str:
    """Return the normalised text of a raw one, its numbers, signs and foreign letters spelt out where that is possible.

    Example: `spelt_out("The 2nd of 1,000", "en", TokenSet(("en",)))` is "the second of one thousand"
    """
    composed = unicodedata.normalize("NFKC", raw)
    spoken = _NUMBERS[language].sub(lambda number: _apart(_words(number, language), number), composed)
    for sign, word in zip("&%", _SIGNS[language], strict=True):
        spoken = spoken.replace(sign, f" {word} ")
    text = normalise(spoken, language)
    return normalise("".join(_nearest(character, tokens) for character in text), language)


def writable(text: str, tokens: TokenSet) -> str:
    """Return a normalised text without the characters that have no token."""
    unknown = set(tokens.unknown(text))
    kept = "".join(character for character in text if character not in unknown)
    return " ".join(word for word in kept.split() if word.strip("'-"))


def _words(number: re.Match[str], language: str) -> str:
    """Return a number in words; digits that are no quantity as they are."""
    from num2words import num2words  # noqa: PLC0415 - slow to load, and seldom needed

    kind, digits = str(number.lastgroup), number[str(number.lastgroup)]
    if len(digits) > _MOST_DIGITS:
        return number[0]
    if kind == "decimal":
        return str(num2words(digits.replace(",", "."), lang=language))
    if kind == "plain" and digits.startswith("0") and len(digits) > 1:
        return " ".join(str(num2words(int(digit), lang=language)) for digit in digits)
    value = int(re.sub(r"\D", "", digits))
    if kind == "ordinal":
        return str(num2words(value, lang=language, to="ordinal"))
    is_year = kind == "plain" and value in _YEARS and language != "fr"
    return str(num2words(value, lang=language, to="year" if is_year else "cardinal"))


def _apart(words: str, number: re.Match[str]) -> str:
    """Return the words of a number with spaces where the number touches other characters, hyphens aside: "mp3"."""
    before, after = number.string[: number.start()][-1:], number.string[number.end() :][:1]
    return f"{'' if before in ' -' else ' '}{words}{'' if after in ' -' else ' '}"


def _nearest(character: str, tokens: TokenSet) -> str:
    """Return the spelling of a foreign Latin letter in the token set; any other character as it is."""
    if not tokens.unknown(character) or not unicodedata.name(character, "").startswith("LATIN"):
        return character
    spelling = unidecode(character).lower()
    return character if not spelling or tokens.unknown(spelling) else spelling
