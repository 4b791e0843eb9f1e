"""The sentences of the synthetic corpus: inside their vocabulary and alphabet, at every vocabulary size."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.data.corpora import Synthetic
from sottovoce.data.corpora.grammar import Grammar, GrammarSource
from sottovoce.data.preparation import Request
from sottovoce.data.text import LANGUAGES, TokenSet, normalise
from sottovoce.errors import ConfigError
from sottovoce.randomness import stream

LARGEST = {"en": 541, "fr": 500, "de": 518}
SMALLEST = {"en": 7, "fr": 8, "de": 8}

languages = pytest.mark.parametrize("language", LANGUAGES)


def sentences(grammar: Grammar, count: int, seed: int = 0) -> list[str]:
    rng = stream(seed, "test-grammar")
    return [grammar.sentence(rng) for _ in range(count)]


@languages
def test_every_slot_is_defined_and_used_and_every_entry_is_text(language: str) -> None:
    source = GrammarSource.read(language)
    named = {slot for template in source.templates for slot in re.findall(r"\{(\w+)\}", template)}
    assert named == set(source.slots)
    for slot, entries in source.slots.items():
        assert all(isinstance(entry, str) for entry in entries), slot  # YAML reads a bare `on` as true
        assert len(set(entries)) == len(entries), slot


@languages
def test_there_are_400_words_and_all_are_spelt_with_the_letters_of_the_language(language: str) -> None:
    words = Grammar.load(language, LARGEST[language]).words
    assert len(words) == LARGEST[language] >= 400
    alphabet = set(TokenSet((language,)).tokens)
    assert all(set(word) <= alphabet and word.strip("'-") for word in words)


@languages
@pytest.mark.parametrize("size", [12, 50, 100, 300, None])
def test_sentences_use_the_words_of_the_vocabulary_and_all_of_them(language: str, size: int | None) -> None:
    grammar = Grammar.load(language, size or LARGEST[language])
    drawn = sentences(grammar, 20_000)
    assert {word for sentence in drawn for word in sentence.split()} == grammar.words


@languages
def test_sentences_survive_normalisation_and_have_2_to_12_words(language: str) -> None:
    tokens = TokenSet((language,))
    for sentence in sentences(Grammar.load(language, LARGEST[language]), 3000):
        assert normalise(sentence, language) == sentence
        assert not tokens.unknown(sentence)
        assert 2 <= len(sentence.split()) <= 12


@given(st.data(), st.sampled_from(LANGUAGES))
def test_the_vocabulary_is_as_large_as_asked(data: st.DataObject, language: str) -> None:
    size = data.draw(st.integers(SMALLEST[language], LARGEST[language]))
    grammar = Grammar.load(language, size)
    assert size - 1 <= len(grammar.words) <= size
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    assert set(grammar.sentence(rng).split()) <= grammar.words


@languages
@pytest.mark.parametrize("beyond", ["below", "above"])
def test_a_vocabulary_beyond_the_limits_is_refused_in_one_line(language: str, beyond: str) -> None:
    size = SMALLEST[language] - 1 if beyond == "below" else LARGEST[language] + 1
    limits = f"Expected {SMALLEST[language]} <= vocabulary={size} <= {LARGEST[language]} for language {language}."
    with pytest.raises(ConfigError, match=f"^{limits}$"):
        Grammar.load(language, size)


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^There is no grammar for language 'it'. Choose from en, fr, de.$"):
        Grammar.load("it", 100)


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "my sister sells four green shoes near the market"),
        ("fr", "ma sœur compte quatre pommes fragiles devant la gare"),
        ("de", "meine schwester zählt sechs grüne blumen auf dem markt"),
    ],
)
def test_the_same_stream_gives_the_same_sentence(language: str, sentence: str) -> None:
    assert sentences(Grammar.load(language, 100), 1) == [sentence]


@languages
def test_words_of_telling_spelling_are_140_and_all_of_them_are_drawn(language: str) -> None:
    grammar = Grammar.load(language, 140, "spelling")
    assert len(grammar.words) == 140
    tokens = TokenSet((language,))
    drawn = sentences(grammar, 3000)
    assert {word for sentence in drawn for word in sentence.split()} == grammar.words
    assert all(normalise(sentence, language) == sentence and not tokens.unknown(sentence) for sentence in drawn[:200])
    assert Grammar.load(language, 30, "spelling").words < grammar.words


def test_everyday_words_are_what_a_corpus_without_the_option_has() -> None:
    document = Synthetic().model_dump(mode="json")
    assert "words" not in document
    assert Synthetic(**document) == Synthetic(words="everyday")
    other = Synthetic(words="spelling", vocabulary=120)
    assert other.model_dump(mode="json")["words"] == "spelling"
    assert Synthetic(**other.model_dump()) == other
    assert (
        Request(Synthetic()).hash == "0f67507e1fb329931d7e029d2eed42e53bc2c8f2611b001629fac4f65dcd3a85"
    )  # names folders of benchmarks
