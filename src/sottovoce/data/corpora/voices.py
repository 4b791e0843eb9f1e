"""Who speaks in the synthetic corpus: a voice of eSpeak NG with a pitch, a pace and a place it records in.

Guarantee: a speaker depends on the seed and its own name alone, whatever the number of speakers.
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

# The accents that eSpeak NG knows and that differ in sound: fr-be and fr-ch speak words exactly as fr does.
_ACCENTS: dict[Language, tuple[str, ...]] = {
    "en": ("en", "en-us", "en-gb-x-rp", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029", "en-us-nyc"),
    "fr": ("fr",),
    "de": ("de",),
}
# Its variants, but for fast (the same sound as none) and RicishayMax, 2 and 3 (an echo as loud as the voice itself).
# The list is fixed, because its order and length decide who speaks how.
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
    """How much the speakers say: a log-normal number of utterances, at least one and at most `most`."""

    mean: float
    tail: float
    most: int

    def draw(self, rng: np.random.Generator) -> int:
        """Return the number of utterances of one speaker."""
        log_median = math.log(self.mean) - self.tail**2 / 2
        return min(max(round(math.exp(log_median + self.tail * rng.standard_normal())), 1), self.most)


@dataclass(frozen=True)
class Conditions:
    """How hard the domains are: the least signal-to-noise ratio of each, and the noisy one's microphones and rooms."""

    clean_snr_db: float | None = None
    least_snr_db: float = 3.0
    band_share: float = 0.4
    reverb_share: float = 0.5


@dataclass(frozen=True)
class Speaker:
    """Who speaks how, how much, and in which conditions. Pitch and range go from 0 to 99, rate is in words a minute."""

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
    """How widely the speakers of a domain differ."""

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
    """Return the voices that speakers have: all, or `most` of them drawn at random."""
    return VOICES[language] if most is None else rank(seed, "synthetic-voices", VOICES[language])[:most]


def draw_speaker(
    seed: int,
    language: Language,
    domain: Domain,
    number: int,
    counts: UtteranceCounts,
    conditions: Conditions,
    most_voices: int | None = None,
) -> Speaker:
    """Return the speaker with this number among those of a language and a domain; their voices may be limited."""
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
