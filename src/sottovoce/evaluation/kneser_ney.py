"""N-gram language models by interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998).

For a word w after a context h of up to order - 1 words,

    p(w | h) = (a(h w) - D(a(h w))) / sum_v a(h v) + gamma(h) p(w | h without its first word)

with D = D1, D2 or D3 for a count of 1, 2, or 3 and more, and gamma(h) such that the probabilities of a context add up
to one. a counts occurrences for the highest order and for n-grams that begin a sentence, and distinct words before the
n-gram elsewhere. Below single words there is the uniform distribution over all words, </s> and <unk>. The discounts
follow from how many n-grams of an order have a count of 1, 2, 3 and 4, as Chen and Goodman's equation 26 has it. A text
too small or too regular for that gets D = (0.5, 1, 1.5), the numbers that KenLM's lmplz falls back to; otherwise too,
both agree.

All n-grams are in memory: a million words of text take two seconds and 0.2 GB. For far more, use lmplz: `sotto`
reads its models.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sottovoce.errors import ConfigError, DataError

UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"
MAX_ORDER = 6  # KenLM's own limit, and so that of the decoder
_UNKNOWN_ID, _BEGIN_ID, _END_ID = range(3)
_FALLBACK = (0.0, 0.5, 1.0, 1.5)
_NEVER = -99.0  # log10 of the probability of <s>, which nothing predicts

Ids = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Grams:
    """The n-grams of one order: `prefix` and `word` say which they are, the rest what is known about them."""

    prefix: Ids  # the place of all words but the last among the n-grams one order below
    word: Ids  # the last word
    log_prob: Values  # log10 p(word | prefix)
    log_backoff: Values  # log10 gamma, as a context of the next order


@dataclass(frozen=True)
class NgramModel:
    """A back-off model in ARPA's terms: `grams[n - 1]` has the n-grams of order n, `words` all words by number."""

    words: tuple[str, ...]
    grams: tuple[Grams, ...]
    sentences: int
    fallbacks: tuple[int, ...]  # orders whose discounts did not follow from the text

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.grams)


def build(sentences: Iterable[Sequence[str]], order: int) -> NgramModel:
    """Return the model of some sentences, each a sequence of words (or characters).

    Raise ConfigError for an order that the decoder cannot use, DataError where there is no word.

    Example: `build([text.split() for text in ("one two", "two one")], order=2)`
    """
    if not 1 <= order <= MAX_ORDER:
        raise ConfigError(f"Expected an order from 1 to {MAX_ORDER}, not {order}.")
    words, ids, depths = _numbered(sentences)
    if len(words) <= _END_ID + 1:
        raise DataError("There is no text to build a language model from. Give a file with a sentence per line.")
    counted = _count(ids, depths, len(words), order)
    grams: list[Grams] = []
    fallbacks = []
    for number, own in enumerate(counted, start=1):
        counts = own.occurrences if number == order else _adjusted(own, counted[number])
        discounts = _discounts(own, counts)
        if discounts is None:
            discounts = _FALLBACK
            fallbacks.append(number)
        probabilities, gammas = _smoothed(own, counts, np.array(discounts), grams)
        if grams:  # the contexts are the n-grams one order below
            below = grams[-1]
            grams[-1] = Grams(below.prefix, below.word, below.log_prob, _log10(gammas))
        grams.append(Grams(own.prefix, own.word, _log10(probabilities), np.zeros(len(own.word))))
    return NgramModel(tuple(words), tuple(grams), int(np.count_nonzero(depths == 0)), tuple(fallbacks))


@dataclass(frozen=True)
class _Counted:
    """The n-grams of one order as they occur in the text."""

    prefix: Ids
    suffix: Ids  # the place of all words but the first among the n-grams one order below
    word: Ids
    occurrences: Ids
    begins: npt.NDArray[np.bool_]  # whether the first word is <s>
    real: npt.NDArray[np.bool_]  # whether it is predicted at all: not <s>, and not <unk>, which does not occur


def _numbered(sentences: Iterable[Sequence[str]]) -> tuple[list[str], Ids, Ids]:
    """Return all words, the text as their numbers with <s> and </s>, and the place of each in its sentence."""
    numbers = {UNKNOWN: _UNKNOWN_ID, BEGIN: _BEGIN_ID, END: _END_ID}
    ids, depths = array("i"), array("i")
    for sentence in sentences:
        if not sentence:
            continue
        ids.append(_BEGIN_ID)
        ids.extend(numbers.setdefault(word, len(numbers)) for word in sentence)
        ids.append(_END_ID)
        depths.extend(range(len(sentence) + 2))
    return list(numbers), np.array(ids, dtype=np.int64), np.array(depths, dtype=np.int64)


def _count(ids: Ids, depths: Ids, words: int, order: int) -> list[_Counted]:
    """Count the n-grams of every order. An n-gram is found by its prefix, one order below, and its last word."""
    everyone = np.arange(words)
    nowhere = np.zeros(words, dtype=np.int64)
    real = (everyone != _BEGIN_ID) & (everyone != _UNKNOWN_ID)
    single = _Counted(nowhere, nowhere, everyone, np.bincount(ids, minlength=words), everyone == _BEGIN_ID, real)
    counted = [single]
    places = ids  # for every place of the text, the n-gram that ends there
    for number in range(2, order + 1):
        ends = np.flatnonzero(depths >= number - 1)
        keys = places[ends - 1] * words + ids[ends]
        unique, firsts, inverse, occurrences = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        prefix = unique // words
        begins = counted[-1].begins[prefix]
        suffix = places[ends[firsts]]
        counted.append(_Counted(prefix, suffix, unique % words, occurrences, begins, np.ones(len(unique), bool)))
        places = np.zeros(len(ids), dtype=np.int64)
        places[ends] = inverse
    return counted


def _adjusted(own: _Counted, above: _Counted) -> Ids:
    """Return how many distinct words come before each n-gram; of one that begins a sentence, its occurrences."""
    return np.where(own.begins, own.occurrences, np.bincount(above.suffix, minlength=len(own.word)))


def _discounts(own: _Counted, counts: Ids) -> tuple[float, ...] | None:
    """Return the discount of the counts 0, 1, 2, and 3 and more; None where the text does not determine them."""
    of = np.bincount(np.minimum(counts[own.real], 5), minlength=6).astype(float)
    if not of[1:4].all():
        return None
    y = of[1] / (of[1] + 2 * of[2])
    discounts = tuple(count - (count + 1) * y * of[count + 1] / of[count] if count else 0.0 for count in range(4))
    return discounts if all(0 <= discount <= count for count, discount in enumerate(discounts)) else None


def _smoothed(own: _Counted, counts: Ids, discounts: Values, grams: Sequence[Grams]) -> tuple[Values, Values]:
    """Return p of every n-gram, and gamma of every context: the n-grams one order below, or the empty one."""
    contexts = len(grams[-1].word) if grams else 1
    kept = np.where(own.real, counts, 0)
    discount = discounts[np.minimum(kept, 3)]
    totals = np.bincount(own.prefix, weights=kept, minlength=contexts)
    seen = totals > 0
    gammas = np.ones(contexts)  # a context after which nothing came leaves all to the order below
    gammas[seen] = np.bincount(own.prefix, weights=discount, minlength=contexts)[seen] / totals[seen]
    # <s> is never predicted, so it is not among the words that share what is left.
    below = 10.0 ** grams[-1].log_prob[own.suffix] if grams else (own.word != _BEGIN_ID) / (len(own.word) - 1)
    return (kept - discount) / totals[own.prefix] + gammas[own.prefix] * below, gammas


def _log10(probabilities: Values) -> Values:
    return np.log10(probabilities, where=probabilities > 0, out=np.full(len(probabilities), _NEVER))
