"""Transcripts of many files: the same in any batch and with any number of processes, in every format."""

import io
import json
import re
import sys

import numpy as np
import pytest
import soundfile
import soxr
import torch

from conftest import write_audio
from sottovoce.data.text import TokenSet
from sottovoce.evaluation import windows
from sottovoce.evaluation.file_transcription import Unread, _tasks, transcribe_files
from sottovoce.evaluation.transcript_formats import TranscriptFormat, TranscriptStream, as_document
from sottovoce.evaluation.transcription import hear, transcribe
from sottovoce.evaluation.transcripts import Transcript, Word
from sottovoce.evaluation.windows import FilePiece, pieces_of
from sottovoce.model.recogniser import Recogniser
from sottovoce.model.transformer_options import TransformerOptions

SMALL = TransformerOptions(blocks=1, width=16, heads=2, mlp_width=32, dropout=0.0, layer_drop=0.0)
SPOKEN = Transcript(
    "a.wav", 9.5, [Word("hello", 0.3, 0.6), Word("there", 0.75, 0.99), Word("again", 3.0, 3.42), Word("now", 3.5, 3.9)]
)


@pytest.fixture
def recogniser():
    return Recogniser.make(SMALL, TokenSet(("en",))).initialise(0)


@pytest.fixture
def model(recogniser, tmp_path):
    recogniser.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_a_long_file_in_pieces_is_the_file_as_a_whole(recogniser, tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "PIECE_WINDOWS", 1)
    path = write_audio(tmp_path / "long.wav", 40.0)
    pieces = pieces_of(path)
    assert [(piece.first, piece.windows) for piece in pieces] == [(0, 1), (1, 1), (2, None)]
    in_pieces = [window for piece in pieces for window in piece.read()]
    whole = list(FilePiece(path).read())
    assert [window.number for window in in_pieces] == [window.number for window in whole] == list(range(3))
    for one, other in zip(in_pieces, whole, strict=True):
        assert (one.samples == other.samples).all()
        assert one.ends == other.ends
    found = transcribe(recogniser, path)
    monkeypatch.setattr(windows, "PIECE_WINDOWS", 100)
    assert transcribe(recogniser, path) == found
    assert found.seconds == pytest.approx(40.0)


@pytest.mark.parametrize("name", ["a.flac", "a.ogg", "a.mp3"])
def test_later_pieces_hear_the_same_at_other_rates(name, tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "PIECE_WINDOWS", 1)
    path = write_audio(tmp_path / name, 20.0, rate=22_050)
    (later,), (_, whole) = pieces_of(path)[1].read(), FilePiece(path).read()
    assert (later.number, later.ends, len(later.samples)) == (1, True, len(whole.samples))
    assert np.abs(later.samples - whole.samples).max() < 2e-3


def test_an_mp3_in_blocks_is_the_mp3_at_once(tmp_path, monkeypatch):
    path = write_audio(tmp_path / "a.mp3", 10.0)
    monkeypatch.setattr(windows, "_BLOCK_SAMPLES", 10_000)
    (window,) = FilePiece(path).read()
    assert np.abs(window.samples - soundfile.read(path, dtype="float32")[0]).max() < 1e-6


def test_a_file_shorter_than_its_header_says_ends_where_it_ends(recogniser, tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "PIECE_WINDOWS", 1)
    path = write_audio(tmp_path / "cut.wav", 40.0)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert transcribe(recogniser, path).seconds == pytest.approx(20.0, abs=0.1)


def test_a_short_file_at_another_rate_is_resampled_as_in_a_corpus(tmp_path):
    path = write_audio(tmp_path / "a.wav", 3.0, rate=44_100)
    (window,) = pieces_of(path)[0].read()
    samples, rate = soundfile.read(path, dtype="float32")
    assert (window.samples == soxr.resample(samples, rate, 16_000, quality="HQ")).all()


def test_neighbours_in_a_batch_change_nothing(recogniser, real_speech):
    paths = sorted((real_speech / "LibriSpeech").rglob("*.flac"))[:12]
    together = hear(recogniser, [piece for path in paths for piece in pieces_of(path)])
    for path, heard in zip(paths, together, strict=True):
        (alone,) = hear(recogniser, pieces_of(path))
        assert (alone.path == heard.path).all()
        assert (alone.frames == heard.frames).all()


def test_tasks_follow_from_the_files_alone():
    pieces = [FilePiece(f"{number}", seconds=seconds) for number, seconds in enumerate([5, 50, 60, 20, 240, 1])]
    assert [len(task) for task in _tasks(iter(pieces))] == [1, 2, 1, 1, 1]
    assert [len(task) for task in _tasks(FilePiece("x") for _ in range(200))] == [1, 64, 64, 64, 7]


def test_any_number_of_processes_gives_the_same_in_the_order_of_the_files(model, tmp_path, monkeypatch):
    monkeypatch.setattr("sottovoce.evaluation.file_transcription._SECONDS_PER_PROCESS", 1.0)
    paths = [write_audio(tmp_path / f"{number}.wav", 1.0 + 0.2 * number, number) for number in range(6)]
    paths.insert(2, tmp_path / "absent.wav")
    said = []
    results = [list(transcribe_files(model, paths, workers=workers)) for workers in (1, 2)]
    monkeypatch.setattr("sottovoce.evaluation.file_transcription._SCANNED_FIRST", 0)
    results.append(list(transcribe_files(model, paths, progress=lambda *words: said.append(words))))
    assert results[0] == results[1] == results[2]
    assert [result.file for result in results[0]] == [str(path) for path in paths]
    assert [type(result) for result in results[0]] == [Transcript, Transcript, Unread, *[Transcript] * 4]
    assert said[-1] == ("files", 7, 7)


def test_unusable_audio_is_one_line_each_and_the_rest_goes_on(model, tmp_path, sotto):
    good = write_audio(tmp_path / "good.wav", 1.0)
    header = bytearray(good.read_bytes())
    header[24:28] = (1).to_bytes(4, "little")  # one sample a second
    (tmp_path / "slow.wav").write_bytes(header)
    samples = np.zeros(16_000, np.float32)
    samples[7] = np.nan
    soundfile.write(tmp_path / "nan.wav", samples, 16_000, subtype="FLOAT")
    (tmp_path / "empty.wav").write_bytes(b"")
    bad = [tmp_path / name for name in ("slow.wav", "nan.wav", "empty.wav", "absent.wav")]
    outcome = sotto("transcribe", model, *bad, good, "--json", "--workers", 1)
    errors = [line for line in outcome.stderr.splitlines() if line.startswith("error: ")]
    assert (outcome.code, len(errors), [one["file"] for one in outcome.document]) == (1, 4, [str(good)])
    assert "1 samples a second, outside 4,000 to 400,000" in errors[0]
    assert "not finite" in errors[1]


def test_a_damaged_model_is_an_error(recogniser, tmp_path, sotto):
    recogniser.flat.theta.fill_(torch.nan)
    recogniser.save(tmp_path / "model.safetensors")
    write_audio(tmp_path / "a.wav", 1.0)
    outcome = sotto("transcribe", tmp_path, tmp_path / "a.wav", "--json")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert "not finite" in outcome.error
    exported = sotto("export", tmp_path, "--to", "onnx", "--out", tmp_path / "model.onnx")
    assert "not finite" in exported.error
    assert not (tmp_path / "model.onnx").exists()


def test_a_truncated_file_is_transcribed_with_a_line_that_says_so(model, tmp_path, sotto):
    whole, cut = (write_audio(tmp_path / name, 2.0) for name in ("whole.wav", "cut.wav"))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    outcome = sotto("transcribe", model, whole, cut, "--json", "--workers", 1)
    assert [line for line in outcome.stderr.splitlines() if "truncated" in line] == [
        f"{cut}: truncated audio: 1.00 s where 2.00 s are announced. The transcript ends where the file does."
    ]
    assert [one["seconds"] for one in outcome.document] == pytest.approx([2.0, 1.0], abs=0.01)


def test_audio_without_a_whole_frame_has_no_words_and_no_warnings(model, tmp_path, sotto):
    soundfile.write(tmp_path / "short.wav", np.zeros(10, np.float32), 16_000)
    outcome = sotto("transcribe", model, tmp_path / "short.wav", "--workers", 1)
    assert outcome.code == 0
    assert outcome.stderr == f"{tmp_path / 'short.wav'}: (no speech recognised)\n"


def test_subtitles_are_valid():
    srt = as_document(SPOKEN, TranscriptFormat.SRT)
    assert srt == ("1\n00:00:00,300 --> 00:00:01,300\nhello there\n\n2\n00:00:03,000 --> 00:00:04,000\nagain now\n")
    vtt = as_document(SPOKEN, TranscriptFormat.VTT)
    assert vtt.startswith("WEBVTT\n\n00:00:00.300 --> 00:00:01.300\nhello there\n\n")
    assert as_document(Transcript("a", 1.0, []), TranscriptFormat.VTT) == "WEBVTT\n"
    brief = Transcript("a", 0.656, [Word("six", 0.15, 0.4)])
    assert "00:00:00,150 --> 00:00:00,656" in as_document(brief, TranscriptFormat.SRT)
    many = Transcript("a", 9000.0, [Word("word" * (1 + n % 5), 3600 + 0.5 * n, 3600.4 + 0.5 * n) for n in range(400)])
    times = []
    for cue in as_document(many, TranscriptFormat.SRT).split("\n\n"):
        _, clock, *lines = cue.strip().split("\n")
        assert len(lines) <= 2
        assert all(len(line) <= 42 for line in lines)
        times += [
            3600 * int(h) + 60 * int(m) + int(s) + int(ms) / 1000
            for h, m, s, ms in re.findall(r"(\d\d):(\d\d):(\d\d),(\d{3})", clock)
        ]
    assert times == sorted(times)
    assert all(0 < end - start <= 6.5 for start, end in zip(times[::2], times[1::2], strict=True))


def test_a_textgrid_covers_the_file_without_gaps():
    grid = as_document(SPOKEN, TranscriptFormat.TEXTGRID)
    rows = re.findall(r'xmin = ([\d.]+)\s+xmax = ([\d.]+)\s+text = "(.*)"', grid)
    assert [text for _, _, text in rows] == ["", "hello", "", "there", "", "again", "", "now", ""]
    assert [end for _, end, _ in rows[:-1]] == [start for start, _, _ in rows[1:]]
    assert (float(rows[0][0]), float(rows[-1][1])) == (0.0, 9.5)
    assert f"intervals: size = {len(rows)}" in grid


def test_every_one_of_several_files_has_a_line():
    lines = []
    stream = TranscriptStream(lines.append, TranscriptFormat.TXT, named=True)
    for transcript in (SPOKEN, Transcript("silent.wav", 1.0, [])):
        stream.add(transcript)
    stream.close()
    assert lines == [f"{SPOKEN.file}: hello there again now\n", "silent.wav:\n"]


def test_where_transcripts_are_written(model, tmp_path, sotto):
    first, second = (write_audio(tmp_path / "in" / name, 1.0, seed) for seed, name in enumerate(("a.wav", "x/b.flac")))
    outcome = sotto("transcribe", model, tmp_path / "in", "--format", "srt", "--out", f"{tmp_path}/subtitles/")
    assert outcome.code == 0
    made = sorted(path.relative_to(tmp_path / "subtitles") for path in (tmp_path / "subtitles").rglob("*.srt"))
    assert [str(path) for path in made] == ["a.srt", "x/b.srt"]
    both = tmp_path / "both.jsonl"
    assert sotto("transcribe", model, first, second, "--format", "jsonl", "--out", both).code == 0
    assert [json.loads(line)["file"] for line in both.read_text().splitlines()] == [str(first), str(second)]
    assert both.stat().st_mode & 0o777 == 0o600
    for where in ((), ("--out", tmp_path / "both.vtt")):
        assert (
            "is a document for each file" in sotto("transcribe", model, first, second, "--format", "vtt", *where).error
        )
    assert not (tmp_path / "both.vtt").exists()
    assert "would be written to" in sotto("transcribe", model, first, first, "--out", f"{tmp_path}/twice/").error
    assert "is one of the recordings" in sotto("transcribe", model, first, "--out", first).error
    assert "contradict" in sotto("transcribe", model, first, "--json", "--format", "srt").error
    (tmp_path / "none").mkdir()
    assert "holds no audio files" in sotto("transcribe", model, tmp_path / "none").error


def test_standard_input_is_a_file(model, tmp_path, sotto, monkeypatch):
    path = write_audio(tmp_path / "a.flac", 1.3)
    named = sotto("transcribe", model, path, "--json").document[0]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    outcome = sotto("transcribe", model, "-", "--json")
    assert outcome.document == [named | {"file": "-"}]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"no audio")))
    assert sotto("transcribe", model, "-").error.startswith("error: - cannot be read: ")
    assert "once" in sotto("transcribe", model, "-", "-").error
