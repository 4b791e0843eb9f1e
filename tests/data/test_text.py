import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.data.text import LANGUAGES, TokenSet, least_outputs, normalise
from sottovoce.errors import ConfigError


def test_token_counts_of_the_paper():
    assert len(TokenSet(("en",)).tokens) == 29 + 1
    assert TokenSet(("en",)).tokens[:5] == ("<blank>", "|", "'", "-", "a")
    assert set(TokenSet(("de",)).tokens) - set(TokenSet(("en",)).tokens) == set("äöüß")
    assert set(TokenSet(("fr",)).tokens) - set(TokenSet(("en",)).tokens) == set("àâæçéèêëîïôœùûüÿ")


def test_several_languages_share_one_set():
    assert set(TokenSet(("en", "fr", "de")).tokens) == set(TokenSet(("fr",)).tokens) | set(TokenSet(("de",)).tokens)


def test_an_unknown_language_is_refused():
    with pytest.raises(ConfigError, match="Language 'xx' is unknown"):
        TokenSet(("xx",))


@pytest.mark.parametrize(
    ("language", "raw", "expected"),
    [
        ("en", "MISTER QUILTER'S GOSPEL", "mister quilter's gospel"),
        ("en", 'He said: "Well-known, isn’t it?"', "he said well-known isn't it"),
        ("en", "Café naïve Æsop Zürich", "cafe naive aesop zurich"),
        ("en", "yes,no", "yes no"),
        ("en", "wait...what", "wait what"),
        ("en", "the U.S.A. today", "the usa today"),
        ("en", "one – two — three", "one two three"),
        ("en", "rock ‐ and‑roll", "rock and-roll"),
        ("en", "soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth"),
        ("en", "tabs\tand\nlines", "tabs and lines"),
        ("fr", "L’été, «c’est» Noël !", "l'été c'est noël"),
        ("fr", "Œuvre naïve à ÿ", "œuvre naïve à ÿ"),
        ("fr", "e\u0301te\u0301", "été"),
        ("de", "Große STRASSE, Übermäßig ẞ", "große strasse übermäßig ß"),
        ("de", "„Geht's?“", "geht's"),
        ("de", "Er rief ‚Ja‘ und ‚Nein‘", "er rief ja und nein"),
        ("en", "‘Yes’ isn‘t", "yes' isn't"),
        ("en", "yes--no", "yes no"),
        ("en", "the end.Then more e.g. this", "the end then more eg this"),
        ("en", " - ' ... ", ""),
        ("en", "", ""),
    ],
)
def test_normalisation(language, raw, expected):
    assert normalise(raw, language) == expected


@pytest.mark.parametrize(
    ("language", "raw", "unknown"),
    [
        ("en", "the 2nd", "2"),
        ("en", "€5", "€5"),
        ("en", "rock & roll 100 %", "&10%"),
        ("fr", "Straße in München", "ß"),
        ("de", "déjà vu", "éà"),
        ("fr", "señor", "ñ"),
    ],
)
def test_what_people_speak_but_we_cannot_write_is_reported(language, raw, unknown):
    assert TokenSet((language,)).unknown(normalise(raw, language)) == unknown


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_character_is_kept_replaced_or_reported_in_the_same_way_twice(language):
    tokens = TokenSet((language,))
    for code in range(0x110000 if language == "en" else 0x3000):  # languages differ in European letters alone
        character = chr(code)
        if unicodedata.category(character) == "Cn":
            continue
        once = normalise(f"a{character}b", language)
        assert normalise(once, language) == once, hex(code)
        if unicodedata.category(character) in ("Lu", "Ll", "Cs"):  # letters, and bytes that were not UTF-8
            assert once != "ab" or tokens.unknown(once), hex(code)


@given(st.text(), st.sampled_from(LANGUAGES))
def test_normalisation_is_idempotent_and_tidy(text, language):
    once = normalise(text, language)
    assert normalise(once, language) == once
    assert once == " ".join(once.split())


@given(st.text(alphabet="abcz'- äß"), st.just("de"))
def test_encoding_can_be_undone(text, language):
    tokens, clean = TokenSet((language,)), normalise(text, language)
    encoded = tokens.encode(clean)
    assert encoded[0] == encoded[-1] == 1
    assert tokens.decode(encoded) == clean


def test_ctc_needs_a_blank_between_equal_neighbours():
    tokens = TokenSet(("en",))
    assert least_outputs(tokens.encode("ab")) == 4
    assert least_outputs(tokens.encode("hello")) == 7 + 1
    assert least_outputs(np.array([5, 5, 5], dtype=np.uint8)) == 5
