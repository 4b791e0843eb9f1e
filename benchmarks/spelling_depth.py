"""How deep the spelling of the synthetic vocabularies is: letters against the phonemes of eSpeak NG.

    python benchmarks/spelling_depth.py

Every word's letters are aligned with its phonemes: a phoneme is written by 0 to 5 letters, and the alignment that makes
the whole list likeliest is sought by hard EM. Three figures follow: letters per phoneme, the number of spellings of a
phoneme, and the conditional entropy of the spelling given the phoneme, in bits per phoneme. The last two weigh phonemes
by how often they occur. eSpeak NG is under the GPL: only this script loads it, and nothing of the package does.
"""

import ctypes
import math
import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Sequence

import espeakng_loader

from sottovoce.data.corpora.grammar import Grammar, Words
from sottovoce.data.text import LANGUAGES

WORDS = 120
_MOST_LETTERS = 5
_ROUNDS = 20
_SMOOTHING = 0.1
_IPA_WITH_SEPARATOR = 0x02 | ord("_") << 8
_VOICES = {"en": "en-us", "fr": "fr", "de": "de"}
_STRESS = str.maketrans("", "", "ˈˌ-")

Pair = tuple[str, str]  # a phoneme and its letters


def phonemes_of(words: Sequence[str], language: str) -> list[list[str]]:
    """Return the phonemes of every word, without stress; for a new process, because the engine carries state."""
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    library.espeak_Initialize.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    library.espeak_TextToPhonemes.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int]
    library.espeak_Initialize(2, 0, str(espeakng_loader.get_data_path()).encode(), 0x8000)
    library.espeak_SetVoiceByName(_VOICES[language].encode())
    found = []
    for word in words:
        buffer = ctypes.create_string_buffer(word.encode(), 256)  # the engine reads a little beyond the end
        text = ctypes.c_void_p(ctypes.addressof(buffer))
        spoken = library.espeak_TextToPhonemes(ctypes.byref(text), 1, _IPA_WITH_SEPARATOR).decode()
        parts = spoken.translate(_STRESS).replace(" ", "_").split("_")
        found.append([part for part in parts if part and not part.startswith("(")])  # (en): a word of another language
    return found


def aligned(word: str, phonemes: Sequence[str], cost: dict[Pair, float], unseen: float) -> list[Pair]:
    """Return the cheapest alignment."""
    best: dict[tuple[int, int], tuple[float, list[Pair]]] = {(0, 0): (0.0, [])}
    for place, phoneme in enumerate(phonemes):
        for end in range(len(word) + 1):
            options = []
            for length in range(min(_MOST_LETTERS, end) + 1):
                before = best.get((place, end - length))
                if before is not None:
                    pair = (phoneme, word[end - length : end])
                    options.append((before[0] + cost.get(pair, unseen + 2 * abs(length - 1)), [*before[1], pair]))
            if options:
                best[place + 1, end] = min(options)
    return best[len(phonemes), len(word)][1]


def depth(words: Sequence[str], phonemes: Sequence[Sequence[str]]) -> tuple[float, float, float]:
    """Return letters per phoneme, spellings per phoneme and the entropy of the spelling given the phoneme."""
    cost: dict[Pair, float] = {}
    pairs: Counter[Pair] = Counter()
    for _ in range(_ROUNDS):
        pairs = Counter(
            pair for word, spoken in zip(words, phonemes, strict=True) for pair in aligned(word, spoken, cost, 6.0)
        )
        totals: Counter[str] = Counter()
        for (phoneme, _letters), count in pairs.items():
            totals[phoneme] += count
        cost = {pair: -math.log((count + _SMOOTHING) / (totals[pair[0]] + 1)) for pair, count in pairs.items()}
    spellings: dict[str, set[str]] = defaultdict(set)
    for phoneme, letters in pairs:
        spellings[phoneme].add(letters)
    everything = sum(totals.values())
    entropy = -sum(count * math.log2(count / totals[phoneme]) for (phoneme, _), count in pairs.items()) / everything
    mean_spellings = sum(totals[phoneme] * len(known) for phoneme, known in spellings.items()) / everything
    return sum(map(len, words)) / everything, mean_spellings, entropy


def main() -> None:
    """Print a table for both kinds of words of every language."""
    print("| words | language | letters per phoneme | spellings of a phoneme | bits per phoneme |")
    print("|---|---|---|---|---|")
    kinds: tuple[Words, ...] = ("everyday", "spelling")
    for kind in kinds:
        for language in LANGUAGES:
            words = sorted(Grammar.load(language, WORDS, kind).words)
            with multiprocessing.get_context("spawn").Pool(1) as process:
                spoken = process.apply(phonemes_of, (words, language))
            figures = depth(words, spoken)
            print(f"| {kind} | {language} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")


if __name__ == "__main__":
    main()
