"""Sentences for the synthetic corpus: a small built-in grammar per language, reduced to a vocabulary of any size.

Two grammars per language: `everyday` has sentences of daily life, `spelling` strings of 140 words whose spelling is as
deep as the language's: English words that are not written as they sound, French words with silent endings, German words
that are written nearly as they sound.

A grammar has templates, such as "please turn on the {device} in the {room}", and a list of entries for every slot. Its
file is grammars/LANGUAGE.yaml or grammars/LANGUAGE-spelling.yaml. A vocabulary of V words is filled in a fixed order: a
template with the first entry of each of its new slots, then the next entry of every slot so far, then the next
template, and so on. Templates and entries that would exceed V are left out.

Guarantees: the vocabulary has at most V words, and as many as complete templates and entries permit. Every sentence
consists of these words only, and every word has a positive probability. Words are in lower case and consist of the
letters of the language, apostrophes and hyphens.
"""

import functools
import re
from collections.abc import Iterable
from importlib import resources
from typing import Literal, Self

import numpy as np

from sottovoce.data.text import LANGUAGES
from sottovoce.errors import ConfigError
from sottovoce.reading import parse_yaml

Words = Literal["everyday", "spelling"]
_SLOT = re.compile(r"\{(\w+)\}")


class GrammarSource:
    """The content of a grammar's file: all templates and all entries, in order."""

    def __init__(self, templates: list[str], slots: dict[str, list[str]]) -> None:
        """Keep the two parts of the file."""
        self.templates = templates
        self.slots = slots

    @classmethod
    @functools.cache
    def read(cls, language: str, words: Words = "everyday") -> Self:
        """Read a built-in grammar of a language."""
        if language not in LANGUAGES:
            raise ConfigError(f"There is no grammar for language {language!r}. Choose from {', '.join(LANGUAGES)}.")
        name = f"{language}.yaml" if words == "everyday" else f"{language}-{words}.yaml"
        file = resources.files("sottovoce.data.corpora") / "grammars" / name
        return cls(**parse_yaml(file.read_text(encoding="utf-8")))


class _Subset:
    """A subset of a grammar that grows until its vocabulary is full."""

    def __init__(self, source: GrammarSource, limit: float) -> None:
        self._source = source
        self._limit = limit
        self._taken: dict[str, int] = {}  # slot -> number of its entries that were considered
        self.words: set[str] = set()
        self.templates: list[str] = []
        self.entries: dict[str, list[str]] = {}

    def _add(self, texts: Iterable[str]) -> bool:
        """Add the words of the texts if all of them fit; return whether they did."""
        words = self.words.union(*(text.split() for text in texts))
        if len(words) > self._limit:
            return False
        self.words = words
        return True

    def add_template(self, template: str) -> None:
        """Add a template with the first entry of each of its new slots, if all of it fits."""
        new = {slot: self._source.slots[slot][0] for slot in _SLOT.findall(template) if slot not in self.entries}
        if self._add([_SLOT.sub(" ", template), *new.values()]):
            self.templates.append(template)
            self.entries |= {slot: [entry] for slot, entry in new.items()}
            self._taken |= dict.fromkeys(new, 1)

    def add_round(self) -> bool:
        """Add the next entry of every slot if it fits; return False if all entries were already considered."""
        left = False
        for slot, position in list(self._taken.items()):
            for entry in self._source.slots[slot][position : position + 1]:
                left = True
                self._taken[slot] += 1
                if self._add([entry]):
                    self.entries[slot].append(entry)
        return left

    def fill(self) -> Self:
        """Add all templates and entries that fit, in the order of the module docstring."""
        for template in self._source.templates:
            self.add_template(template)
            self.add_round()
        while self.add_round():
            pass
        return self


def _smallest(source: GrammarSource) -> int:
    subset = _Subset(source, np.inf)
    subset.add_template(source.templates[0])
    return len(subset.words)


class Grammar:
    """Random sentences with a vocabulary of a given size."""

    def __init__(self, templates: list[str], entries: dict[str, list[str]], words: Iterable[str]) -> None:
        """Keep the templates, the entries of their slots and all their words; use `load`."""
        self.words = frozenset(words)
        self._entries = entries
        # A template with more slots has more different sentences, so it is drawn more often.
        self._templates = [template for template in templates for _ in range(1 + len(_SLOT.findall(template)))]

    @classmethod
    def load(cls, language: str, vocabulary: int, words: Words = "everyday") -> Self:
        """Return a grammar of a language, reduced to at most `vocabulary` distinct words."""
        source = GrammarSource.read(language, words)
        smallest, largest = _smallest(source), len(_Subset(source, np.inf).fill().words)
        if not smallest <= vocabulary <= largest:
            raise ConfigError(f"Expected {smallest} <= vocabulary={vocabulary} <= {largest} for language {language}.")
        subset = _Subset(source, vocabulary).fill()
        return cls(subset.templates, subset.entries, subset.words)

    def sentence(self, rng: np.random.Generator) -> str:
        """Draw a sentence."""

        def draw(match: re.Match[str]) -> str:
            entries = self._entries[match[1]]
            return entries[rng.integers(len(entries))]

        return _SLOT.sub(draw, self._templates[rng.integers(len(self._templates))])
