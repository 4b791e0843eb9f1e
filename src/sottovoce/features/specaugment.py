"""SpecAugment as in the paper: 2 frequency masks (F = 30) and 10 time masks (T = 50, ratio p = 0.1), no warping.

A mask's width is drawn uniformly from 0 to its largest (for time: the smaller of T and p times the utterance's frames)
and its place uniformly from those where it fits inside the utterance. Masked values become 0, the utterance's mean.

Beyond the paper, and off unless asked for: `frequency_shift` moves all bins of an utterance up or down by one random
number, before masking. That makes a few speakers sound like more: a longer vocal tract has lower resonances.
"""

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field


class SpecAugment(BaseModel):
    """How much is masked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    frequency_masks: int = Field(2, ge=0, description="frequency masks per utterance; 0 switches them off")
    frequency_bins: int = Field(30, ge=0, le=80, description="F, the largest number of bins in one mask")
    time_masks: int = Field(10, ge=0, description="time masks per utterance; 0 switches them off")
    time_frames: int = Field(50, ge=0, description="T, the largest number of frames in one mask")
    frequency_shift: int = Field(
        0, ge=0, lt=80, description="largest shift of all bins, up or down; 0: as in the paper"
    )
    time_ratio: float = Field(0.1, ge=0, le=1, description="p, the largest share of an utterance in one mask")


def augment_(
    features: npt.NDArray[np.float32], frames: npt.NDArray[np.int64], options: SpecAugment, rng: np.random.Generator
) -> None:
    """Mask a padded batch (rows, frames, bins) in place."""
    bins = features.shape[2]
    for row, count in enumerate(frames):
        if options.frequency_shift:
            shift = int(rng.integers(-options.frequency_shift, options.frequency_shift, endpoint=True))
            features[row, :count] = features[row, :count, np.clip(np.arange(bins) - shift, 0, bins - 1)].T
        for start, width in _spans(options.frequency_masks, options.frequency_bins, bins, rng):
            features[row, :, start : start + width] = 0
        longest = min(options.time_frames, int(options.time_ratio * count))
        for start, width in _spans(options.time_masks, longest, int(count), rng):
            features[row, start : start + width] = 0


def _spans(masks: int, widest: int, room: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    widths = rng.integers(widest, size=masks, endpoint=True)
    starts = rng.integers(room - widths, endpoint=True)
    return list(zip(starts.tolist(), widths.tolist(), strict=True))
