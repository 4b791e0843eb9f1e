"""Beam search with flashlight-text (the extra `decode`), whose hypotheses are texts: scores add up all alignments.

KenLM, which the library holds, computes the language model. It gives log10 probabilities; the weight converts them.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from flashlight.lib.text.decoder import (
    LM,
    CriterionType,
    LexiconDecoder,
    LexiconDecoderOptions,
    LexiconFreeDecoder,
    LexiconFreeDecoderOptions,
    SmearingMode,
    Trie,
    ZeroLM,
)
from flashlight.lib.text.decoder.kenlm import KenLM
from flashlight.lib.text.dictionary import Dictionary
from torch import Tensor

from sottovoce.data.text import BLANK_ID, BOUNDARY, BOUNDARY_ID, TokenSet
from sottovoce.errors import DataError
from sottovoce.evaluation.decoder import Decoder
from sottovoce.evaluation.decoding import Decoding
from sottovoce.evaluation.kneser_ney import UNKNOWN
from sottovoce.evaluation.language_model import LanguageModelFile
from sottovoce.evaluation.transcripts import BestPath
from sottovoce.reading import read_bounded

# Hypotheses that are this much worse than the best one are dropped.
_THRESHOLD = 50.0
# A longer recording is decoded in pieces, each cut in the longest pause of its second half.
_PIECE_OUTPUTS = 1500
_IMPOSSIBLE = -1e4  # a log-probability

Scores = npt.NDArray[np.float32]
Spelling = tuple[int, ...]


class BeamDecoder(Decoder):
    """A beam search; see `Decoding` for what it maximises."""

    def __init__(self, options: Decoding, token_set: TokenSet, language_model: LanguageModelFile | None) -> None:
        """Load the language model and spell the words; raise DataError where they do not fit the tokens."""
        self._tokens = len(token_set.tokens)
        level = None if language_model is None else language_model.level(token_set.tokens)
        words = _words(options, language_model if level == "word" else None)
        spelt = None if words is None else _spelt(words, token_set, options.lexicon or options.lm)
        if language_model is None:
            lm: LM = ZeroLM()
        elif level == "character" or spelt is None:
            _require_boundary(language_model)
            lm = _loaded(language_model.path, token_set.tokens)
        else:
            theirs = {word.lower(): word for word in reversed(language_model.words)}
            lm = _loaded(language_model.path, [*(theirs.get(word.lower(), word) for word in spelt.values()), UNKNOWN])
        weight = options.lm_weight * math.log(10)
        self._search = (
            _free_search(options, weight, lm, self._tokens)
            if spelt is None
            else _word_search(options, weight, lm, list(spelt), self._tokens, tokens_scored=level == "character")
        )

    def path(self, scores: Tensor) -> BestPath:
        """Return the path of the best hypothesis; a long recording is cut in pauses, where sentences end and begin."""
        rest, found = _log_probs(scores), [np.zeros(0, dtype=np.int64)]
        while len(rest) > _PIECE_OUTPUTS:
            cut = _pause(rest[:_PIECE_OUTPUTS].argmax(axis=1))
            found.append(self._decoded(rest[:cut]))
            rest = rest[cut:]
        if len(rest):
            found.append(self._decoded(rest))
        return np.concatenate(found)

    def _decoded(self, log_probs: Scores) -> BestPath:
        # The library takes a boundary at the very beginning for a part of what came before. A blank before it makes
        # it a token like any other, which the language model expects.
        first = np.full((1, self._tokens), _IMPOSSIBLE, dtype=np.float32)
        first[0, BLANK_ID] = 0.0
        emissions = np.ascontiguousarray(np.concatenate([first, log_probs]))
        found = self._search.decode(emissions.ctypes.data, len(emissions), self._tokens)
        # One token before the first output and one after the last are not heard.
        return np.array(found[0].tokens[2:-1], dtype=np.int64) if found else np.zeros(len(log_probs), dtype=np.int64)


def _log_probs(scores: Tensor) -> Scores:
    log_probs: Scores = torch.log_softmax(scores.float(), dim=-1).cpu().numpy()
    if not np.isfinite(log_probs).all():
        raise DataError("The model's scores are not finite numbers: its parameters are damaged. Use another model.")
    return log_probs


def _pause(best: npt.NDArray[np.int64]) -> int:
    """Return the middle of the longest run without letters in the second half; the end where there is none."""
    quiet = np.isin(best, (BLANK_ID, BOUNDARY_ID))
    quiet[: len(best) // 2] = False
    edges = np.flatnonzero(np.diff(np.concatenate([[False], quiet, [False]]).astype(np.int8)))
    if len(edges) == 0:
        return len(best)
    starts, ends = edges[::2], edges[1::2]
    longest = int((ends - starts).argmax())
    return int(starts[longest] + ends[longest]) // 2


def _words(options: Decoding, language_model: LanguageModelFile | None) -> Sequence[str] | None:
    """Return the words that texts may have; None: any."""
    if options.lexicon is None:
        return None if language_model is None else language_model.words
    try:
        return read_bounded(options.lexicon).decode().split()
    except (UnicodeDecodeError, OSError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise DataError(f"{options.lexicon} cannot be read: {reason}. Give a file with one word per line.") from None


def _spelt(words: Sequence[str], token_set: TokenSet, source: Path | None) -> dict[Spelling, str]:
    """Return the words by their tokens, the boundary after them included; words that have none are left out.

    Models of others have capital letters. Where two words are spelt alike, the first one counts.
    """
    spelt: dict[Spelling, str] = {}
    for word in words:
        lower = word.lower()
        if lower and not token_set.unknown(lower):
            spelt.setdefault(tuple(token_set.encode(lower)[1:].tolist()), word)
    if not spelt:
        raise DataError(
            f"No word of {source} can be written with the model's tokens ({'+'.join(token_set.languages)}). "
            "Give words of the model's language."
        )
    return spelt


def _require_boundary(language_model: LanguageModelFile) -> None:
    if BOUNDARY not in language_model.words:
        raise DataError(
            f"{language_model.path} has no {BOUNDARY!r}, the token between words. Build a model of characters with "
            "`sotto lm build --level character`."
        )


def _loaded(path: Path, words: Sequence[str]) -> LM:
    """Load a language model, whose words are numbered as these are."""
    try:
        with _quiet():
            return KenLM(str(path), Dictionary(list(words)))
    except RuntimeError as error:
        said = str(error).strip().splitlines()  # first where it was thrown, then why
        reason = " ".join(said[1:2] or said).strip().rstrip(".")
        raise DataError(f"{path} is not a language model that KenLM can read: {reason}. Build it again.") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep KenLM, which writes to the process's stderr, from drawing a progress bar there."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - a device
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _free_search(options: Decoding, weight: float, lm: LM, tokens: int) -> LexiconFreeDecoder:
    chosen = LexiconFreeDecoderOptions(
        beam_size=options.beam,
        beam_size_token=tokens,
        beam_threshold=_THRESHOLD,
        lm_weight=weight,
        sil_score=options.word_score,
        log_add=True,
        criterion_type=CriterionType.CTC,
    )
    return LexiconFreeDecoder(chosen, lm, BOUNDARY_ID, BLANK_ID, [])


def _word_search(
    options: Decoding, weight: float, lm: LM, spellings: Sequence[Spelling], tokens: int, *, tokens_scored: bool
) -> LexiconDecoder:
    trie = Trie(tokens, BOUNDARY_ID)
    start = lm.start(False)
    for number, spelling in enumerate(spellings):
        trie.insert(list(spelling), number, 0.0 if tokens_scored else lm.score(start, number)[1])
    trie.smear(SmearingMode.NONE if tokens_scored else SmearingMode.MAX)
    chosen = LexiconDecoderOptions(
        beam_size=options.beam,
        beam_size_token=tokens,
        beam_threshold=_THRESHOLD,
        lm_weight=weight,
        word_score=options.word_score,
        unk_score=-math.inf,
        sil_score=0.0,
        log_add=True,
        criterion_type=CriterionType.CTC,
    )
    return LexiconDecoder(chosen, trie, lm, BOUNDARY_ID, BLANK_ID, len(spellings), [], tokens_scored)
