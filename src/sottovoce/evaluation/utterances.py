"""Recognised utterances and their errors; jiwer counts the edits. Nothing here loads torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import jiwer
import numpy as np

from sottovoce.evaluation.scores import Scores


@dataclass(frozen=True)
class ScoredUtterance:
    """The text that the model recognised in one utterance, and its errors."""

    row: int
    loss: float
    reference: str
    hypothesis: str
    words: int  # of the reference
    substitutions: int
    deletions: int
    insertions: int
    character_edits: int
    characters: int

    @property
    def word_edits(self) -> int:
        """All word errors."""
        return self.substitutions + self.deletions + self.insertions


def compare(row: int, loss: float, reference: str, hypothesis: str) -> ScoredUtterance:
    """Count the edits between reference and hypothesis, in words and in characters."""
    words, characters = jiwer.process_words(reference, hypothesis), jiwer.process_characters(reference, hypothesis)
    return ScoredUtterance(
        row=row,
        loss=loss,
        reference=reference,
        hypothesis=hypothesis,
        words=words.hits + words.substitutions + words.deletions,
        substitutions=words.substitutions,
        deletions=words.deletions,
        insertions=words.insertions,
        character_edits=characters.substitutions + characters.deletions + characters.insertions,
        characters=characters.hits + characters.substitutions + characters.deletions,
    )


def score(utterances: Sequence[ScoredUtterance]) -> Scores:
    """Return the corpus figures of some utterances."""
    words = sum(utterance.words for utterance in utterances)
    return Scores(
        utterances=len(utterances),
        loss=float(np.mean([utterance.loss for utterance in utterances])),
        wer=sum(utterance.word_edits for utterance in utterances) / words,
        cer=sum(utterance.character_edits for utterance in utterances)
        / sum(utterance.characters for utterance in utterances),
        words=words,
    )


def word_errors(reference: str, hypothesis: str) -> list[dict[str, str]]:
    """Return the wrong words in the order of the text: an absent key is what a deletion or an insertion lacks."""
    aligned = jiwer.process_words(reference, hypothesis)
    said, heard = aligned.references[0], aligned.hypotheses[0]
    errors: list[dict[str, str]] = []
    for chunk in aligned.alignments[0]:
        if chunk.type == "substitute":
            pairs = zip(
                said[chunk.ref_start_idx : chunk.ref_end_idx],
                heard[chunk.hyp_start_idx : chunk.hyp_end_idx],
                strict=True,
            )
            errors += [{"error": "substitution", "reference": one, "hypothesis": other} for one, other in pairs]
        elif chunk.type == "delete":
            errors += [
                {"error": "deletion", "reference": word} for word in said[chunk.ref_start_idx : chunk.ref_end_idx]
            ]
        elif chunk.type == "insert":
            errors += [
                {"error": "insertion", "hypothesis": word} for word in heard[chunk.hyp_start_idx : chunk.hyp_end_idx]
            ]
    return errors
