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
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
from pydantic import Field, field_validator

from sottovoce.data.corpora.grammar import Grammar
from sottovoce.data.corpora.recording import NOISES, Recording
from sottovoce.data.corpora.spec import CorpusSpec
from sottovoce.errors import DataError, SottoError
from sottovoce.features.logmel import SAMPLE_RATE_HZ
from sottovoce.files import make_folder, only_writer, sync_folder, write_json, written_whole
from sottovoce.processes import map_ordered
from sottovoce.randomness import stream
from sottovoce.version import VERSION

Language = Literal["en", "fr", "de"]
Domain = Literal["clean", "noisy"]
Range = tuple[float, float]

COLUMNS = (
    *("path", "speaker", "text", "seconds", "language", "domain", "voice"),
    *("snr_db", "noise", "band_hz", "reverb_seconds"),
)
OPTIONS_FILE = "options.json"
INDEX_FILE = "index.tsv"

_ESPEAK = Path(__file__).with_name("espeak_process.py")
_PAUSE_SECONDS = (0.1, 0.3)  # of silence before and after what is said
_SECONDS_PER_WORD = 0.33
_SPEED = 150.0  # seconds of speech that one core makes in a second

# The accents that eSpeak NG knows and that differ in sound: fr-be and fr-ch speak words exactly as fr does.
_ACCENTS: dict[Language, tuple[str, ...]] = {
    "en": ("en", "en-us", "en-gb-x-rp", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029", "en-us-nyc"),
    "fr": ("fr",),
    "de": ("de",),
}
# Its variants, but for fast (the same sound as none) and RicishayMax, 2 and 3 (an echo as loud as the voice itself).
# The list is fixed, because its order and length decide who speaks how.
_VARIANTS = (
    "",
    *("Alex", "Alicia", "Andrea", "Andy", "Annie", "AnxiousAndy", "Demonic", "Denis", "Diogo", "Gene", "Gene2"),
    *("Henrique", "Hugo", "Jacky", "Lee", "Marco", "Mario", "Michael", "Mike", "Mr serious", "Nguyen", "Reed", "Storm"),
    *("Tweaky", "UniRobot", "adam", "anika", "anikaRobot", "announcer", "antonio", "aunty", "belinda", "benjamin"),
    *("boris", "caleb", "croak", "david", "ed", "edward", "edward2", "f1", "f2", "f3", "f4", "f5", "grandma"),
    *("grandpa", "gustave", "ian", "iven", "iven2", "iven3", "iven4", "john", "kaukovalta", "klatt", "klatt2"),
    *("klatt3", "klatt4", "klatt5", "klatt6", "linda", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "marcelo"),
    *("max", "michel", "miguel", "mike2", "norbert", "pablo", "paul", "pedro", "quincy", "rob", "robert", "robosoft"),
    *("robosoft2", "robosoft3", "robosoft4", "robosoft5", "robosoft6", "robosoft7", "robosoft8", "sandro", "shelby"),
    *("steph", "steph2", "steph3", "travis", "victor", "whisper", "whisperf", "zac"),
)
VOICES: dict[Language, tuple[str, ...]] = {
    language: tuple(f"{accent}+{variant}".rstrip("+") for accent in accents for variant in _VARIANTS)
    for language, accents in _ACCENTS.items()
}
# A telephone, a narrow microphone, a voice channel, a muffled and a dull microphone.
_BANDS: tuple[Range, ...] = ((300, 3400), (100, 5000), (200, 6000), (0, 3000), (0, 4500))

_grammar = functools.cache(Grammar.load)


class Synthetic(CorpusSpec):
    """Synthetic speech by eSpeak NG, made on the spot."""

    generated: ClassVar[bool] = True

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
    seed: int = Field(default=0, ge=0, description="the seed of everything random in the corpus")

    @field_validator("languages")
    @classmethod
    def _once_each(cls, languages: tuple[Language, ...]) -> tuple[Language, ...]:
        if len(set(languages)) < len(languages):
            raise ValueError("name each language once")
        return languages

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

    def expected_speed(self) -> float:
        """Return about how many seconds of audio one core makes in a second."""
        return _SPEED


@dataclass(frozen=True)
class Speaker:
    """Who speaks how, how much, and in which conditions. Pitch and range go from 0 to 99, rate is in words a minute."""

    name: str
    language: Language
    domain: Domain
    voice: str
    pitch: int
    pitch_range: int
    rate: int
    recording: Recording
    utterances: int


@dataclass(frozen=True)
class _Style:
    """How widely the speakers of a domain differ."""

    pitch: Range
    pitch_range: Range
    rate: Range
    level_db: Range


_STYLES: dict[Domain, _Style] = {
    "clean": _Style(pitch=(30, 70), pitch_range=(30, 70), rate=(115, 165), level_db=(-26, -20)),
    "noisy": _Style(pitch=(10, 90), pitch_range=(10, 90), rate=(95, 190), level_db=(-34, -16)),
}
_SNR_DB: Range = (3, 20)
_BAND_SHARE = 0.4  # of noisy speakers who have a poor microphone or line
_REVERB_SHARE = 0.5  # of noisy speakers who are in a reverberant room
_REVERB_SECONDS: Range = (0.15, 0.8)


def speakers_of(options: Synthetic) -> list[Speaker]:
    """Return the speakers, sorted by name; languages and domains take turns until there are enough."""
    cells = [(language, domain) for domain in options.domains for language in options.languages]
    turns = ((*cells[turn % len(cells)], turn // len(cells)) for turn in range(options.speakers))
    return sorted((_speaker(options, *turn) for turn in turns), key=lambda speaker: speaker.name)


def _speaker(options: Synthetic, language: Language, domain: Domain, number: int) -> Speaker:
    name = f"{language}-{domain}-{number:05d}"
    rng = stream(options.seed, "synthetic-speaker", name)
    style, voices = _STYLES[domain], VOICES[language]
    log_median = np.log(options.mean_utterances) - options.tail**2 / 2
    utterances = round(np.exp(log_median + options.tail * rng.standard_normal()))
    return Speaker(
        name=name,
        language=language,
        domain=domain,
        utterances=min(max(utterances, 1), options.max_utterances),
        voice=voices[rng.integers(len(voices))],
        pitch=round(rng.uniform(*style.pitch)),
        pitch_range=round(rng.uniform(*style.pitch_range)),
        rate=round(rng.uniform(*style.rate)),
        recording=_recording(domain, round(rng.uniform(*style.level_db), 1), rng),
    )


def _recording(domain: Domain, level_db: float, rng: np.random.Generator) -> Recording:
    if domain == "clean":
        return Recording(snr_db=None, noise=None, band_hz=None, reverb_seconds=0, level_db=level_db)
    kinds = tuple(NOISES)
    return Recording(
        snr_db=round(rng.uniform(*_SNR_DB), 1),
        noise=kinds[rng.integers(len(kinds))],
        band_hz=_BANDS[rng.integers(len(_BANDS))] if rng.random() < _BAND_SHARE else None,
        reverb_seconds=round(rng.uniform(*_REVERB_SECONDS), 2) if rng.random() < _REVERB_SHARE else 0,
        level_db=level_db,
    )


def generate(options: Synthetic, folder: Path, workers: int, on_speaker: Callable[[int, int], None]) -> Path:
    """Make the corpus in folder/audio and return its index, folder/index.tsv, which is written last.

    Speakers who are there already are kept, so that an interrupted generation goes on where it stopped.
    `on_speaker` is told how many speakers are done, of how many.
    """
    _loader_folder()  # nothing is written where nothing can be made
    for language in options.languages:
        _grammar(language, options.vocabulary)
    audio = folder / "audio"
    make_folder(audio)
    with only_writer(audio):
        _remove_temporaries(audio, folder)
        _begin(options, audio)
        tasks = [_Task(options, speaker, audio) for speaker in speakers_of(options)]
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
class _Task:
    """One speaker to be made."""

    options: Synthetic
    speaker: Speaker
    audio: Path

    def sentences(self) -> list[str]:
        """Return what the speaker says; the beginning does not depend on how much it is."""
        grammar = _grammar(self.speaker.language, self.options.vocabulary)
        rng = stream(self.options.seed, "synthetic-text", self.speaker.name)
        return [grammar.sentence(rng) for _ in range(self.speaker.utterances)]

    def rows(self, sentences: list[str], frames: list[int]) -> list[list[str]]:
        """Return the rows of the index."""
        return [
            [
                f"audio/{self.speaker.name}/{name}",
                self.speaker.name,
                text,
                f"{count / SAMPLE_RATE_HZ:.4f}",
                *self._about(),
            ]
            for name, text, count in zip(self.files(), sentences, frames, strict=True)
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


def _make_speaker(task: _Task) -> list[list[str]]:
    """Make a speaker's folder unless it is there, and return its rows of the index."""
    folder, sentences = task.audio / task.speaker.name, task.sentences()
    if folder.exists():
        return task.rows(sentences, [_frames(folder / name) for name in task.files()])
    frames = []
    with _folder_whole(folder) as temporary:
        for number, (name, spoken) in enumerate(zip(task.files(), _speak(task.speaker, sentences), strict=True)):
            rng = stream(task.options.seed, "synthetic-recording", task.speaker.name, number)
            samples = _recorded(spoken, task.speaker.recording, rng)
            _write_flac(temporary / name, samples)
            frames.append(len(samples))
    return task.rows(sentences, frames)


def _frames(path: Path) -> int:
    try:
        return int(soundfile.info(path).frames)
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
