"""Recording conditions do what their numbers say."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.data.corpora.recording import NOISES, Recording, room_response
from sottovoce.errors import ConfigError
from sottovoce.randomness import stream

RATE = 16_000
PAUSE = 3000
Samples = npt.NDArray[np.float64]


def recording(
    snr_db: float | None = None,
    noise: str | None = None,
    band_hz: tuple[float, float] | None = None,
    reverb_seconds: float = 0,
    level_db: float = -30,
) -> Recording:
    return Recording(snr_db, noise, band_hz, reverb_seconds, level_db)


def speech(seconds: float = 3.0, seed: int = 0) -> Samples:
    """Syllables of coloured noise with gaps, between two pauses of digital silence."""
    count = round(seconds * RATE)
    sound = np.convolve(stream(seed, "test-speech").standard_normal(count), [1, 0.9, 0.6, 0.2], mode="same")
    syllables = np.maximum(0.02, np.sin(2 * np.pi * 4 * np.arange(count) / RATE))
    return np.pad(0.05 * sound * syllables, PAUSE)


def power_db(samples: npt.NDArray[np.floating]) -> float:
    return float(10 * np.log10(np.mean(samples.astype(np.float64) ** 2)))


def spectrum_db(samples: npt.NDArray[np.floating], low: float, high: float) -> float:
    """Return the mean power per bin of a band."""
    power = np.abs(np.fft.rfft(samples.astype(np.float64))) ** 2
    hertz = np.fft.rfftfreq(len(samples), 1 / RATE)
    return float(10 * np.log10(np.mean(power[(hertz >= low) & (hertz < high)])))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("snr_db", [-5.0, 3.0, 20.0])
@pytest.mark.parametrize(("band_hz", "reverb_seconds"), [(None, 0), ((300, 3400), 0), (None, 0.5), ((0, 4500), 0.3)])
def test_the_measured_snr_is_the_one_asked_for(
    noise: str, snr_db: float, band_hz: tuple[float, float] | None, reverb_seconds: float
) -> None:
    clean = recording(band_hz=band_hz, reverb_seconds=reverb_seconds).apply(speech(), stream(1, "test"))
    noisy = recording(snr_db, noise, band_hz, reverb_seconds).apply(speech(), stream(1, "test"))
    clean, noisy = clean[PAUSE:-PAUSE].astype(np.float64), noisy[PAUSE:-PAUSE].astype(np.float64)
    spoken = clean * np.sum(clean * noisy) / np.sum(clean * clean)  # the part of the recording that is the speech
    assert power_db(spoken) - power_db(noisy - spoken) == pytest.approx(snr_db, abs=0.5)


@pytest.mark.parametrize("noise", NOISES)
def test_noise_is_there_in_the_pauses_too(noise: str) -> None:
    noisy = recording(10, noise).apply(speech(), stream(2, "test"))
    assert power_db(noisy[:PAUSE]) > power_db(noisy) - 20


def test_every_draw_is_another_noise_and_the_same_stream_the_same_one() -> None:
    conditions = recording(10, "babble", (100, 5000), 0.4)
    one, same, other = (conditions.apply(speech(), stream(3, "test", key)) for key in (1, 1, 2))
    assert one.tobytes() == same.tobytes()
    assert not np.array_equal(one, other)


@settings(deadline=None, max_examples=40)
@given(
    samples=st.lists(st.floats(-1, 1, width=32), max_size=300),
    noise=st.sampled_from([None, *NOISES]),
    band_hz=st.sampled_from([None, (300.0, 3400.0), (0.0, 4000.0)]),
    reverb_seconds=st.sampled_from([0, 0.01, 0.3]),
    level_db=st.floats(-60, 20),
)
def test_any_recording_is_finite_of_the_same_length_and_never_clipped(
    samples: list[float],
    noise: str | None,
    band_hz: tuple[float, float] | None,
    reverb_seconds: float,
    level_db: float,
) -> None:
    conditions = recording(None if noise is None else 5, noise, band_hz, reverb_seconds, level_db)
    result = conditions.apply(np.array(samples, dtype=np.float32), stream(0, "test"))
    assert result.dtype == np.float32
    assert result.shape == (len(samples),)
    assert np.isfinite(result).all()
    assert np.abs(result).max(initial=0) <= 1


@pytest.mark.parametrize("noise", [None, "white"])
def test_silence_stays_silence(noise: str | None) -> None:
    conditions = recording(None if noise is None else 10, noise, (300, 3400), 0.5)
    assert not conditions.apply(np.zeros(1000), stream(0, "test")).any()
    assert conditions.apply(np.zeros(0), stream(0, "test")).shape == (0,)


@pytest.mark.parametrize("noise", [None, "pink"])
def test_the_level_is_the_one_asked_for_unless_it_would_clip(noise: str | None) -> None:
    snr_db = None if noise is None else 5
    quiet = recording(snr_db, noise, level_db=-30).apply(speech(), stream(0, "test"))
    assert power_db(quiet) == pytest.approx(-30, abs=0.01)
    loud = recording(snr_db, noise, level_db=0).apply(speech(), stream(0, "test"))
    assert power_db(loud) < -1
    assert np.abs(loud).max() == 1
    np.testing.assert_allclose(loud / np.abs(loud).max(), quiet / np.abs(quiet).max(), atol=1e-6)


def test_a_band_limit_keeps_the_band_and_cuts_the_rest() -> None:
    white = stream(0, "test").standard_normal(4 * RATE)
    result = recording(band_hz=(300, 3400)).apply(white, stream(1, "test"))
    inside = spectrum_db(result, 500, 2500)
    assert spectrum_db(result, 20, 150) < inside - 40
    assert spectrum_db(result, 6800, 8000) < inside - 40
    assert spectrum_db(result, 350, 450) == pytest.approx(inside, abs=1.5)
    low_pass = recording(band_hz=(0, 3000)).apply(white, stream(1, "test"))
    assert spectrum_db(low_pass, 0, 50) == pytest.approx(spectrum_db(low_pass, 500, 2500), abs=2)


@pytest.mark.parametrize("reverb_seconds", [0.2, 0.5, 1.0])
def test_the_room_falls_by_60_db_in_the_time_asked_for(reverb_seconds: float) -> None:
    response = room_response(reverb_seconds, stream(0, "test"))
    left = np.cumsum(response[::-1] ** 2)[::-1][1:]  # Schroeder's decay curve of the tail
    decay = 10 * np.log10(left / left[0])
    between = np.flatnonzero((decay < -5) & (decay > -25))
    slope = np.polyfit(between / RATE, decay[between], 1)[0]
    assert -60 / slope == pytest.approx(reverb_seconds, rel=0.1)
    assert np.sum(response[1:] ** 2) == pytest.approx(reverb_seconds * response[0] ** 2)


def test_noises_have_the_spectra_of_their_names() -> None:
    noise = {name: make(8 * RATE, stream(0, "test", name)) for name, make in NOISES.items()}

    def fall(name: str, low: float) -> float:
        """Return by how many dB the power falls from one octave to the next."""
        return spectrum_db(noise[name], low, 2 * low) - spectrum_db(noise[name], 2 * low, 4 * low)

    assert fall("white", 1000) == pytest.approx(0, abs=0.3)
    assert fall("pink", 1000) == pytest.approx(3, abs=0.3)
    assert fall("speech", 1000) == pytest.approx(9, abs=0.5)
    assert fall("babble", 1000) == pytest.approx(9, abs=1)
    assert spectrum_db(noise["hum"], 99.5, 100.5) > spectrum_db(noise["hum"], 110, 140) + 30

    def swell(name: str) -> float:
        """Return how much the power changes from one tenth of a second to the next."""
        frames = noise[name].reshape(-1, RATE // 10)
        return float(np.std(10 * np.log10(np.mean(frames**2, axis=1))))

    assert swell("babble") > 3 * swell("speech")


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"snr_db": 10.0}, "Noise None with snr_db=10.0. Give both or neither."),
        ({"noise": "pink"}, "Noise 'pink' with snr_db=None. Give both or neither."),
        ({"snr_db": 5.0, "noise": "rain"}, "Noise 'rain' is unknown. Choose from white, pink, speech, babble, hum."),
        ({"band_hz": (3400, 300)}, "Expected 0 <= low < high <= 8000 in band_hz=(3400, 300)."),
        ({"band_hz": (300, 9000)}, "Expected 0 <= low < high <= 8000 in band_hz=(300, 9000)."),
        ({"reverb_seconds": -1}, "Expected reverb_seconds=-1 = 0 or >= 0.01."),
        ({"reverb_seconds": float("nan")}, "Expected reverb_seconds=nan = 0 or >= 0.01."),
    ],
)
def test_conditions_that_make_no_sense_are_refused(conditions: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        recording(**conditions)  # type: ignore[arg-type]
    assert str(error.value) == message
