import pickle

import numpy as np
import pytest
import soundfile

from conftest import voice, write_audio
from sottovoce.data.audio import BadAudio, join_audio, read_audio
from sottovoce.data.manifest import Reason


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3", "ogg"])
@pytest.mark.parametrize("rate", [8_000, 16_000, 32_000, 44_100, 48_000])
def test_every_format_and_rate_comes_back_at_16_khz(tmp_path, suffix, rate):
    path = write_audio(tmp_path / f"a.{suffix}", 1.5, seed=1, rate=rate)
    samples = read_audio(path)
    assert samples.dtype == np.float32
    assert len(samples) / 16_000 == pytest.approx(1.5, abs=0.07)
    assert 0.02 < np.sqrt((samples**2).mean()) < 0.3


def test_resampling_keeps_a_tone_and_removes_what_would_alias(tmp_path):
    time = np.arange(48_000) / 48_000
    kept, removed = 0.5 * np.sin(2 * np.pi * 1000 * time), 0.5 * np.sin(2 * np.pi * 12_000 * time)
    soundfile.write(tmp_path / "a.wav", kept + removed, 48_000, subtype="FLOAT")
    spectrum = np.abs(np.fft.rfft(read_audio(tmp_path / "a.wav"))) / 8000
    assert spectrum.argmax() == 1000
    assert spectrum[1000] == pytest.approx(0.5, abs=0.01)
    assert np.delete(spectrum, range(990, 1011)).max() < 0.005


def test_channels_are_averaged_or_one_is_taken(tmp_path):
    left, right = voice(0.5, 1), voice(0.5, 2)
    soundfile.write(tmp_path / "a.wav", np.stack([left, right], axis=1), 16_000, subtype="FLOAT")
    assert np.allclose(read_audio(tmp_path / "a.wav"), (left + right) / 2, atol=1e-6)
    assert np.allclose(read_audio(tmp_path / "a.wav", channel=1), right, atol=1e-6)
    with pytest.raises(BadAudio, match="channel 2 of 2"):
        read_audio(tmp_path / "a.wav", channel=2)


def test_a_segment_is_a_piece_of_the_whole(tmp_path):
    path = write_audio(tmp_path / "a.flac", 3.0)
    assert (read_audio(path, start=1.0, seconds=0.5) == read_audio(path)[16_000:24_000]).all()
    with pytest.raises(BadAudio) as found:
        read_audio(path, start=2.5, seconds=5.0)
    assert found.value.reason == Reason.TRUNCATED_AUDIO


def with_length(flac: bytes, samples: int) -> bytes:
    """Change the number of samples that a FLAC header announces."""
    packed = int.from_bytes(flac[18:26], "big") >> 36 << 36 | samples
    return flac[:18] + packed.to_bytes(8, "big") + flac[26:]


def test_a_wav_whose_header_was_written_before_its_length_was_known_is_read_to_the_end(tmp_path):
    wav = write_audio(tmp_path / "a.wav", 2.0).read_bytes()
    place = wav.index(b"data") + 4
    (tmp_path / "streamed.wav").write_bytes(wav[:place] + b"\xff\xff\xff\xff" + wav[place + 4 :])
    assert len(read_audio(tmp_path / "streamed.wav")) == 32_000


def test_a_finding_survives_the_way_between_processes():
    found = pickle.loads(pickle.dumps(BadAudio(Reason.EMPTY_AUDIO, "x")))  # noqa: S301 - our own
    assert (found.reason, found.detail, str(found)) == (Reason.EMPTY_AUDIO, "x", "empty audio: x")


def test_what_cannot_be_used_says_why(tmp_path):
    whole = write_audio(tmp_path / "whole.flac", 2.0).read_bytes()
    mp3 = write_audio(tmp_path / "whole.mp3", 4.0).read_bytes()
    wav = write_audio(tmp_path / "whole.wav", 4.0).read_bytes()
    ogg = write_audio(tmp_path / "whole.ogg", 4.0).read_bytes()
    aiff = write_audio(tmp_path / "whole.aiff", 4.0).read_bytes()
    bad = {
        "empty.mp3": (b"", Reason.EMPTY_AUDIO),
        "text.wav": (b"this is no audio", Reason.UNREADABLE_AUDIO),
        "cut.flac": (whole[: len(whole) // 2], Reason.UNREADABLE_AUDIO),
        "cut.mp3": (mp3[: len(mp3) // 2], Reason.TRUNCATED_AUDIO),
        "cut.wav": (wav[: len(wav) // 2], Reason.TRUNCATED_AUDIO),
        "cut.aiff": (aiff[: len(aiff) // 2], Reason.TRUNCATED_AUDIO),
        "cut.ogg": (ogg[: len(ogg) // 2], Reason.TRUNCATED_AUDIO),
        "unknown.flac": (with_length(whole, 0), Reason.UNREADABLE_AUDIO),  # libsndfile cannot seek in it
        "false.flac": (with_length(whole, 2**36 - 1), Reason.UNREADABLE_AUDIO),
        "slow.wav": (wav[:24] + (1).to_bytes(4, "little") + wav[28:], Reason.UNREADABLE_AUDIO),
    }
    for name, (content, reason) in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadAudio) as found:
            read_audio(tmp_path / name)
        assert found.value.reason == reason, name
        assert "\n" not in found.value.detail
    soundfile.write(tmp_path / "nothing.wav", np.zeros(0), 16_000)
    with pytest.raises(BadAudio, match="no samples"):
        read_audio(tmp_path / "nothing.wav")
    soundfile.write(tmp_path / "nan.wav", np.full(800, np.nan), 16_000, subtype="FLOAT")
    with pytest.raises(BadAudio, match="not finite"):
        read_audio(tmp_path / "nan.wav")
    with pytest.raises(BadAudio) as found:
        read_audio(tmp_path / "absent.wav")
    assert found.value.reason == Reason.MISSING_FILE


def test_joining_puts_silence_between_the_parts():
    parts = [np.ones(100, np.float32), np.full(50, 2, np.float32)]
    joined = join_audio(parts, [0.01])
    assert joined.tolist() == [1.0] * 100 + [0.0] * 160 + [2.0] * 50
