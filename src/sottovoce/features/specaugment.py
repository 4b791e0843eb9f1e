"""SpecAugment as in the paper: 2 frequency masks (F = 30) and 10 time masks (T = 50, ratio p = 0.1), no warping.

The width of a mask is drawn uniformly from 0 to a maximum: F bins, or the smaller of T and p times the utterance's
frames. Its position is drawn uniformly from all positions inside the utterance. Masked values become 0, which is the
mean of the utterance.

`frequency_shift` is not in the paper and off by default. It shifts all bins of an utterance up or down by a random
number of bins before masking. A longer vocal tract has lower resonances, so a few speakers sound like many.

`bandlimit` is not in the paper either and off by default. It makes a share of the utterances look as if they had been
recorded at a lower sampling rate (`bandwidth.empty_upper_bins_`), after the shift and before the masks.
"""

from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sottovoce.features.bandwidth import LEAST_HZ, empty_upper_bins_
from sottovoce.features.logmel import BINS, SAMPLE_RATE_HZ

_Hertz = Annotated[float, Field(ge=LEAST_HZ, lt=SAMPLE_RATE_HZ / 2)]


class SpecAugment(BaseModel):
    """The number and the sizes of the masks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    frequency_masks: int = Field(2, ge=0, le=1000, description="frequency masks per utterance; 0: none")
    frequency_bins: int = Field(30, ge=0, le=BINS, description="F, the largest number of bins in one mask")
    time_masks: int = Field(10, ge=0, le=1000, description="time masks per utterance; 0: none")
    time_frames: int = Field(50, ge=0, le=1_000_000, description="T, the largest number of frames in one mask")
    frequency_shift: int = Field(
        0, ge=0, lt=BINS, description="largest shift of all bins, up or down; 0: no shift, as in the paper"
    )
    time_ratio: float = Field(0.1, ge=0, le=1, description="p, the largest share of an utterance in one time mask")
    bandlimit: float = Field(
        0.0, ge=0, le=1, description="share of the utterances to band-limit; 0: none, as in the paper"
    )
    bandlimit_hz: tuple[_Hertz, _Hertz] = Field(
        (3400.0, 4000.0), description="lowest and highest bandwidth of a band-limited utterance, in Hz"
    )

    @model_validator(mode="after")
    def _in_order(self) -> "SpecAugment":
        least, most = self.bandlimit_hz
        if least > most:
            raise ValueError(f"expected the lower bandwidth first, not {least:g} before {most:g}")
        return self


def augment_(
    features: npt.NDArray[np.float32],
    frames: npt.NDArray[np.int64],
    options: SpecAugment,
    rng: np.random.Generator,
    before: npt.NDArray[np.int64] | None = None,
) -> None:
    """Mask a padded batch (rows, frames, bins) in place; `frames` has the length of every row without padding.

    `before` has the lengths of rows of the same batch that come before these and are computed elsewhere: their masks
    are drawn and forgotten, so a batch gets the same masks in one piece or in several.
    """
    bins = features.shape[2]
    for count in () if before is None else before:
        _draw(int(count), bins, options, rng)
    for row, count in enumerate(frames):
        masks = _draw(int(count), bins, options, rng)
        if options.frequency_shift:
            source = np.clip(np.arange(bins) - masks.shift, 0, bins - 1)
            features[row, :count] = features[row, :count, source].T
        if masks.bandwidth_hz is not None:
            empty_upper_bins_(features[row, :count], masks.bandwidth_hz, np.random.default_rng(masks.noise_seed))
        for start, width in masks.bins:
            features[row, :, start : start + width] = 0
        for start, width in masks.frames:
            features[row, start : start + width] = 0


class _Masks(NamedTuple):
    """What one row loses: starts and widths."""

    shift: int
    bins: list[tuple[int, int]]
    frames: list[tuple[int, int]]
    bandwidth_hz: float | None  # None: the row keeps its band
    noise_seed: int  # of the noise in its empty bins


def _draw(count: int, bins: int, options: SpecAugment, rng: np.random.Generator) -> _Masks:
    """Draw the masks of a row with this many frames."""
    largest = options.frequency_shift
    shift = int(rng.integers(-largest, largest, endpoint=True)) if largest else 0
    over_bins = _spans(options.frequency_masks, options.frequency_bins, bins, rng)
    longest = min(options.time_frames, int(options.time_ratio * count))
    return _Masks(shift, over_bins, _spans(options.time_masks, longest, count, rng), *_draw_band(options, rng))


def _draw_band(options: SpecAugment, rng: np.random.Generator) -> tuple[float | None, int]:
    """Draw the bandwidth of a row and a seed; without `bandlimit` nothing is drawn, as before there was one."""
    if not options.bandlimit:
        return None, 0
    chosen, bandwidth, seed = rng.random(), rng.uniform(*options.bandlimit_hz), int(rng.integers(2**62))
    return (float(bandwidth) if chosen < options.bandlimit else None), seed


def _spans(masks: int, widest: int, room: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Draw the start and the width of every mask."""
    widths = rng.integers(widest, size=masks, endpoint=True)
    starts = rng.integers(room - widths, endpoint=True)
    return list(zip(starts.tolist(), widths.tolist(), strict=True))
