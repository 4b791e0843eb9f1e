"""Speaker statistics as in the paper's table of data sets: hours, speakers, minutes per speaker."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sottovoce.data.population import Population


@dataclass(frozen=True)
class SpeakerStatistics:
    """One row of the table."""

    subset: str
    hours: float
    speakers: int
    utterances: int
    minutes_mean: float
    minutes_std: float
    minutes_min: float
    minutes_max: float

    def document(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return asdict(self)


def statistics_of(subset: str, population: Population) -> SpeakerStatistics:
    """Return the statistics of a population; the deviation is over all its speakers, not a sample's."""
    return summarise(subset, population.seconds_by_user(), int(population.utterances_by_user().sum()))


def summarise(subset: str, seconds: npt.NDArray[np.float64], utterances: int) -> SpeakerStatistics:
    """Return the statistics of speakers with these seconds of audio."""
    minutes = seconds / 60
    empty = len(minutes) == 0
    return SpeakerStatistics(
        subset=subset,
        hours=float(minutes.sum() / 60),
        speakers=len(minutes),
        utterances=utterances,
        minutes_mean=0.0 if empty else float(minutes.mean()),
        minutes_std=0.0 if empty else float(minutes.std()),
        minutes_min=0.0 if empty else float(minutes.min()),
        minutes_max=0.0 if empty else float(minutes.max()),
    )


_PAPER_COLUMNS = ("hours", "speakers", "minutes_mean", "minutes_std", "minutes_min", "minutes_max")
# Table tab:data-stats of the paper.
_PAPER = {
    "LS-100": (100.6, 251, 24.1, 2.7, 5.5, 25.2),
    "LS-360": (363.6, 921, 23.7, 3.2, 1.9, 25.3),
    "LS-500": (496.9, 1_166, 25.6, 5.9, 3.0, 30.3),
    "LS-860": (860.5, 2_087, 24.7, 5.1, 1.9, 30.3),
    "LS-960": (961.1, 2_338, 24.7, 4.9, 1.9, 30.3),
    "CV-en-train": (1593.7, 34_753, 2.8, 32.7, 0.02, 5_049.6),
    "CV-en-train-10": (149.5, 3_475, 2.6, 17.3, 0.03, 755.1),
    "CV-en-train-90": (1444.2, 31_278, 2.8, 34.0, 0.02, 5_049.6),
    "CV-en-train-05": (79.5, 1_737, 2.7, 15.8, 0.03, 508.3),
    "CV-en-train-95": (1514.2, 33_016, 2.7, 33.4, 0.02, 5_049.6),
    "CV-fr-train": (727.9, 6_856, 6.4, 57.2, 0.04, 3081.2),
    "CV-fr-train-10": (47.6, 685, 4.2, 13.6, 0.07, 235.1),
    "CV-fr-train-90": (680.3, 6_171, 6.6, 60.2, 0.04, 3081.2),
    "CV-de-train": (852.8, 7_127, 7.2, 89.2, 0.03, 6249.9),
    "CV-de-train-10": (52.2, 712, 4.4, 11.4, 0.04, 120.8),
    "CV-de-train-90": (800.6, 6_415, 7.5, 94.0, 0.03, 6249.9),
}


def paper_statistics(subsets: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the paper's rows for those of the subsets that it lists."""
    return {name: dict(zip(_PAPER_COLUMNS, _PAPER[name], strict=True)) for name in subsets if name in _PAPER}
