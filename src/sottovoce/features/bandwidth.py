"""The bandwidth of speech: how far up its spectrum goes, and speech without the upper part.

Audio that was recorded at 8 kHz and resampled to 16 kHz has nothing above 4 kHz: the upper 20 of 80 mel bins are empty.
A recogniser that learnt from full bins fails on empty ones, and the other way round. So a store keeps the measured
bandwidth of every utterance, a store can be limited on purpose, and training can be prepared for both.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import soxr

from sottovoce.features.logmel import SAMPLE_RATE_HZ, bin_centres_hz

Samples = npt.NDArray[np.float32]

LEAST_HZ = 1000
FULL_HZ = SAMPLE_RATE_HZ // 2


class BandRange(NamedTuple):
    """A range of bandwidths."""

    low_hz: int
    high_hz: int


# The measurement, in points of the spectrum (31.25 Hz each). Chosen on AN4, AudioMNIST and LibriSpeech.
_POINTS = 512  # of a frame; the next one follows it
_WINDOW = (32768 * np.hanning(_POINTS)).astype(np.float32)
_BLOCK_FRAMES = 4096  # at a time, to bound the memory
_BELOW = (9, 2)  # the band below an edge
_ABOVE = 4  # where the rest above an edge begins
_LOWEST, _HIGHEST = 48, 237  # edges are looked for from 1.5 to 7.4 kHz
_TOP = 253  # the last points belong to the filter of any resampler
# The level above an edge, and the drop that makes it one. Rounding to 16 bits alone has a level of 12 dB, white noise
# of -73 dB below full scale one of 40 dB. Of real rooms and microphones, even quiet ones have more than 20 dB.
_EDGES_DB = ((18.0, 12.0), (40.0, 20.0), (np.inf, 35.0))

# What the features of a band-limited recording look like, measured on the same corpora. A unit is the deviation of all
# values of the utterance, which is 1.9 in natural logarithms.
_FILTER = 0.985  # resampling filters begin below the bandwidth
_EDGE_DROP = 0.7  # in the last bin that is kept
_LEAKAGE = 3.0  # by which the window's leakage lies below the frame's largest value
_LEAKAGE_DEVIATION = 0.35
_HIGHEST_FLOOR = 2.0  # 16-bit samples at 16 kHz have a floor that much above that of 8 kHz samples


def measure_bandwidth(samples: Samples) -> int:
    """Return the frequency in Hz above which practically nothing lies, up to 8000; samples are mono at 16 kHz.

    It is where the mean spectrum falls by at least 12 dB within 190 Hz, to next to nothing, and stays there. Filters
    fall like that, speech and rooms do not. So quiet speech without any s, in wideband noise, is still wideband.
    """
    spectrum = _mean_spectrum(samples)
    smoothed = np.convolve(spectrum, np.ones(3) / 3, "same")
    level = 10 * np.log10(smoothed + 1.0)
    rest = np.maximum.accumulate(level[:_TOP][::-1])[::-1]  # the largest level from each point on
    sums = np.concatenate([np.zeros(1), np.cumsum(level)])
    edges = np.arange(_LOWEST, _HIGHEST)
    far, near = _BELOW
    above = rest[edges + _ABOVE]
    drops = (sums[edges - near] - sums[edges - far]) / (far - near) - above
    is_edge = np.any([(above <= level) & (drops >= least) for level, least in _EDGES_DB], axis=0)
    if not is_edge.any():
        return FULL_HZ
    steepest = edges[np.where(is_edge, drops, -np.inf).argmax()]
    return round(float(steepest) * SAMPLE_RATE_HZ / _POINTS)


def _mean_spectrum(samples: Samples) -> npt.NDArray[np.float64]:
    """Return the mean power spectrum, on the 16-bit scale."""
    if len(samples) < _POINTS:
        samples = np.pad(samples, (0, _POINTS - len(samples)))
    frames = samples[: len(samples) // _POINTS * _POINTS].reshape(-1, _POINTS)
    total = np.zeros(_POINTS // 2 + 1)
    for first in range(0, len(frames), _BLOCK_FRAMES):
        spectra = np.fft.rfft(frames[first : first + _BLOCK_FRAMES] * _WINDOW, axis=1)
        total += (spectra.real**2 + spectra.imag**2).sum(axis=0, dtype=np.float64)
    return total / len(frames)


def limit_bandwidth(samples: Samples, bandwidth_hz: float) -> Samples:
    """Return samples at 16 kHz as if they had been recorded at twice the bandwidth; their number stays the same."""
    narrow = soxr.resample(samples, SAMPLE_RATE_HZ, 2 * bandwidth_hz, quality="HQ")
    limited: Samples = np.zeros_like(samples)
    again = soxr.resample(narrow, 2 * bandwidth_hz, SAMPLE_RATE_HZ, quality="HQ")[: len(samples)]
    limited[: len(again)] = again
    return limited


def empty_upper_bins_(features: npt.NDArray[np.float32], bandwidth_hz: float, rng: np.random.Generator) -> None:
    """Make the standardised features (frames, bins) of one utterance look as if its audio had this bandwidth.

    Empty bins are not constant: they hold what leaks from the lower ones through the window, above a floor that depends
    on the format. The floor is drawn at random. Mean and variance, which the emptied bins change, become 0 and 1 again.
    """
    cut = int(np.searchsorted(bin_centres_hz(), _FILTER * bandwidth_hz))
    floor = float(features.min(initial=0)) + _HIGHEST_FLOOR * rng.random()
    leaking = np.maximum(features[:, :cut].max(axis=1, keepdims=True) - _LEAKAGE, floor)
    noise = rng.standard_normal((len(features), features.shape[1] - cut), dtype=np.float32)
    features[:, cut - 1] -= _EDGE_DROP
    features[:, cut:] = leaking + _LEAKAGE_DEVIATION * noise
    features -= features.mean(dtype=np.float64)
    features /= features.std(dtype=np.float64) or 1.0
