"""A corpus of synthetic speech: many speakers in several languages, under clean and noisy conditions, from a seed.

Speakers are voices of eSpeak NG (accent and variant) with a pitch, a pace and a place they record in; the number of
their utterances is log-normal, so that a few say much and many say little, as in Common Voice. What they say comes
from `grammar`, how it is recorded from `recording`. eSpeak NG runs in processes of its own (see espeak_process).

Guarantees: the same options give the same bytes in every file, for any number of workers and after any interruption
(on one type of machine, with the same versions of the libraries). A speaker depends on the seed and its own name
alone, whatever the number of speakers. A speaker's folder is there as a whole or not at all.
"""

import functools
import importlib.metadata
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
from pydantic import Field, field_validator

from sottovoce.data.corpora.grammar import Grammar
from sottovoce.data.corpora.recording import Recording
from sottovoce.data.corpora.spec import CorpusSpec
from sottovoce.data.corpora.voices import Conditions, Domain, Language, Speaker, UtteranceCounts, draw_speaker
from sottovoce.errors import DataError, SottoError
from sottovoce.features.logmel import SAMPLE_RATE_HZ
from sottovoce.files import make_folder, only_writer, sync_folder, write_json, written_whole
from sottovoce.processes import map_ordered
from sottovoce.randomness import stream
from sottovoce.version import VERSION

COLUMNS = (
    *("path", "speaker", "text", "language", "domain", "voice"),
    *("snr_db", "noise", "band_hz", "reverb_seconds"),
)
OPTIONS_FILE = "options.json"
INDEX_FILE = "index.tsv"

_ESPEAK = Path(__file__).with_name("espeak_process.py")
_PAUSE_SECONDS = (0.1, 0.3)  # of silence before and after what is said
_SECONDS_PER_WORD = 0.33
_SPEED = 110.0  # seconds of speech that one core makes, with their features, in a second
_AUDIO_BYTES_PER_SECOND = 20_000

_grammar = functools.cache(Grammar.load)


class Synthetic(CorpusSpec):
    """Synthetic speech by eSpeak NG, made on the spot."""

    kind: Literal["synthetic"] = "synthetic"
    speakers: int = Field(
        default=200, ge=1, le=100_000, description="speakers in all, shared out over languages and domains"
    )
    languages: tuple[Language, ...] = Field(default=("en",), min_length=1, description="languages spoken: en, fr, de")
    domain: Literal["clean", "noisy", "both"] = Field(
        default="both", description="recording conditions: clean, noisy (noise, rooms, poor microphones) or both"
    )
    vocabulary: int = Field(default=100, ge=1, description="distinct words in each language, up to about 500")
    mean_utterances: float = Field(
        default=8.0,
        ge=1,
        le=10_000,
        description="mean of the log-normal number of utterances per speaker, before the maximum",
    )
    max_utterances: int = Field(default=64, ge=1, le=10_000, description="most utterances of one speaker")
    tail: float = Field(
        default=1.2, ge=0, le=5, description="sigma of the log-normal number of utterances; Common Voice has about 2.2"
    )
    voices: int | None = Field(
        default=None, ge=1, description="distinct voices in each language, drawn at random; null: all (808 in English)"
    )
    clean_snr_db: float | None = Field(
        default=None, ge=-20, le=100, description="clean domain: as least_snr_db, of quiet rooms; null: no noise at all"
    )
    least_snr_db: float = Field(
        default=3.0, ge=-20, le=60, description="noisy domain: signal-to-noise ratios go from this to 17 dB more"
    )
    band_share: float = Field(default=0.4, ge=0, le=1, description="noisy domain: speakers with a poor microphone")
    reverb_share: float = Field(default=0.5, ge=0, le=1, description="noisy domain: speakers in a reverberant room")
    seed: int = Field(default=0, ge=0, description="the seed of everything random in the corpus")

    @field_validator("languages")
    @classmethod
    def _once_each(cls, languages: tuple[Language, ...]) -> tuple[Language, ...]:
        if len(set(languages)) < len(languages):
            raise ValueError("name each language once")
        return languages

    def check(self) -> None:
        """Raise an error now if eSpeak NG is not there or a grammar has not as many words."""
        _loader_folder()
        for language in self.languages:
            _grammar(language, self.vocabulary)

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The domains asked for."""
        return ("clean", "noisy") if self.domain == "both" else (self.domain,)

    @property
    def label(self) -> str:
        """The name shown in statistics."""
        return f"synthetic-{'-'.join(self.languages)}"

    def expected_utterances(self) -> int:
        """Return the number of utterances, exactly."""
        return sum(speaker.utterances for speaker in speakers_of(self))

    def expected_seconds(self) -> float:
        """Return about how many seconds of audio there will be."""
        rng = stream(self.seed, "synthetic-estimate")
        grammars = [_grammar(language, self.vocabulary) for language in self.languages]
        words = np.mean([len(grammar.sentence(rng).split()) for grammar in grammars for _ in range(200)])
        return float(self.expected_utterances() * (words * _SECONDS_PER_WORD + sum(_PAUSE_SECONDS)))

    def expected_audio_bytes(self) -> float:
        """Return about how much space the audio takes."""
        return self.expected_seconds() * _AUDIO_BYTES_PER_SECOND

    def expected_speed(self) -> float:
        """Return about how many seconds of audio one core makes in a second."""
        return _SPEED


def speakers_of(options: Synthetic) -> list[Speaker]:
    """Return the speakers, sorted by name; languages and domains take turns until there are enough."""
    counts = UtteranceCounts(options.mean_utterances, options.tail, options.max_utterances)
    conditions = Conditions(options.clean_snr_db, options.least_snr_db, options.band_share, options.reverb_share)
    cells = [(language, domain) for domain in options.domains for language in options.languages]
    turns = ((*cells[turn % len(cells)], turn // len(cells)) for turn in range(options.speakers))
    drawn = (draw_speaker(options.seed, *turn, counts, conditions, options.voices) for turn in turns)
    return sorted(drawn, key=lambda speaker: speaker.name)


def generate(options: Synthetic, folder: Path, workers: int, on_speaker: Callable[[int, int], None]) -> Path:
    """Make the corpus in folder/audio and return its index, folder/index.tsv, which is written last.

    Speakers who are there already are kept, so that an interrupted generation goes on where it stopped.
    `on_speaker` is told how many speakers are done, of how many.
    """
    options.check()  # nothing is written where nothing can be made
    audio = folder / "audio"
    make_folder(audio)
    with only_writer(audio):
        _remove_temporaries(audio, folder)
        _begin(options, audio)
        tasks = [_SpeakerTask(options, speaker, audio) for speaker in speakers_of(options)]
        rows: list[list[str]] = [list(COLUMNS)]
        for done, new in enumerate(map_ordered(_make_speaker, tasks, workers), start=1):
            rows += new
            on_speaker(done, len(tasks))
        index = folder / INDEX_FILE
        with written_whole(index) as file:
            file.writelines("\t".join(row).encode() + b"\n" for row in rows)
        return index


def _begin(options: Synthetic, audio: Path) -> None:
    """Note what is being made, or check that what was begun here is the same."""
    path = audio / OPTIONS_FILE
    now = options.model_dump(mode="json") | {"sottovoce": VERSION, "espeakng-loader": _loader_version()}
    if not path.exists():
        if any(not entry.name.startswith(".") for entry in audio.iterdir()):
            raise DataError(f"{audio} holds other files. Choose another folder.")
        write_json(path, now)
        return
    try:
        then = dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        raise DataError(f"{path} is damaged. Remove {audio} to make the corpus again.") from None
    if then != now:
        changed = ", ".join(f"{key}={then.get(key)}" for key in sorted({*then, *now}) if then.get(key) != now.get(key))
        raise DataError(f"{audio} was made with other options: {changed}. Choose another folder or remove it.")


def _remove_temporaries(audio: Path, folder: Path) -> None:
    """Remove what a killed generation left behind."""
    for path in [*audio.glob(".*.tmp"), *folder.glob(f".{INDEX_FILE}.*.tmp")]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@dataclass(frozen=True)
class _SpeakerTask:
    """One speaker to be made."""

    options: Synthetic
    speaker: Speaker
    audio: Path

    def sentences(self) -> list[str]:
        """Return what the speaker says; the beginning does not depend on how much it is."""
        grammar = _grammar(self.speaker.language, self.options.vocabulary)
        rng = stream(self.options.seed, "synthetic-text", self.speaker.name)
        return [grammar.sentence(rng) for _ in range(self.speaker.utterances)]

    def rows(self, sentences: list[str]) -> list[list[str]]:
        """Return the rows of the index."""
        return [
            [f"audio/{self.speaker.name}/{name}", self.speaker.name, text, *self._about()]
            for name, text in zip(self.files(), sentences, strict=True)
        ]

    def files(self) -> list[str]:
        """Return the names of the speaker's files, in order."""
        return [f"{self.speaker.name}-{number:04d}.flac" for number in range(self.speaker.utterances)]

    def _about(self) -> list[str]:
        speaker, recording = self.speaker, self.speaker.recording
        band = "{:g}-{:g}".format(*recording.band_hz) if recording.band_hz else ""
        snr = "" if recording.snr_db is None else f"{recording.snr_db:g}"
        return [
            *(speaker.language, speaker.domain, speaker.voice),
            *(snr, recording.noise or "", band, f"{recording.reverb_seconds:g}"),
        ]


def _make_speaker(task: _SpeakerTask) -> list[list[str]]:
    """Make a speaker's folder unless it is there, and return its rows of the index."""
    folder, sentences = task.audio / task.speaker.name, task.sentences()
    if folder.exists():
        for name in task.files():
            _require_audio(folder / name)
        return task.rows(sentences)
    with _folder_whole(folder) as temporary:
        for number, (name, spoken) in enumerate(zip(task.files(), _speak(task.speaker, sentences), strict=True)):
            rng = stream(task.options.seed, "synthetic-recording", task.speaker.name, number)
            _write_flac(temporary / name, _recorded(spoken, task.speaker.recording, rng))
    return task.rows(sentences)


def _require_audio(path: Path) -> None:
    try:
        soundfile.info(path)
    except soundfile.SoundFileError:
        raise DataError(f"{path} is missing or damaged. Remove {path.parent} to have it made again.") from None


@contextmanager
def _folder_whole(folder: Path) -> Iterator[Path]:
    """Give a temporary folder that gets its name, and is on disk, only when it is complete."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        sync_folder(temporary)
        temporary.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _speak(speaker: Speaker, sentences: list[str]) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the sentences in the speaker's voice, at 16 kHz."""
    document: dict[str, Any] = {"voice": speaker.voice, "pitch": speaker.pitch, "range": speaker.pitch_range}
    document |= {"rate": speaker.rate, "sentences": sentences}
    # Isolated (-I) from the environment and from our own package; so the loader's folder must be given.
    command = [sys.executable, "-I", str(_ESPEAK), str(_loader_folder())]
    ended = subprocess.run(command, input=json.dumps(document).encode(), capture_output=True, check=False)
    if ended.returncode != 0:
        reason = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"status {ended.returncode}."
        raise SottoError(f"eSpeak NG failed as {speaker.voice}: {reason} Reinstall espeakng-loader.")
    line, _, data = ended.stdout.partition(b"\n")
    header = json.loads(line)
    ends = np.cumsum(header["samples"])[:-1]
    for samples in np.split(np.frombuffer(data, dtype=np.int16), ends):
        yield soxr.resample(samples.astype(np.float32) / 32768, header["sample_rate_hz"], SAMPLE_RATE_HZ, quality="HQ")


def _recorded(spoken: npt.NDArray[np.float32], recording: Recording, rng: np.random.Generator) -> npt.NDArray[np.int16]:
    pauses = [round(seconds * SAMPLE_RATE_HZ) for seconds in rng.uniform(*_PAUSE_SECONDS, size=2)]
    samples = recording.apply(np.pad(spoken, pauses), rng)
    return np.round(samples * np.float32(32767)).astype(np.int16)


def _write_flac(path: Path, samples: npt.NDArray[np.int16]) -> None:
    encoded = io.BytesIO()  # an error of the disk would be lost inside libsndfile
    soundfile.write(encoded, samples, SAMPLE_RATE_HZ, format="FLAC", subtype="PCM_16")
    with path.open("wb") as file:
        file.write(encoded.getvalue())
        file.flush()
        os.fsync(file.fileno())


def _loader_folder() -> Path:
    """Return the folder that holds espeakng_loader, which is never imported here: see espeak_process."""
    spec = importlib.util.find_spec("espeakng_loader")
    if spec is None or spec.origin is None:
        raise SottoError("eSpeak NG, which speaks the synthetic corpus, is missing: pip install 'sottovoce[synthetic]'")
    return Path(spec.origin).parents[1]


def _loader_version() -> str:
    try:
        return importlib.metadata.version("espeakng-loader")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
