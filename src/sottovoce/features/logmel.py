"""Log-mel features: 80 bins, 25 ms windows every 10 ms, normalised per utterance to zero mean and unit variance.

As in the reference: pre-emphasis 0.97, Hamming window, FFT magnitude, natural logarithm with floor 1.0 on the 16-bit
scale, and one mean and one variance over all frames and bins of the utterance. Computed by kaldi-native-fbank without
dither, so that the same samples always give the same features. Only whole windows make a frame.
"""

from typing import Any

import kaldi_native_fbank
import numpy as np
import numpy.typing as npt

SAMPLE_RATE_HZ = 16_000
BINS = 80
WINDOW_SAMPLES = 400
STRIDE_SAMPLES = 160
FRAMES_PER_SECOND = SAMPLE_RATE_HZ // STRIDE_SAMPLES
_INT16_SCALE = 32768.0

# What a store records about its features: two stores can be used together only if this is equal.
DESCRIPTION: dict[str, Any] = {
    "kind": "log-mel",
    "bins": BINS,
    "sample_rate_hz": SAMPLE_RATE_HZ,
    "resampling": "soxr HQ",
    "window_ms": 25,
    "stride_ms": 10,
    "window": "hamming",
    "remove_dc_offset": True,
    "preemphasis": 0.97,
    "spectrum": "magnitude",
    "mel_scale": "1127 ln(1 + f / 700)",
    "low_hz": 20.0,
    "high_hz": 8000.0,
    "log_floor": 1.0,
    "normalisation": "one mean and variance per utterance",
    "dtype": "float16",
}


def _fbank_options() -> Any:
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = SAMPLE_RATE_HZ
    options.frame_opts.frame_length_ms = DESCRIPTION["window_ms"]
    options.frame_opts.frame_shift_ms = DESCRIPTION["stride_ms"]
    options.frame_opts.window_type = DESCRIPTION["window"]
    options.frame_opts.preemph_coeff = DESCRIPTION["preemphasis"]
    options.frame_opts.remove_dc_offset = DESCRIPTION["remove_dc_offset"]
    options.frame_opts.dither = 0.0
    options.frame_opts.snip_edges = True
    options.mel_opts.num_bins = BINS
    options.mel_opts.low_freq = DESCRIPTION["low_hz"]
    options.mel_opts.high_freq = DESCRIPTION["high_hz"]
    options.use_power = False
    options.use_energy = False
    return options


_OPTIONS = _fbank_options()


def frame_count(samples: int) -> int:
    """Return how many frames this many samples give: the whole windows that fit."""
    return 1 + (samples - WINDOW_SAMPLES) // STRIDE_SAMPLES if samples >= WINDOW_SAMPLES else 0


def log_mel(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the log-mel energies (frames, bins) of samples in [-1, 1] at 16 kHz, before normalisation."""
    fbank = kaldi_native_fbank.OnlineFbank(_OPTIONS)
    # A list crosses into the library faster than an array does.
    fbank.accept_waveform(SAMPLE_RATE_HZ, (samples * np.float32(_INT16_SCALE)).tolist())
    fbank.input_finished()
    if fbank.num_frames_ready == 0:
        return np.zeros((0, BINS), dtype=np.float32)
    energies = np.stack([fbank.get_frame(frame) for frame in range(fbank.num_frames_ready)])
    floored: npt.NDArray[np.float32] = np.maximum(energies, np.float32(np.log(DESCRIPTION["log_floor"])))
    return floored


def standardise(energies: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
    """Return the energies with zero mean and unit variance over all frames and bins; constant energies give zeros."""
    mean = energies.mean(dtype=np.float64)
    deviation = energies.std(dtype=np.float64)
    normal: npt.NDArray[np.float16] = ((energies - mean) / (deviation if deviation > 0 else 1.0)).astype(np.float16)
    return normal


def features(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
    """Return what a recogniser sees of an utterance: float16 (frames, bins)."""
    return standardise(log_mel(samples))
