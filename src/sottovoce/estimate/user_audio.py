"""How much audio users have: a distribution over users, from the paper's table, a mean and a deviation, or real users.

Of the paper's corpora the table of speaker statistics gives mean, deviation, least and most. They are taken for a
log-normal distribution with that mean and deviation, clipped at least and most, and then moved so that its mean is
the table's again. Promise: the mean is exact; the shape is an assumption.
"""

import csv
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from importlib import resources

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from sottovoce.config import Resolved
from sottovoce.data.corpora import AnyCorpus, Synthetic
from sottovoce.data.corpora.synthetic import speakers_of
from sottovoce.data.statistics import paper_statistics
from sottovoce.errors import ConfigError

Floats = npt.NDArray[np.float64]

DEFAULT_UTTERANCE_SECONDS = 10.0
_DEVIATIONS = 8.5  # how far out a log-normal distribution is followed
_POINTS = 1 << 14


@dataclass(frozen=True, eq=False)
class UserAudio:
    """A distribution of seconds of audio over users: values, ascending, and the share of users that has each."""

    name: str
    seconds: Floats
    shares: Floats
    utterance_seconds: float  # of a typical utterance: attention grows with it

    def mean(self, values: Floats | None = None) -> float:
        """Return the mean over users of what belongs to each of `seconds`; of the seconds themselves by default."""
        return float((self.shares * (self.seconds if values is None else values)).sum())

    @property
    def std(self) -> float:
        """The standard deviation over users."""
        return math.sqrt(max(self.mean(self.seconds**2) - self.mean() ** 2, 0.0))

    def draw(self, users: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Return the places in `seconds` of some users: one from each of as many equal shares, in random order."""
        levels = (rng.permutation(users) + 0.5) / users
        return np.minimum(np.searchsorted(self._cumulative, levels), len(self.seconds) - 1)

    @cached_property
    def _cumulative(self) -> Floats:
        return np.cumsum(self.shares)


def log_normal(
    name: str,
    mean: float,
    std: float,
    limits: tuple[float, float] = (0.0, math.inf),
    utterance_seconds: float = DEFAULT_UTTERANCE_SECONDS,
) -> UserAudio:
    """Return a log-normal distribution with this mean and deviation, clipped at the limits, of the same mean."""
    if not (0 < mean < math.inf and 0 <= std < math.inf):
        raise ConfigError(f"Expected mean audio {mean:g} s > 0 and deviation {std:g} s >= 0, both finite.")
    if not 0 < utterance_seconds < math.inf:
        raise ConfigError(f"Expected utterances of {utterance_seconds:g} s to be longer than 0 and finite.")
    sigma = math.sqrt(math.log1p((std / mean) ** 2))
    deviations = np.linspace(-_DEVIATIONS, _DEVIATIONS, _POINTS)
    shares = np.exp(-(deviations**2) / 2)
    shares /= shares.sum()

    def clipped(shift: float) -> Floats:
        return np.clip(mean * np.exp(sigma * deviations - sigma**2 / 2 + shift), *limits)

    shift = float(brentq(lambda shift: (shares * clipped(shift)).sum() - mean, -5.0, 5.0))
    return UserAudio(name, clipped(shift), shares, utterance_seconds)


def of_users(name: str, seconds: Floats, utterances: int) -> UserAudio:
    """Return the distribution of users whose audio is known one by one; `utterances` is their total number."""
    ordered = np.sort(np.asarray(seconds, dtype=np.float64))
    return UserAudio(name, ordered, np.full(len(ordered), 1 / len(ordered)), float(ordered.sum()) / max(utterances, 1))


def utterances_of_the_paper() -> dict[str, float]:
    """Return the typical length of an utterance (an assumption) of every corpus in the paper's table."""
    text = (resources.files("sottovoce") / "estimate" / "corpora.csv").read_text(encoding="utf-8")
    return {row["subset"]: float(row["utterance_seconds"]) for row in csv.DictReader(text.splitlines())}


@cache
def paper_audio(name: str) -> UserAudio:
    """Return the audio per user of a corpus in the paper's table of speaker statistics."""
    lengths = utterances_of_the_paper()
    if name not in lengths:
        raise ConfigError(f"The paper's table has no corpus {name!r}. It has: {', '.join(lengths)}.")
    row = paper_statistics([name])[name]
    minutes = (row.minutes_mean, row.minutes_std, row.minutes_min, row.minutes_max)
    mean, std, least, most = (60 * value for value in minutes)
    return log_normal(name, mean, std, (least, most), lengths[name])


def iid(audio: UserAudio) -> UserAudio:
    """Return the audio of the IID control: utterances dealt at random, about Poisson in number, of typical length."""
    return log_normal(
        f"{audio.name}, IID",
        audio.mean(),
        math.sqrt(audio.mean() * audio.utterance_seconds),
        utterance_seconds=audio.utterance_seconds,
    )


def audio_of(resolved: Resolved) -> UserAudio:
    """Return the audio per user that a configuration implies: of its store, or of the corpus that it names."""
    config = resolved.config
    if config.data.train is not None:
        users = config.data.train.open()
        return of_users(str(config.data.train.store), users.seconds_by_user(), int(users.utterances_by_user().sum()))
    names_a_corpus = any(key.startswith("corpus") for key in resolved.sources)
    if names_a_corpus and isinstance(config.corpus, Synthetic):
        return synthetic_audio(config.corpus)
    name = _paper_name(config.corpus, config.users.seed_fraction) if names_a_corpus else None
    if name is None:
        raise ConfigError(
            f"{resolved.name} does not tell how much audio a user has. Give --audio with a corpus of the paper such as "
            "CV-en-train, --audio-mean-seconds with --audio-std-seconds, or a store with --train."
        )
    return paper_audio(name)


def _paper_name(corpus: AnyCorpus, seed_fraction: str | None) -> str | None:
    """Return the name that the paper's table has for a corpus, less the part for the seed model if it lists that."""
    name = corpus.paper_name
    rest = "" if seed_fraction is None else f"{name}-{round(100 * (1 - Fraction(seed_fraction))):02d}"
    known = utterances_of_the_paper()
    return next((one for one in (rest, name) if one in known), None)


def synthetic_audio(corpus: Synthetic) -> UserAudio:
    """Return the audio per user of a corpus that need not be generated yet."""
    utterances = np.array([speaker.utterances for speaker in speakers_of(corpus)], dtype=np.float64)
    total = int(utterances.sum())
    return of_users(corpus.label, utterances * corpus.expected_seconds() / total, total)
