"""Features of speech: log-mel energies from samples, SpecAugment on batches of them, and the bandwidth of speech.

Example:
    from sottovoce.features import features

    frames = features(samples)  # float16 (frames, 80) from mono samples at 16 kHz
"""

from sottovoce.features.bandwidth import FULL_HZ, limit_bandwidth, measure_bandwidth
from sottovoce.features.logmel import (
    BINS,
    DESCRIPTION,
    FRAMES_PER_SECOND,
    SAMPLE_RATE_HZ,
    features,
    frame_count,
    log_mel,
    standardise,
)
from sottovoce.features.specaugment import SpecAugment, augment_

__all__ = [
    "BINS",
    "DESCRIPTION",
    "FRAMES_PER_SECOND",
    "FULL_HZ",
    "SAMPLE_RATE_HZ",
    "SpecAugment",
    "augment_",
    "features",
    "frame_count",
    "limit_bandwidth",
    "log_mel",
    "measure_bandwidth",
    "standardise",
]
