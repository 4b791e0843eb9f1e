"""The synthetic corpus: the same bytes however it is made, independent speakers, clear errors."""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from pydantic import ValidationError

import sottovoce
from sottovoce.data.corpora import espeak_process
from sottovoce.data.corpora.grammar import Grammar
from sottovoce.data.corpora.speech_engine import SpeechEngine
from sottovoce.data.corpora.synthetic import COLUMNS, Synthetic, generate, speakers_of
from sottovoce.data.corpora.voices import VOICES
from sottovoce.data.text import normalise
from sottovoce.errors import ConfigError, DataError, SottoError
from sottovoce.files import only_writer

needs_espeak = pytest.mark.skipif(
    importlib.util.find_spec("espeakng_loader") is None,
    reason="espeakng-loader is not installed: pip install 'sottovoce[synthetic]'",
)

OPTIONS = Synthetic(speakers=12, languages=("en", "fr", "de"), mean_utterances=3, max_utterances=6, tail=0.8, seed=5)
SOURCES = Path(sottovoce.__file__).parents[1]
# Of the index and all audio of OPTIONS. Published results are identified by the content of such corpora.
DIGEST = "9e987e338099f4f1db0f109f1f066c4eec474056d5d353c8034544ea65e40629"
DIGEST_OF = {"numpy": "2.4.6", "soundfile": "0.14.0", "soxr": "1.1.0", "espeakng-loader": "0.2.4"}


def ignore(done: int, total: int) -> None:
    pass


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def rows_of(index: Path) -> list[dict[str, str]]:
    header, *lines = (line.split("\t") for line in index.read_text(encoding="utf-8").splitlines())
    assert tuple(header) == COLUMNS
    return [dict(zip(header, line, strict=True)) for line in lines]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    generate(OPTIONS, folder, 1, ignore)
    return folder


# What is made


@needs_espeak
def test_two_workers_make_the_same_bytes_as_one(corpus: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    generate(OPTIONS, tmp_path, 2, lambda done, total: seen.append((done, total)))
    assert digests(tmp_path) == digests(corpus)
    assert seen == [(done, 12) for done in range(1, 13)]


@needs_espeak
def test_no_byte_has_changed(corpus: Path) -> None:
    if platform.machine() != "x86_64" or {name: importlib.metadata.version(name) for name in DIGEST_OF} != DIGEST_OF:
        pytest.skip("bytes depend on the type of machine and on the versions of libraries")
    files = sorted([corpus / "index.tsv", *corpus.glob("audio/*/*.flac")])
    assert hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest() == DIGEST


@needs_espeak
def test_another_seed_makes_other_speech(corpus: Path, tmp_path: Path) -> None:
    generate(OPTIONS.model_copy(update={"seed": 6, "speakers": 1}), tmp_path, 1, ignore)
    assert not set(digests(tmp_path / "audio").values()) & set(digests(corpus / "audio").values())


@needs_espeak
def test_the_index_lists_every_file_as_it_is(corpus: Path) -> None:
    rows = rows_of(corpus / "index.tsv")
    paths = [row["path"] for row in rows]
    assert paths == sorted(paths)
    assert set(paths) == {str(path.relative_to(corpus)) for path in corpus.glob("audio/*/*.flac")}
    assert len({Path(path).stem for path in paths}) == len(paths) == OPTIONS.expected_utterances()
    seconds = 0.0
    for row in rows:
        info = soundfile.info(corpus / row["path"])
        assert (info.samplerate, info.channels, info.format, info.subtype) == (16_000, 1, "FLAC", "PCM_16")
        seconds += info.duration
    assert seconds == pytest.approx(OPTIONS.expected_seconds(), rel=0.3)


@needs_espeak
def test_every_row_tells_its_speaker_and_conditions(corpus: Path) -> None:
    speakers = {speaker.name: speaker for speaker in speakers_of(OPTIONS)}
    for row in rows_of(corpus / "index.tsv"):
        speaker = speakers[row["speaker"]]
        assert row["path"].startswith(f"audio/{speaker.name}/{speaker.name}-0")
        assert (row["language"], row["domain"], row["voice"]) == (speaker.language, speaker.domain, speaker.voice)
        assert row["noise"] == (speaker.recording.noise or "")
        assert float(row["snr_db"] or "nan") == pytest.approx(speaker.recording.snr_db or np.nan, nan_ok=True)
        assert float(row["reverb_seconds"]) == speaker.recording.reverb_seconds


@needs_espeak
def test_texts_are_normalised_and_inside_the_vocabulary(corpus: Path) -> None:
    for row in rows_of(corpus / "index.tsv"):
        assert normalise(row["text"], row["language"]) == row["text"]
        assert set(row["text"].split()) <= Grammar.load(row["language"], OPTIONS.vocabulary).words


@needs_espeak
def test_the_audio_sounds_like_speech(corpus: Path) -> None:
    """Plausible pace and level, no clipping, and (without noise) silence around the words but not within."""
    for row in rows_of(corpus / "index.tsv"):
        samples, _ = soundfile.read(corpus / row["path"], dtype="float64")
        assert 0.1 < (len(samples) / 16_000 - 0.4) / len(row["text"].split()) < 0.95, row
        assert -40 < 10 * np.log10(np.mean(samples**2)) < -10
        assert np.abs(samples).max() < 1
        if row["domain"] == "clean":
            assert not samples[: round(0.09 * 16_000)].any()
            assert not samples[-round(0.09 * 16_000) :].any()


@needs_espeak
def test_the_engine_is_never_loaded_here(corpus: Path) -> None:
    assert "espeakng_loader" not in sys.modules
    loaded = Path("/proc/self/maps")
    assert not loaded.exists() or "libespeak" not in loaded.read_text()


# Interruptions


def start(options: Synthetic, folder: Path, workers: int) -> subprocess.Popen[bytes]:
    script = folder.parent / "make.py"
    script.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from sottovoce.data.corpora.synthetic import Synthetic, generate\n"
        "if __name__ == '__main__':\n"
        "    options = Synthetic.model_validate_json(sys.argv[1])\n"
        "    wait = lambda done, total: time.sleep(60 if done == 4 else 0)\n"  # so that it is killed before the end
        "    generate(options, Path(sys.argv[2]), int(sys.argv[3]), wait)\n"
    )
    command = [sys.executable, str(script), options.model_dump_json(), str(folder), str(workers)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(SOURCES)}, stderr=subprocess.PIPE)


@needs_espeak
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_generation_goes_on_and_makes_the_same_bytes(corpus: Path, tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "corpus"
    process = start(OPTIONS, folder, workers)
    while len(list(folder.glob("audio/[!.]*/"))) < 2 and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("audio/[!.]*/*.flac")}
    assert kept
    assert not (folder / "index.tsv").exists()
    leftover = folder / "audio" / ".en-noisy-00000.tmp"  # what a kill in the middle of this speaker leaves
    leftover.mkdir(exist_ok=True)
    (leftover / "en-noisy-00000-0000.flac").write_bytes(b"half a fi")
    generate(OPTIONS, folder, workers, ignore)
    assert digests(folder) == digests(corpus)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


@needs_espeak
def test_a_full_disk_is_an_ordinary_error_that_leaves_no_half_speaker(tmp_path: Path) -> None:
    script = (
        "import resource\n"
        "from pathlib import Path\n"
        "from sottovoce.data.corpora.synthetic import Synthetic, generate\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try:\n"
        "    generate(Synthetic(speakers=1), Path('corpus'), 1, lambda done, total: None)\n"
        "except OSError as error:\n"
        "    print(type(error).__name__, [path.name for path in Path('corpus/audio').iterdir() if path.is_dir()])\n"
    )
    command = [sys.executable, "-c", script]
    env = os.environ | {"PYTHONPATH": str(SOURCES)}
    assert subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=True).stdout == b"OSError []\n"


# Errors


@needs_espeak
def test_other_options_in_the_same_folder_are_refused(corpus: Path) -> None:
    before = digests(corpus)
    with pytest.raises(DataError, match=r"was made with other options: speakers=12, vocabulary=100. Choose another"):
        generate(OPTIONS.model_copy(update={"speakers": 13, "vocabulary": 99}), corpus, 1, ignore)
    assert digests(corpus) == before


@needs_espeak
def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    (tmp_path / "audio" / "song.mp3").touch()
    with pytest.raises(DataError, match=r"audio contains other files. Choose another folder.$"):
        generate(OPTIONS, tmp_path, 1, ignore)


@needs_espeak
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_damaged_file_is_named(tmp_path: Path, damage: Any) -> None:
    options = Synthetic(speakers=1, mean_utterances=1, tail=0)
    generate(options, tmp_path, 1, ignore)
    damage(tmp_path / "audio/en-clean-00000/en-clean-00000-0000.flac")
    with pytest.raises(DataError, match=r"en-clean-00000-0000.flac is missing or damaged. Remove .*en-clean-00000 to"):
        generate(options, tmp_path, 1, ignore)


@needs_espeak
def test_damaged_options_are_named(tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    (tmp_path / "audio" / "options.json").write_text("{")
    with pytest.raises(DataError, match=r"options.json is damaged. Remove"):
        generate(OPTIONS, tmp_path, 1, ignore)


@needs_espeak
def test_two_generations_in_one_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    with only_writer(tmp_path / "audio"), pytest.raises(DataError, match="Another process is writing"):
        generate(OPTIONS, tmp_path, 1, ignore)


def test_without_the_engine_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)  # as Python marks a module that cannot be imported
    with pytest.raises(SottoError, match=r"is missing: pip install 'sottovoce\[synthetic\]'$"):
        generate(OPTIONS, tmp_path / "corpus", 1, ignore)
    assert not (tmp_path / "corpus").exists()


@needs_espeak
def test_an_impossible_vocabulary_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^Expected 7 <= vocabulary=9999 <= \d+ for language en.$"):
        generate(Synthetic(vocabulary=9999), tmp_path / "corpus", 1, ignore)
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"speakers": 0},
        {"languages": ()},
        {"languages": ("en", "en")},
        {"languages": ("it",)},
        {"domain": "dirty"},
        {"mean_utterances": 0},
        {"max_utterances": 0},
        {"tail": -1},
        {"seed": -1},
        {"speaker": 10},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Synthetic(**options)


def test_every_option_is_described() -> None:
    assert all(field.description for name, field in Synthetic.model_fields.items() if name != "kind")


# Speakers


def test_a_speaker_is_the_same_whoever_else_speaks() -> None:
    many = {speaker.name: speaker for speaker in speakers_of(Synthetic(speakers=600, languages=("en", "fr", "de")))}
    few = speakers_of(Synthetic(speakers=20))
    noisy = speakers_of(Synthetic(speakers=17, languages=("de", "en"), domain="noisy"))
    for speaker in few + noisy:
        assert many[speaker.name] == speaker
    assert {speaker.name for speaker in few} == {f"en-{d}-{n:05d}" for d in ("clean", "noisy") for n in range(10)}


def test_speakers_are_shared_out_evenly() -> None:
    speakers = speakers_of(Synthetic(speakers=100, languages=("en", "fr", "de")))
    cells = [(speaker.language, speaker.domain) for speaker in speakers]
    assert sorted(cells.count(cell) for cell in set(cells)) == [16, 16, 17, 17, 17, 17]
    assert [speaker.name for speaker in speakers] == sorted(speaker.name for speaker in speakers)


def test_clean_speakers_are_clean_and_noisy_ones_noisy_and_more_varied() -> None:
    clean = speakers_of(Synthetic(speakers=1000, domain="clean"))
    noisy = speakers_of(Synthetic(speakers=1000, domain="noisy"))
    assert {
        (s.recording.snr_db, s.recording.noise, s.recording.band_hz, s.recording.reverb_seconds) for s in clean
    } == {(None, None, None, 0)}
    assert all(3 <= (s.recording.snr_db or 0) <= 20 for s in noisy)
    assert {s.recording.noise for s in noisy} == {"white", "pink", "speech", "babble", "hum"}
    assert np.mean([s.recording.band_hz is not None for s in noisy]) == pytest.approx(0.4, abs=0.06)
    assert np.mean([s.recording.reverb_seconds > 0 for s in noisy]) == pytest.approx(0.5, abs=0.06)
    for attribute in ("pitch", "pitch_range", "rate"):
        assert np.ptp([getattr(s, attribute) for s in noisy]) > 1.5 * np.ptp([getattr(s, attribute) for s in clean])


def test_thousands_of_speakers_all_differ() -> None:
    speakers = speakers_of(Synthetic(speakers=6000, languages=("en", "fr", "de")))
    assert len({(s.voice, s.pitch, s.pitch_range, s.rate) for s in speakers}) > 0.99 * len(speakers)


@pytest.mark.parametrize("tail", [0.5, 1.2, 1.6])
def test_the_number_of_utterances_is_log_normal(tail: float) -> None:
    options = Synthetic(speakers=4000, mean_utterances=200, max_utterances=10_000, tail=tail)
    counts = np.log([speaker.utterances for speaker in speakers_of(options)])
    assert np.std(counts) == pytest.approx(tail, rel=0.06)
    assert np.mean(counts) == pytest.approx(np.log(200) - tail**2 / 2, abs=0.12)


def test_few_say_much_and_many_say_little() -> None:
    counts = np.sort([speaker.utterances for speaker in speakers_of(Synthetic(speakers=4000))])
    assert counts[0] == 1
    assert counts[-1] == 64
    assert np.mean(counts) == pytest.approx(8, rel=0.1)
    assert np.median(counts) <= 4
    assert counts[-400:].sum() > 0.35 * counts.sum()


def test_without_tail_everybody_says_the_same_amount() -> None:
    assert {speaker.utterances for speaker in speakers_of(Synthetic(speakers=50, tail=0))} == {8}


# The engine


TASK = espeak_process.SpeechTask("en-us+f3", pitch=50, range=50, rate=160, sentences=["good morning", "hello"])


def speak(**changes: Any) -> subprocess.CompletedProcess[bytes]:
    document = json.dumps(TASK._asdict() | changes).encode()
    return subprocess.run(
        [sys.executable, "-I", espeak_process.__file__], input=document, capture_output=True, check=False
    )


@pytest.fixture
def engine() -> Iterator[SpeechEngine]:
    engine = SpeechEngine()
    yield engine
    engine.close()


@needs_espeak
def test_what_a_server_speaks_does_not_depend_on_what_it_spoke_before(engine: SpeechEngine) -> None:
    tasks = [TASK._replace(voice=voice, rate=rate) for voice, rate in [("de+klatt6", 95), ("en-gb-scotland", 190)]]
    tasks += [TASK._replace(voice="fr+whisper", pitch=90, sentences=["ils parlent"] * 3), TASK]
    for task in [*tasks, *tasks[::-1]]:
        header, _, alone = speak(**task._asdict()).stdout.partition(b"\n")
        spoken = engine.speak(task)
        assert b"".join(samples.tobytes() for samples in spoken.sentences) == alone
        assert [len(samples) for samples in spoken.sentences] == json.loads(header)["samples"]


@needs_espeak
def test_the_engine_goes_on_after_an_error_and_after_a_crash(engine: SpeechEngine) -> None:
    before = np.concatenate(engine.speak(TASK).sentences)
    with pytest.raises(SottoError, match=r"^eSpeak NG failed with the voice en\+nobody: The variant of .* Reinstall"):
        engine.speak(TASK._replace(voice="en+nobody"))
    assert np.array_equal(np.concatenate(engine.speak(TASK).sentences), before)
    assert engine._server is not None
    engine._server._process.kill()
    with pytest.raises(SottoError, match=r"^eSpeak NG failed with the voice en-us\+f3: status -9. Reinstall"):
        engine.speak(TASK)
    assert np.array_equal(np.concatenate(engine.speak(TASK).sentences), before)


@needs_espeak
def test_a_fresh_process_says_the_same_again() -> None:
    first = speak()
    time.sleep(1.1)  # by itself the engine would start its random numbers from the second of the day
    assert speak().stdout == first.stdout
    header, _, data = first.stdout.partition(b"\n")
    assert json.loads(header)["sample_rate_hz"] == 22_050
    assert 2 * sum(json.loads(header)["samples"]) == len(data)


@needs_espeak
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"voice": "en-us+nobody"}, "The variant of voice en-us+nobody does not exist."),
        ({"voice": "en-us+../!v/f3"}, "The variant of voice en-us+../!v/f3 does not exist."),
        ({"voice": "tlh-nowhere"}, "espeak_SetVoiceByName(b'tlh-nowhere',) returned 2."),
        ({"rate": 5000}, "Expected 80 <= rate=5000 <= 450."),
        ({"pitch": 100}, "Expected 0 <= pitch=100 <= 99."),
        ({"sentences": [""]}, "No sound for the sentence ''."),
    ],
)
def test_the_engine_refuses_what_it_cannot_do_as_asked(changes: dict[str, Any], message: str) -> None:
    ended = speak(**changes)
    assert (ended.returncode, ended.stdout, ended.stderr.decode()) == (1, b"", f"{message}\n")


@pytest.mark.parametrize("language", ["en", "fr", "de"])
def test_there_are_a_hundred_voices_in_every_language(language: Any) -> None:
    assert len(set(VOICES[language])) == len(VOICES[language]) >= 100


@needs_espeak
@pytest.mark.slow
def test_every_voice_speaks_and_no_two_sound_the_same() -> None:
    """All variants in German, which has one accent, and the accents of English and French with one variant."""
    accents = [voice for voice in VOICES["en"] + VOICES["fr"] if voice.endswith("+m3")]
    with ThreadPoolExecutor(2) as executor:
        spoken = list(executor.map(lambda voice: speak(voice=voice, sentences=["guten morgen"]), VOICES["de"]))
        spoken += executor.map(lambda voice: speak(voice=voice, sentences=["good water apple"]), accents)
    assert not [ended.stderr for ended in spoken if ended.returncode]
    assert len({ended.stdout for ended in spoken}) == len(VOICES["de"]) + len(accents)
