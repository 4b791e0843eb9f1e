"""Evaluation: error rates of a model on speech, and the text of audio files.

    scores          Scores, SpeakerScores, GroupScores, SpeakerSummary, Breakdown: error rates and their spread
    evaluation      `evaluate` recognises the utterances of a store; `score` and `break_down` add up the errors
    models          Model: a trained model with `transcribe` and `evaluate`; `load` reads one
    transcription   `transcribe` turns an audio file into a Transcript, a text with the time of every Word

Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.evaluation.breakdown import break_down, default_columns, group_columns
    from sottovoce.evaluation.model import Model, load
    from sottovoce.evaluation.scores import Breakdown, GroupScores, Scores, SpeakerScores, SpeakerSummary
    from sottovoce.evaluation.scoring import ScoredUtterance, compare, evaluate, score
    from sottovoce.evaluation.transcription import Transcript, Word, transcribe

__all__ = [
    "Breakdown",
    "GroupScores",
    "Model",
    "ScoredUtterance",
    "Scores",
    "SpeakerScores",
    "SpeakerSummary",
    "Transcript",
    "Word",
    "break_down",
    "compare",
    "default_columns",
    "evaluate",
    "group_columns",
    "load",
    "score",
    "transcribe",
]

__getattr__ = lazy_names(
    __name__,
    {
        "breakdown": "break_down default_columns group_columns",
        "model": "Model load",
        "scores": "Breakdown GroupScores Scores SpeakerScores SpeakerSummary",
        "scoring": "ScoredUtterance compare evaluate score",
        "transcription": "Transcript Word transcribe",
    },
)
