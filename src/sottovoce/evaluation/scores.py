"""How well a model recognises some speech: error rates over all utterances, for each speaker and by group.

These are the shapes of evaluation.json and of `sotto eval --json`, in the order of their keys. They load no torch.
"""

from pydantic import BaseModel, ConfigDict


class Scores(BaseModel):
    """The figures of some utterances. WER and CER are all edits over all reference words or characters."""

    model_config = ConfigDict(frozen=True)

    utterances: int
    loss: float  # the mean over utterances
    wer: float
    cer: float
    words: int  # of the references


class _Speaker(BaseModel):
    speaker: str


class SpeakerScores(Scores, _Speaker):
    """The figures of one speaker, who is named first."""


class GroupScores(Scores):
    """The figures of a group of speakers, such as one accent."""

    speakers: int  # how many


class SpeakerSummary(BaseModel):
    """How WER is spread over speakers."""

    model_config = ConfigDict(frozen=True)

    count: int
    mean_wer: float
    wer_quantiles: dict[str, float]  # by the quantile's name, such as "0.5"
    wer: dict[str, float]  # by speaker
    word_edits: dict[str, int] = {}  # by speaker; empty in files of older versions, as are words
    words: dict[str, int] = {}  # of the references, by speaker
    worst: list[SpeakerScores]  # the highest WER first


class Breakdown(Scores):
    """The figures of all utterances, of their speakers and of groups."""

    speakers: SpeakerSummary
    groups: dict[str, dict[str, GroupScores]]  # by column of the index, then by value

    @property
    def total(self) -> Scores:
        """The figures over all utterances alone."""
        return Scores(**{name: getattr(self, name) for name in Scores.model_fields})
