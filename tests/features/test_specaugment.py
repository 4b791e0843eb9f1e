import numpy as np
import pytest

from sottovoce.features.specaugment import SpecAugment, augment_
from sottovoce.randomness import stream


def masked(frames, options, seed=0, rows=1):
    features = np.ones((rows, frames, 80), dtype=np.float32)
    augment_(features, np.full(rows, frames), options, stream(seed, "specaugment"))
    return features == 0


def test_one_frequency_mask_covers_up_to_30_bins_everywhere():
    widths = []
    for seed in range(600):
        mask = masked(50, SpecAugment(frequency_masks=1, time_masks=0), seed)[0]
        assert (mask == mask[0]).all()
        bins = np.flatnonzero(mask[0])
        assert bins.size == 0 or bins.size == bins[-1] - bins[0] + 1
        widths.append(bins.size)
    assert (min(widths), max(widths)) == (0, 30)
    assert np.mean(widths) == pytest.approx(15, abs=1.1)


@pytest.mark.parametrize(("frames", "widest"), [(1000, 50), (300, 30), (9, 0)])
def test_one_time_mask_covers_up_to_50_frames_and_a_tenth(frames, widest):
    widths = []
    for seed in range(600):
        mask = masked(frames, SpecAugment(frequency_masks=0, time_masks=1), seed)[0]
        assert (mask == mask[:, :1]).all()
        widths.append(int(mask[:, 0].sum()))
    assert (min(widths), max(widths)) == (0, widest)


def test_the_defaults_are_the_papers():
    options = SpecAugment()
    assert (options.frequency_masks, options.frequency_bins) == (2, 30)
    assert (options.time_masks, options.time_frames, options.time_ratio) == (10, 50, 0.1)


def test_masks_stay_inside_each_utterance_and_differ_between_them():
    features = np.ones((2, 500, 80), dtype=np.float32)
    augment_(features, np.array([500, 100]), SpecAugment(frequency_masks=0), stream(1, "specaugment"))
    assert (features[1, 100:] == 1).all()
    assert (features[0, :100] != features[1, :100]).any()


def test_nothing_is_masked_without_masks():
    assert not masked(100, SpecAugment(frequency_masks=0, time_masks=0)).any()


def test_a_frequency_shift_moves_all_bins_of_an_utterance_alike():
    options = SpecAugment(frequency_masks=0, time_masks=0, frequency_shift=3)
    shifts = []
    for seed in range(200):
        features = np.tile(np.arange(80, dtype=np.float32), (2, 60, 1))
        features[1, 40:] = -1.0
        augment_(features, np.array([60, 40]), options, stream(seed, "specaugment"))
        assert (features[1, 40:] == -1).all()  # padding stays
        shift = int(40 - features[0, 0, 40])
        assert (features[0] == np.clip(np.arange(80) - shift, 0, 79)).all()
        shifts.append(shift)
    assert sorted(set(shifts)) == [-3, -2, -1, 0, 1, 2, 3]
    assert SpecAugment().frequency_shift == 0  # not in the paper
