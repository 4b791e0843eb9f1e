"""Evaluation: error rates of a model on speech, and the text of audio files.

    scores          Scores, SpeakerScores, GroupScores, SpeakerSummary, Breakdown: error rates and their spread
    evaluation      `evaluate` recognises the utterances of a store; `compare` counts the errors of one, `score` and
                    `break_down` add them up, by Grouping; `groupings` and `default_columns` choose these
    statistics      Counts: word errors by speaker; `estimate` and MeanOverSeeds, `difference` and Difference: intervals
                    by a bootstrap over speakers
    models          Model: a trained model with `transcribe` and `evaluate`; `load` reads one
    transcription   `transcribe` turns an audio file into a Transcript, a text with the time of every Word;
                    `transcribe_files` many of them, with several processes
    decoding        Decoding: greedy, or a beam search with a language model; `open_language_model` reads one

Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.evaluation.breakdown import break_down
    from sottovoce.evaluation.decoding import Decoding
    from sottovoce.evaluation.file_transcription import Unread, transcribe_files
    from sottovoce.evaluation.grouping import Grouping, default_columns, groupings
    from sottovoce.evaluation.intervals import Counts, MeanOverSeeds, estimate
    from sottovoce.evaluation.language_model import LanguageModelFile, open_language_model
    from sottovoce.evaluation.model import Model, load
    from sottovoce.evaluation.scores import Breakdown, GroupScores, Scores, SpeakerScores, SpeakerSummary
    from sottovoce.evaluation.scoring import evaluate
    from sottovoce.evaluation.significance import Difference, difference
    from sottovoce.evaluation.transcription import transcribe
    from sottovoce.evaluation.transcripts import Transcript, Word
    from sottovoce.evaluation.utterances import ScoredUtterance, compare, score

__all__ = [
    "Breakdown",
    "Counts",
    "Decoding",
    "Difference",
    "GroupScores",
    "Grouping",
    "LanguageModelFile",
    "MeanOverSeeds",
    "Model",
    "ScoredUtterance",
    "Scores",
    "SpeakerScores",
    "SpeakerSummary",
    "Transcript",
    "Unread",
    "Word",
    "break_down",
    "compare",
    "default_columns",
    "difference",
    "estimate",
    "evaluate",
    "groupings",
    "load",
    "open_language_model",
    "score",
    "transcribe",
    "transcribe_files",
]

__getattr__ = lazy_names(
    __name__,
    {
        "breakdown": "break_down",
        "decoding": "Decoding",
        "file_transcription": "Unread transcribe_files",
        "grouping": "Grouping default_columns groupings",
        "intervals": "Counts MeanOverSeeds estimate",
        "language_model": "LanguageModelFile open_language_model",
        "model": "Model load",
        "scores": "Breakdown GroupScores Scores SpeakerScores SpeakerSummary",
        "scoring": "evaluate",
        "significance": "Difference difference",
        "transcription": "transcribe",
        "transcripts": "Transcript Word",
        "utterances": "ScoredUtterance compare score",
    },
)
