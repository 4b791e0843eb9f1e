"""The speakers of the synthetic corpus: voices of eSpeak NG with a pitch, a pace and recording conditions.

Guarantee: a speaker depends only on the seed and the speaker's name, not on the number of speakers.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sottovoce.data.corpora.recording import NOISES, Recording
from sottovoce.randomness import rank, stream

Language = Literal["en", "fr", "de"]
Domain = Literal["clean", "noisy"]
Range = tuple[float, float]

# The accents of eSpeak NG that sound different; fr-be and fr-ch sound exactly like fr.
_ACCENTS: dict[Language, tuple[str, ...]] = {
    "en": ("en", "en-us", "en-gb-x-rp", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029", "en-us-nyc"),
    "fr": ("fr",),
    "de": ("de",),
}
# Its variants, without fast (the same sound as no variant) and RicishayMax, 2 and 3 (an echo as loud as the voice).
# The list must not change: its order and length decide which voice a speaker gets.
_VARIANTS = (
    "",
    *("Alex", "Alicia", "Andrea", "Andy", "Annie", "AnxiousAndy", "Demonic", "Denis", "Diogo", "Gene", "Gene2"),
    *("Henrique", "Hugo", "Jacky", "Lee", "Marco", "Mario", "Michael", "Mike", "Mr serious", "Nguyen", "Reed", "Storm"),
    *("Tweaky", "UniRobot", "adam", "anika", "anikaRobot", "announcer", "antonio", "aunty", "belinda", "benjamin"),
    *("boris", "caleb", "croak", "david", "ed", "edward", "edward2", "f1", "f2", "f3", "f4", "f5", "grandma"),
    *("grandpa", "gustave", "ian", "iven", "iven2", "iven3", "iven4", "john", "kaukovalta", "klatt", "klatt2"),
    *("klatt3", "klatt4", "klatt5", "klatt6", "linda", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "marcelo"),
    *("max", "michel", "miguel", "mike2", "norbert", "pablo", "paul", "pedro", "quincy", "rob", "robert", "robosoft"),
    *("robosoft2", "robosoft3", "robosoft4", "robosoft5", "robosoft6", "robosoft7", "robosoft8", "sandro", "shelby"),
    *("steph", "steph2", "steph3", "travis", "victor", "whisper", "whisperf", "zac"),
)
VOICES: dict[Language, tuple[str, ...]] = {
    language: tuple(f"{accent}+{variant}".rstrip("+") for accent in accents for variant in _VARIANTS)
    for language, accents in _ACCENTS.items()
}
# A telephone, a narrow microphone, a voice channel, a muffled and a dull microphone.
_BANDS: tuple[Range, ...] = ((300, 3400), (100, 5000), (200, 6000), (0, 3000), (0, 4500))


@dataclass(frozen=True)
class UtteranceCounts:
    """The log-normal distribution of the number of utterances per speaker, at least one and at most `most`."""

    mean: float
    tail: float
    most: int

    def draw(self, rng: np.random.Generator) -> int:
        """Draw the number of utterances of one speaker."""
        log_median = math.log(self.mean) - self.tail**2 / 2
        return min(max(round(math.exp(log_median + self.tail * rng.standard_normal())), 1), self.most)


@dataclass(frozen=True)
class Conditions:
    """The difficulty of the domains: the smallest signal-to-noise ratio of each, and the noisy domain's shares.

    `band_share` of the noisy speakers have a poor microphone, `reverb_share` are in a reverberant room. A clean domain
    without a ratio has no noise.
    """

    clean_snr_db: float | None = None
    least_snr_db: float = 3.0
    band_share: float = 0.4
    reverb_share: float = 0.5


@dataclass(frozen=True)
class Speaker:
    """One speaker. Pitch and range go from 0 to 99, the rate is in words per minute."""

    name: str
    language: Language
    domain: Domain
    voice: str
    pitch: int
    pitch_range: int
    rate: int
    recording: Recording
    utterances: int


@dataclass(frozen=True)
class _Style:
    """The ranges from which the speakers of a domain are drawn."""

    pitch: Range
    pitch_range: Range
    rate: Range
    level_db: Range


_STYLES: dict[Domain, _Style] = {
    "clean": _Style(pitch=(30, 70), pitch_range=(30, 70), rate=(115, 165), level_db=(-26, -20)),
    "noisy": _Style(pitch=(10, 90), pitch_range=(10, 90), rate=(95, 190), level_db=(-34, -16)),
}
_SNR_RANGE_DB = 17
_REVERB_SECONDS: Range = (0.15, 0.8)


@functools.cache
def voices_of(seed: int, language: Language, most: int | None) -> Sequence[str]:
    """Return the voices of a language: all, or `most` of them drawn at random."""
    return VOICES[language] if most is None else rank(seed, "synthetic-voices", VOICES[language])[:most]


def draw_speaker(
    seed: int,
    *,
    language: Language,
    domain: Domain,
    number: int,
    counts: UtteranceCounts,
    conditions: Conditions,
    most_voices: int | None = None,
) -> Speaker:
    """Return the speaker with this number in a language and a domain; `most_voices` limits the number of voices."""
    name = f"{language}-{domain}-{number:05d}"
    rng = stream(seed, "synthetic-speaker", name)
    style, voices = _STYLES[domain], voices_of(seed, language, most_voices)
    return Speaker(
        name=name,
        language=language,
        domain=domain,
        utterances=counts.draw(rng),
        voice=voices[int(rng.integers(len(voices)))],
        pitch=round(rng.uniform(*style.pitch)),
        pitch_range=round(rng.uniform(*style.pitch_range)),
        rate=round(rng.uniform(*style.rate)),
        recording=_recording(domain, round(rng.uniform(*style.level_db), 1), conditions, rng),
    )


def _recording(domain: Domain, level_db: float, conditions: Conditions, rng: np.random.Generator) -> Recording:
    noisy = domain == "noisy"
    least = conditions.least_snr_db if noisy else conditions.clean_snr_db
    if least is None:
        return Recording(snr_db=None, noise=None, band_hz=None, reverb_seconds=0, level_db=level_db)
    kinds = tuple(NOISES)
    return Recording(
        snr_db=round(rng.uniform(least, least + _SNR_RANGE_DB), 1),
        noise=kinds[rng.integers(len(kinds))],
        band_hz=_BANDS[rng.integers(len(_BANDS))] if noisy and rng.random() < conditions.band_share else None,
        reverb_seconds=round(rng.uniform(*_REVERB_SECONDS), 2)
        if noisy and rng.random() < conditions.reverb_share
        else 0,
        level_db=level_db,
    )
