import kaldi_native_fbank  # noqa: F401 - the library under test is a real one
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import voice
from sottovoce.features import logmel


def reference(samples: np.ndarray) -> np.ndarray:
    """Compute log-mel energies from their definition, with numpy alone."""
    count = 1 + (len(samples) - 400) // 160
    windows = np.stack([samples[160 * i : 160 * i + 400] for i in range(count)]).astype(np.float64) * 32768
    windows -= windows.mean(axis=1, keepdims=True)
    emphasised = windows - 0.97 * np.concatenate([windows[:, :1], windows[:, :-1]], axis=1)
    hamming = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(400) / 399)
    magnitude = np.abs(np.fft.rfft(emphasised * hamming, 512))[:, :256]

    def mel(hertz):
        return 1127 * np.log1p(hertz / 700)

    edges = np.linspace(mel(20), mel(8000), 82)
    bins = mel(np.arange(256) * 16000 / 512)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    weights = np.clip(np.minimum((bins - left) / (centre - left), (right - bins) / (right - centre)), 0, None)
    return np.log(np.maximum(magnitude @ weights.T, 1.0))


def test_features_agree_with_their_definition():
    samples = voice(2.0, seed=3)
    assert np.abs(logmel.log_mel(samples) - reference(samples)).max() < 2e-3


def test_features_of_real_speech_agree_with_their_definition(real_speech):
    import soundfile

    for path in sorted((real_speech / "audiomnist").glob("*/*.flac"))[:3]:
        samples = soundfile.read(path, dtype="float32")[0]
        assert np.abs(logmel.log_mel(samples) - reference(samples)).max() < 2e-3


def test_an_utterance_has_zero_mean_and_unit_variance_over_everything():
    features = logmel.features(voice(3.0, seed=1))
    assert features.dtype == np.float16
    assert abs(features.mean(dtype=np.float64)) < 1e-3
    assert features.std(dtype=np.float64) == pytest.approx(1, abs=1e-3)


def test_the_same_samples_give_the_same_bits():
    samples = voice(1.0, seed=2)
    assert logmel.features(samples).tobytes() == logmel.features(samples.copy()).tobytes()


def test_silence_is_finite():
    assert (logmel.features(np.zeros(16_000, np.float32)) == 0).all()


@given(st.integers(0, 3000))
def test_only_whole_windows_make_a_frame(samples):
    assert logmel.log_mel(np.ones(samples, np.float32)).shape == (logmel.frame_count(samples), 80)
