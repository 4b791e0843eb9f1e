"""Log-mel features: 80 bins, 25 ms windows every 10 ms, zero mean and unit variance per utterance.

As in the reference: pre-emphasis 0.97, Hamming window, FFT magnitude, natural logarithm with floor 1.0 on the 16-bit
scale, and one mean and one variance over all frames and bins of the utterance. kaldi-native-fbank computes them without
dither, so the same samples always give the same features. Only complete windows become frames.
"""

import functools
from typing import Any

import kaldi_native_fbank
import numpy as np
import numpy.typing as npt
from pydantic import JsonValue

SAMPLE_RATE_HZ = 16_000
BINS = 80
WINDOW_SAMPLES = 400
STRIDE_SAMPLES = 160
FRAMES_PER_SECOND = SAMPLE_RATE_HZ // STRIDE_SAMPLES
_WINDOW = "hamming"
_PREEMPHASIS = 0.97
_REMOVE_DC_OFFSET = True
_LOW_HZ, _HIGH_HZ = 20.0, 8000.0
_LOG_FLOOR = 1.0
_INT16_SCALE = 32768.0

# The description of the features in a store and in a model. Stores can be used together only if theirs are equal.
DESCRIPTION: dict[str, JsonValue] = {
    "kind": "log-mel",
    "bins": BINS,
    "sample_rate_hz": SAMPLE_RATE_HZ,
    "resampling": "soxr HQ",
    "window_ms": 1000 * WINDOW_SAMPLES // SAMPLE_RATE_HZ,
    "stride_ms": 1000 * STRIDE_SAMPLES // SAMPLE_RATE_HZ,
    "window": _WINDOW,
    "remove_dc_offset": _REMOVE_DC_OFFSET,
    "preemphasis": _PREEMPHASIS,
    "spectrum": "magnitude",
    "mel_scale": "1127 ln(1 + f / 700)",
    "low_hz": _LOW_HZ,
    "high_hz": _HIGH_HZ,
    "log_floor": _LOG_FLOOR,
    "normalisation": "one mean and variance per utterance",
    "dtype": "float16",
}


def _fbank_options() -> Any:
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = SAMPLE_RATE_HZ
    options.frame_opts.frame_length_ms = DESCRIPTION["window_ms"]
    options.frame_opts.frame_shift_ms = DESCRIPTION["stride_ms"]
    options.frame_opts.window_type = _WINDOW
    options.frame_opts.preemph_coeff = _PREEMPHASIS
    options.frame_opts.remove_dc_offset = _REMOVE_DC_OFFSET
    options.frame_opts.dither = 0.0
    options.frame_opts.snip_edges = True
    options.mel_opts.num_bins = BINS
    options.mel_opts.low_freq = _LOW_HZ
    options.mel_opts.high_freq = _HIGH_HZ
    options.use_power = False
    options.use_energy = False
    return options


_OPTIONS = _fbank_options()


def frame_count(samples: int) -> int:
    """Return the number of frames of this many samples: the complete windows that fit."""
    return 1 + (samples - WINDOW_SAMPLES) // STRIDE_SAMPLES if samples >= WINDOW_SAMPLES else 0


@functools.cache
def bin_centres_hz() -> npt.NDArray[np.float64]:
    """Return the centre frequency of every mel bin."""
    low, high = (1127 * np.log(1 + hertz / 700) for hertz in (_LOW_HZ, _HIGH_HZ))
    return np.asarray(700 * (np.exp(np.linspace(low, high, BINS + 2)[1:-1] / 1127) - 1))


def log_mel(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the log-mel energies (frames, bins) of samples in [-1, 1] at 16 kHz, before they are standardised."""
    fbank = kaldi_native_fbank.OnlineFbank(_OPTIONS)
    # The library takes a list faster than an array.
    fbank.accept_waveform(SAMPLE_RATE_HZ, (samples * np.float32(_INT16_SCALE)).tolist())
    fbank.input_finished()
    if fbank.num_frames_ready == 0:
        return np.zeros((0, BINS), dtype=np.float32)
    energies: npt.NDArray[np.float32] = np.concatenate(list(map(fbank.get_frame, range(fbank.num_frames_ready))))
    np.maximum(energies, np.float32(np.log(_LOG_FLOOR)), out=energies)
    return energies.reshape(-1, BINS)


def standardise(energies: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
    """Return the energies with zero mean and unit variance over all frames and bins; constant energies give zeros."""
    if energies.size == 0:
        return energies.astype(np.float16)
    mean = energies.mean(dtype=np.float64)
    deviation = energies.std(dtype=np.float64)
    standard: npt.NDArray[np.float16] = ((energies - mean) / (deviation if deviation > 0 else 1.0)).astype(np.float16)
    return standard


def features(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
    """Return the input of a recogniser for samples in [-1, 1] at 16 kHz: float16 (frames, bins)."""
    return standardise(log_mel(samples))
