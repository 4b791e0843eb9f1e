"""Speaker statistics as in the paper's table of data sets: hours, speakers, minutes per speaker."""

from collections.abc import Iterable
from dataclasses import dataclass

from sottovoce.data.population import Population


@dataclass(frozen=True)
class SpeakerStatistics:
    """A row of the table; the minutes are minutes of audio per speaker."""

    subset: str
    hours: float
    speakers: int
    utterances: int
    minutes_mean: float
    minutes_std: float
    minutes_min: float
    minutes_max: float
    unwritable: int = 0  # utterances whose text has characters without a token


@dataclass(frozen=True)
class PaperStatistics:
    """A row of the table as the paper prints it."""

    hours: float
    speakers: int
    minutes_mean: float
    minutes_std: float
    minutes_min: float
    minutes_max: float


def statistics_of(subset: str, population: Population) -> SpeakerStatistics:
    """Return the statistics of a population, all 0 if it is empty.

    The deviation is the one of all its speakers, not the estimate from a sample.
    """
    minutes = population.seconds_by_user() / 60
    empty = len(minutes) == 0
    return SpeakerStatistics(
        subset=subset,
        hours=float(minutes.sum() / 60),
        speakers=len(minutes),
        utterances=int(population.utterances_by_user().sum()),
        minutes_mean=0.0 if empty else float(minutes.mean()),
        minutes_std=0.0 if empty else float(minutes.std()),
        minutes_min=0.0 if empty else float(minutes.min()),
        minutes_max=0.0 if empty else float(minutes.max()),
        unwritable=population.unwritable(),
    )


# Table tab:data-stats of the paper.
_PAPER = {
    "LS-100": PaperStatistics(100.6, 251, 24.1, 2.7, 5.5, 25.2),
    "LS-360": PaperStatistics(363.6, 921, 23.7, 3.2, 1.9, 25.3),
    "LS-500": PaperStatistics(496.9, 1_166, 25.6, 5.9, 3.0, 30.3),
    "LS-860": PaperStatistics(860.5, 2_087, 24.7, 5.1, 1.9, 30.3),
    "LS-960": PaperStatistics(961.1, 2_338, 24.7, 4.9, 1.9, 30.3),
    "CV-en-train": PaperStatistics(1593.7, 34_753, 2.8, 32.7, 0.02, 5_049.6),
    "CV-en-train-10": PaperStatistics(149.5, 3_475, 2.6, 17.3, 0.03, 755.1),
    "CV-en-train-90": PaperStatistics(1444.2, 31_278, 2.8, 34.0, 0.02, 5_049.6),
    "CV-en-train-05": PaperStatistics(79.5, 1_737, 2.7, 15.8, 0.03, 508.3),
    "CV-en-train-95": PaperStatistics(1514.2, 33_016, 2.7, 33.4, 0.02, 5_049.6),
    "CV-fr-train": PaperStatistics(727.9, 6_856, 6.4, 57.2, 0.04, 3081.2),
    "CV-fr-train-10": PaperStatistics(47.6, 685, 4.2, 13.6, 0.07, 235.1),
    "CV-fr-train-90": PaperStatistics(680.3, 6_171, 6.6, 60.2, 0.04, 3081.2),
    "CV-de-train": PaperStatistics(852.8, 7_127, 7.2, 89.2, 0.03, 6249.9),
    "CV-de-train-10": PaperStatistics(52.2, 712, 4.4, 11.4, 0.04, 120.8),
    "CV-de-train-90": PaperStatistics(800.6, 6_415, 7.5, 94.0, 0.03, 6249.9),
}


def paper_statistics(subsets: Iterable[str]) -> dict[str, PaperStatistics]:
    """Return the paper's row for every given subset that the paper lists."""
    return {name: _PAPER[name] for name in subsets if name in _PAPER}
