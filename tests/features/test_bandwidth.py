import numpy as np
import pytest
import soundfile
from pydantic import ValidationError

from conftest import voice
from sottovoce.features import logmel
from sottovoce.features.bandwidth import FULL_HZ, empty_upper_bins_, limit_bandwidth, measure_bandwidth
from sottovoce.features.specaugment import SpecAugment, augment_
from sottovoce.randomness import stream


def as_int16(samples):
    return (np.round(samples * 32768) / 32768).astype(np.float32)


@pytest.mark.parametrize("bandwidth", [2000, 3400, 4000, 5512, 6000])
def test_a_limit_is_measured(bandwidth):
    wide = voice(1.5, 3)
    assert measure_bandwidth(wide) == FULL_HZ
    narrow = limit_bandwidth(wide, bandwidth)
    assert len(narrow) == len(wide)
    for samples in (narrow, as_int16(narrow)):
        assert 0.9 * bandwidth < measure_bandwidth(samples) <= 1.02 * bandwidth


def test_what_is_short_or_empty_is_no_error():
    assert measure_bandwidth(np.zeros(0, np.float32)) == FULL_HZ
    assert measure_bandwidth(np.zeros(1600, np.float32)) == FULL_HZ
    assert measure_bandwidth(voice(0.02, 1)) == FULL_HZ


def test_noise_without_an_edge_is_wideband_however_it_slopes():
    noise = np.random.default_rng(0).standard_normal(32_000).astype(np.float32)
    for smoothing in (1, 2, 4):
        assert measure_bandwidth(0.01 * np.convolve(noise, np.ones(smoothing) / smoothing, "same")) == FULL_HZ


def test_the_measurement_tells_real_speech_from_its_narrow_copy(real_speech):
    """AudioMNIST is very quiet: much of it is 50 dB below full scale."""
    files = [
        *sorted((real_speech / "audiomnist").rglob("*.flac"))[::100],
        *sorted((real_speech / "an4").rglob("*.flac"))[::60],
    ]
    wrong = 0
    for path in files:
        samples = soundfile.read(path, dtype="float32")[0]
        wrong += measure_bandwidth(samples) < 6000
        wrong += not 3300 < measure_bandwidth(as_int16(limit_bandwidth(samples, 4000))) < 4100
    assert wrong <= 0.02 * 2 * len(files)


def test_emptied_bins_look_like_those_of_band_limited_speech(real_speech):
    for path in sorted((real_speech / "an4").rglob("*.flac"))[::300]:
        samples = soundfile.read(path, dtype="float32")[0]
        narrow = logmel.features(limit_bandwidth(samples, 4000)).astype(np.float32)
        wide = logmel.features(samples).astype(np.float32)
        emptied = wide.copy()
        empty_upper_bins_(emptied, 4000, np.random.default_rng(0))
        assert emptied.mean() == pytest.approx(0, abs=1e-3)
        assert emptied.std() == pytest.approx(1, abs=1e-3)
        before, after = (float(np.sqrt(np.square(one - narrow).mean())) for one in (wide, emptied))
        assert after < 0.5 * before


def test_a_share_of_the_utterances_is_band_limited():
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((400, 20, 80)).astype(np.float32)
    options = SpecAugment(frequency_masks=0, time_masks=0, bandlimit=0.25, bandlimit_hz=(3000, 5000))
    features, frames = whole.copy(), np.full(400, 15)
    augment_(features, frames, options, stream(0, "specaugment"))
    changed = (features[:, :15] != whole[:, :15]).any(axis=(1, 2))
    assert 0.17 < changed.mean() < 0.33
    assert (features[:, 15:] == whole[:, 15:]).all()  # padding stays
    assert np.isfinite(features).all()
    # In two pieces, the second one draws the same.
    second = whole[200:].copy()
    augment_(second, frames[200:], options, stream(0, "specaugment"), before=frames[:200])
    assert (second == features[200:]).all()


def test_without_bandlimit_nothing_else_is_drawn():
    rows, options = np.ones((3, 90, 80), np.float32), SpecAugment()
    rng, again = stream(0, "specaugment"), stream(0, "specaugment")
    augment_(rows, np.full(3, 90), options, rng)
    for _ in range(3):
        for masks, widest, room in ((2, 30, 80), (10, 9, 90)):
            again.integers(room - again.integers(widest, size=masks, endpoint=True), endpoint=True)
    assert rng.random() == again.random()


@pytest.mark.parametrize("given", [(4000, 3400), (100, 4000), (3400, 8000), (3400,)])
def test_impossible_bands_are_refused(given):
    with pytest.raises(ValidationError):
        SpecAugment(bandlimit=0.5, bandlimit_hz=given)
