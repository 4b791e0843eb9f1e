"""Recording conditions for a clean waveform at 16 kHz: a room, noise, a microphone or line, a level.

They are applied in the order of a real recording: the room adds reverberation to the speech, noise is added, the
microphone limits the band of both, and the level is set. With the speech s and the noise n after the microphone, the
signal-to-noise ratio is

    snr_db = 10 log10( mean of s^2 / mean of n^2 ),

with both means over the speech, from the first to the last nonzero sample of the input. The noise is scaled so that
this holds exactly. The level is the root mean square of the result in dB of full scale. If a peak would exceed full
scale, the whole result is made quieter, so it never clips.

Guarantees: the result has as many samples as the input, all within [-1, 1]. It depends only on the conditions, the
samples and the generator (FFTs and sums run in one thread, in double precision). Digital silence stays silent.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sottovoce.errors import ConfigError
from sottovoce.features.logmel import SAMPLE_RATE_HZ

Signal = npt.NDArray[np.float64]
Generator = np.random.Generator

_BAND_ORDER = 8  # 48 dB per octave, 3 dB at the edges
_FIRST_REFLECTION_SECONDS = 0.004
_SHORTEST_REVERB_SECONDS = 0.01
_LOWEST_NOISE_HZ = 40.0  # below it, the power of pink noise would grow without bound
_SPEECH_CORNER_HZ = 500.0  # the long-term spectrum of speech is flat below and falls by 9 dB per octave above it
_BABBLE_SYLLABLES_HZ = 4.0
_HUM_HZ = 50.0
_HUM_PARTIALS = 12
_KEPT_GAINS = 24  # 0.5 MB each for sentences of up to four seconds, 1 MB for up to eight


@dataclass(frozen=True)
class Recording:
    """The recording conditions of a speaker.

    `noise` is one of NOISES; it is None if and only if `snr_db` is None. `band_hz` has the lower and the upper edge of
    the band; a lower edge of 0 is a low-pass filter. `reverb_seconds` is the time in which the room's response falls
    by 60 dB; the ratio of the energies of reverberation and direct sound is the same number, because rooms with long
    reverberation are more reflective. 0 is no room.
    """

    snr_db: float | None
    noise: str | None
    band_hz: tuple[float, float] | None
    reverb_seconds: float
    level_db: float

    def __post_init__(self) -> None:
        """Raise ConfigError for impossible conditions."""
        if (self.snr_db is None) != (self.noise is None):
            raise ConfigError(f"Noise {self.noise!r} with snr_db={self.snr_db}. Give both or neither.")
        if self.noise is not None and self.noise not in NOISES:
            raise ConfigError(f"Noise {self.noise!r} is unknown. Choose from {', '.join(NOISES)}.")
        if self.band_hz is not None and not 0 <= self.band_hz[0] < self.band_hz[1] <= SAMPLE_RATE_HZ / 2:
            raise ConfigError(f"Expected 0 <= low < high <= {SAMPLE_RATE_HZ // 2} in band_hz={self.band_hz}.")
        if not (self.reverb_seconds == 0 or self.reverb_seconds >= _SHORTEST_REVERB_SECONDS):
            raise ConfigError(f"Expected reverb_seconds={self.reverb_seconds} = 0 or >= {_SHORTEST_REVERB_SECONDS}.")

    def apply(self, samples: npt.NDArray[np.floating], rng: Generator) -> npt.NDArray[np.float32]:
        """Return the samples as recorded under these conditions; noise and room are drawn from `rng`."""
        spoken = samples != 0
        if not spoken.any():
            return np.zeros(len(samples), dtype=np.float32)
        sound = self._room(samples.astype(np.float64), rng)
        if self.noise is None or self.snr_db is None:
            (sound,) = self._microphone(sound)
        else:
            sound, noise = self._microphone(sound, NOISES[self.noise](len(sound), rng))
            speech = slice(int(spoken.argmax()), len(spoken) - int(spoken[::-1].argmax()))
            ratio = _power(sound[speech]) / _power(noise[speech])
            noise *= np.sqrt(ratio * 10 ** (-self.snr_db / 10))
            sound += noise
        return self._levelled(sound).astype(np.float32)

    def _room(self, samples: Signal, rng: Generator) -> Signal:
        if self.reverb_seconds == 0:
            return samples
        return _convolved(samples, room_response(self.reverb_seconds, rng))

    def _microphone(self, *sounds: Signal) -> Sequence[Signal]:
        if self.band_hz is None:
            return sounds
        return list(_shaped(np.stack(sounds), _band_gain, *self.band_hz))

    def _levelled(self, samples: Signal) -> Signal:
        gain = 10 ** (self.level_db / 20) / np.sqrt(_power(samples))
        samples *= min(gain, 1 / np.abs(samples).max())
        return samples


def room_response(reverb_seconds: float, rng: Generator) -> Signal:
    """Return the response of a room: the direct sound, then noise that falls by 60 dB in `reverb_seconds`."""
    count = round(reverb_seconds * SAMPLE_RATE_HZ)
    seconds = np.arange(count) / SAMPLE_RATE_HZ
    tail = rng.standard_normal(count) * 10 ** (-3 * seconds / reverb_seconds)
    tail[: round(_FIRST_REFLECTION_SECONDS * SAMPLE_RATE_HZ)] = 0
    tail *= np.sqrt(reverb_seconds / np.sum(tail**2))
    tail[0] = 1
    return tail


def white_noise(count: int, rng: Generator) -> Signal:
    """Return noise with the same power at every frequency."""
    return rng.standard_normal(count)


def pink_noise(count: int, rng: Generator) -> Signal:
    """Return noise whose power falls by 3 dB per octave."""
    return _shaped(white_noise(count, rng), _pink_gain)


def speech_shaped_noise(count: int, rng: Generator) -> Signal:
    """Return steady noise with about the long-term spectrum of speech."""
    return _shaped(white_noise(count, rng), _speech_gain)


def babble_noise(count: int, rng: Generator) -> Signal:
    """Return speech-shaped noise that rises and falls at the pace of syllables, like several voices."""
    envelope = _shaped(white_noise(count, rng), _syllable_gain)
    envelope /= np.sqrt(_power(envelope))
    envelope /= 2
    np.exp(envelope, out=envelope)
    envelope *= speech_shaped_noise(count, rng)
    return envelope


def hum_noise(count: int, rng: Generator) -> Signal:
    """Return mains hum: harmonics of 50 Hz with decreasing amplitudes, and a little white noise."""
    phase = 2 * np.pi * _HUM_HZ * np.arange(count) / SAMPLE_RATE_HZ
    hum = 0.05 * white_noise(count, rng)
    wave = np.empty(count)
    for partial in range(1, _HUM_PARTIALS + 1):
        np.multiply(partial, phase, out=wave)
        wave += rng.uniform(0, 2 * np.pi)
        np.sin(wave, out=wave)
        wave /= partial
        hum += wave
    return hum


NOISES: dict[str, Callable[[int, Generator], Signal]] = {
    "white": white_noise,
    "pink": pink_noise,
    "speech": speech_shaped_noise,
    "babble": babble_noise,
    "hum": hum_noise,
}


def _pink_gain(hertz: Signal) -> Signal:
    gain: Signal = np.maximum(hertz, _LOWEST_NOISE_HZ) ** -0.5
    return gain


def _speech_gain(hertz: Signal) -> Signal:
    gain: Signal = np.maximum(hertz / _SPEECH_CORNER_HZ, 1) ** -1.5
    return gain


def _syllable_gain(hertz: Signal) -> Signal:
    gain: Signal = np.exp(-((hertz / _BABBLE_SYLLABLES_HZ) ** 2))
    return gain


def _band_gain(hertz: Signal, low: float, high: float) -> Signal:
    """Return the amplitude response of a Butterworth band-pass filter."""
    gain: Signal = 1 / np.sqrt(1 + (hertz / high) ** (2 * _BAND_ORDER))
    if low > 0:
        gain /= np.sqrt(1 + (low / np.maximum(hertz, low / 100)) ** (2 * _BAND_ORDER))
    return gain


def _shaped(samples: Signal, gain_at: Callable[..., Signal], *band_hz: float) -> Signal:
    """Filter without delay: multiply the spectrum by a gain; zero padding keeps the end from wrapping to the start.

    Several signals of one length, as rows, take less time than one by one, and have the same bits.
    """
    size = _fft_size(2 * samples.shape[-1])
    spectrum = np.fft.rfft(samples, size)
    spectrum *= _gain(gain_at, size, *band_hz)
    return np.fft.irfft(spectrum, size)[..., : samples.shape[-1]]


@functools.lru_cache(_KEPT_GAINS)
def _gain(gain_at: Callable[..., Signal], size: int, *band_hz: float) -> Signal:
    """Return the gain of every point of a spectrum; few sizes and few filters are in use, so it is kept."""
    return gain_at(np.fft.rfftfreq(size, 1 / SAMPLE_RATE_HZ).astype(np.float64), *band_hz)


def _convolved(samples: Signal, response: Signal) -> Signal:
    """Return the convolution, cut to the length of the samples."""
    size = _fft_size(len(samples) + len(response))
    spectrum = np.fft.rfft(samples, size)
    spectrum *= np.fft.rfft(response, size)
    return np.fft.irfft(spectrum, size)[: len(samples)]


def _fft_size(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _power(samples: Signal) -> float:
    return float(np.mean(samples**2))
