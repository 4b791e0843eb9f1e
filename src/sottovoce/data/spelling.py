"""Spelling out what a transcript holds beyond the letters of its language, so that no test utterance is dropped.

The rule of `normalise` (text.py), which is the paper's, comes first and alone decides text that it covers. Only where
characters without a token remain, and `unknown_letters` is `keep`, this happens to the raw text:

- Numbers become words (num2words): 42, 1,000 (en) or 1.000 (fr, de), 3.5 or 3,5, 2nd or 2e, and years of four digits.
  Digits after a leading 0 are read one by one. What is not surely a number of that language stays as it is: 3.14.15,
  1/2, 10 000, 1.000 in English, 0.5 in German.
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
# Everything that may belong to one number; then what surely is a number. A point or comma before three digits may group
# them in another language, unless a 0 comes first.
_CHUNKS = {
    language: re.compile(
        rf"(?<![\d.,/])(?P<digits>(?:[0-9]{{1,3}}(?: [0-9]{{3}})+(?![0-9])|[0-9]+)(?:[.,/'\u2044\u00a0\u202f][0-9]+)*)"
        rf"(?P<ordinal>(?:{ends})(?!\w))?"
    )
    for language, ends in _ORDINAL_ENDS.items()
}
_GROUP = {"en": ",", "fr": r"[.\u00a0\u202f]", "de": r"[.\u00a0\u202f]"}
_POINT = {"en": r"\.", "fr": ",", "de": ","}
_NUMBERS = {
    language: re.compile(
        rf"(?P<plain>[0-9]+)|(?P<grouped>[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+)(?:{_POINT[language]}(?P<cents>[0-9]+))?"
        rf"|(?P<whole>0(?={_POINT[language]})|[0-9]+(?!{_POINT[language]}[0-9]{{3}}$)){_POINT[language]}(?P<part>[0-9]+)"
    )
    for language, group in _GROUP.items()
}
_MOST_DIGITS = 15  # a longer number is no quantity
_YEARS = range(1100, 2000)  # four digits that are read in hundreds


def spelt_out(raw: str, language: str, tokens: TokenSet) -> str:
    """Return the normalised text of a raw one, its numbers, signs and foreign letters spelt out where that is possible.

    Example: `spelt_out("The 2nd of 1,000", "en", TokenSet(("en",)))` is "the second of one thousand"
    """
    # Numbers first: NFKC makes digits of ½ and ², and a plain space of one that groups digits.
    read = _CHUNKS[language].sub(lambda chunk: _read(chunk, language), raw)
    spoken = unicodedata.normalize("NFKC", read)
    for sign, word in zip("&%", _SIGNS[language], strict=True):
        spoken = spoken.replace(sign, f" {word} ")
    text = normalise(spoken, language)
    return normalise("".join(_nearest(character, tokens) for character in text), language)


def writable(text: str, tokens: TokenSet) -> str:
    """Return a normalised text without the characters that have no token."""
    unknown = set(tokens.unknown(text))
    kept = "".join(character for character in text if character not in unknown)
    return " ".join(word for word in kept.split() if word.strip("'-"))


def _read(chunk: re.Match[str], language: str) -> str:
    """Return a number in words; what is no number, or no quantity, as it is."""
    number = _NUMBERS[language].fullmatch(chunk["digits"])
    if number is None or len(chunk["digits"]) > _MOST_DIGITS:
        return chunk[0]
    ordinal, part = chunk["ordinal"] is not None, number["cents"] or number["part"]
    if ordinal and part is not None:
        return chunk[0]
    whole = re.sub("[^0-9]", "", number["plain"] or number["grouped"] or number["whole"])
    return _apart(_words(whole, part, language, ordinal=ordinal, plain=number["plain"] is not None), chunk)


def _words(whole: str, part: str | None, language: str, *, ordinal: bool, plain: bool) -> str:
    """Return a number in words, from its digits before and after the decimal point."""
    from num2words import num2words  # noqa: PLC0415 - slow to load, and seldom needed

    if part is not None:
        return str(num2words(f"{whole}.{part}", lang=language))
    if ordinal:
        return str(num2words(int(whole), lang=language, to="ordinal"))
    if whole.startswith("0") and len(whole) > 1:
        return " ".join(str(num2words(int(digit), lang=language)) for digit in whole)
    is_year = plain and int(whole) in _YEARS and language != "fr"
    return str(num2words(int(whole), lang=language, to="year" if is_year else "cardinal"))


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
