"""How fast the data side is: generating, preparing, opening, sampling, batching.

    python benchmarks/data.py [--audio FOLDER] [--only NAME ...] [--json]

Speeds are taken side by side in one run and printed as ratios, because machines are noisy. FOLDER holds FLAC files
(LibriSpeech, for example); without it, synthetic speech is made first.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import soundfile

from sottovoce.data import store as names
from sottovoce.data.batching import Batching, epoch
from sottovoce.data.cohort import poisson_cohort
from sottovoce.data.corpora import Synthetic, Table, espeak_process
from sottovoce.data.corpora.grammar import Grammar
from sottovoce.data.corpora.speech_engine import SpeechEngine, loader_folder
from sottovoce.data.corpora.synthetic import generate, speakers_of
from sottovoce.data.corpora.voices import Speaker
from sottovoce.data.digests import DIGEST_BYTES
from sottovoce.data.preparation import prepare
from sottovoce.data.store import IntArray, MergeRecord, Store, StoreInfo
from sottovoce.data.text import TokenSet
from sottovoce.features import logmel
from sottovoce.files import write_json
from sottovoce.processes import available_cores
from sottovoce.randomness import stream

Report = dict[str, float]

_FRAMES_PER_LABEL = 10


def bench_prepare(audio: Path | None, scratch: Path) -> Report:
    """Compare preparing a store, per core, with the bare cost of decoding and computing features."""
    files = _flac_files(audio, scratch)
    lines = [f"{path.absolute()}\tspeaker{number % 20}\thello\tutterance{number}" for number, path in enumerate(files)]
    table = scratch / "index.tsv"
    table.write_text("\n".join(["path\tspeaker\ttext\tutterance", *lines]) + "\n")
    decoding, features, seconds = _bare_cost(files)
    corpus = Table(file=table, utterance_column="utterance")
    report = {
        "hours of audio": seconds / 3600,
        "bare decoding, x real time": seconds / decoding,
        "bare decoding + features, x real time": seconds / (decoding + features),
    }
    for workers in sorted({1, available_cores()}):
        started = time.perf_counter()
        prepare(corpus, scratch / f"store-{workers}", workers=workers)
        elapsed = time.perf_counter() - started
        report[f"prepare with {workers} workers, x real time per core"] = seconds / elapsed / workers
        report[f"prepare with {workers} workers, share of the bare speed"] = (decoding + features) / elapsed / workers
    return report


def _flac_files(audio: Path | None, scratch: Path) -> list[Path]:
    """Return FLAC files worth about two hours, repeating them if there are fewer."""
    if audio is None:
        generate(Synthetic(speakers=100), scratch / "speech", available_cores(), lambda *_: None)
        audio = scratch / "speech"
    files = sorted(audio.rglob("*.flac"))
    if not files:
        sys.exit(f"error: no FLAC files in {audio}.")
    seconds = sum(soundfile.info(path).duration for path in files)
    return files * max(1, round(7200 / seconds))


def _bare_cost(files: list[Path]) -> tuple[float, float, float]:
    decoding = features = seconds = 0.0
    for path in files:
        started = time.perf_counter()
        samples, rate = soundfile.read(path, dtype="float32")
        decoded = time.perf_counter()
        logmel.features(samples)
        decoding += decoded - started
        features += time.perf_counter() - decoded
        seconds += len(samples) / rate
    return decoding, features, seconds


def bench_generate(_audio: Path | None, scratch: Path) -> Report:
    """Compare speaking with one engine for all speakers, as a worker does, with a new process for each of them."""
    options = Synthetic(speakers=60, domain="noisy", mean_utterances=4, tail=1.5)
    started = time.perf_counter()
    index = generate(options, scratch / "speech", 1, lambda *_: None)
    elapsed = time.perf_counter() - started
    seconds = sum(soundfile.info(path).duration for path in index.parent.rglob("*.flac"))
    tasks = [_speech_task(speaker) for speaker in speakers_of(options)]
    engine, served, alone = SpeechEngine(), 0.0, 0.0
    engine.speak(tasks[0])  # which starts it
    for task in tasks:  # in turn, so that both meet the same neighbours
        started = time.perf_counter()
        engine.speak(task)
        answered = time.perf_counter()
        command = [sys.executable, "-I", espeak_process.__file__, str(loader_folder())]
        subprocess.run(command, input=json.dumps(task._asdict()).encode(), capture_output=True, check=True)
        served += answered - started
        alone += time.perf_counter() - answered
    engine.close()
    return {
        "generate with 1 worker, x real time": seconds / elapsed,
        "speaking alone, ms per speaker": 1000 * served / len(tasks),
        "a new process for each speaker, ms per speaker": 1000 * alone / len(tasks),
        "speaking alone, times faster than new processes": alone / served,
    }


def _speech_task(speaker: Speaker) -> espeak_process.SpeechTask:
    grammar, rng = Grammar.load(speaker.language, 100), stream(0, "sentences", speaker.name)
    sentences = [grammar.sentence(rng) for _ in range(speaker.utterances)]
    return espeak_process.SpeechTask(
        speaker.voice, pitch=speaker.pitch, range=speaker.pitch_range, rate=speaker.rate, sentences=sentences
    )


def bench_open(_audio: Path | None, scratch: Path) -> Report:
    """Open a store of 1 million speakers and 10 million utterances in a process of its own."""
    path = scratch / "large"
    write_large_store(path, speakers=1_000_000, utterances=10_000_000)
    command = [sys.executable, __file__, "--open", str(path)]
    report: Report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return report


def open_and_use(path: Path) -> Report:
    """Open a store, draw a cohort from it and make every member's batches; report seconds and memory."""
    base = peak_megabytes()
    started = time.perf_counter()
    store = Store.open(path)
    opened = time.perf_counter()
    offsets = store.speaker_offsets
    for speaker in poisson_cohort(store.info.speakers, 1024 / store.info.speakers, stream(0, "cohort")):
        rows = np.arange(offsets[speaker], offsets[speaker + 1])
        epoch(rows, store.frames_of(rows), Batching(), stream(0, "order", int(speaker)))
    used = time.perf_counter()
    report = {"open, s": opened - started, "batches of a cohort of 1024, s": used - opened}
    report["peak memory, MB"] = peak_megabytes()
    report["peak memory of the imports alone, MB"] = base
    started = time.perf_counter()
    store.speaker_names()
    report["speaker names, s"] = time.perf_counter() - started
    return report


def peak_megabytes() -> float:
    """Return the most memory this process had; getrusage would count its parent's before it became this program."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def write_large_store(path: Path, speakers: int, utterances: int) -> None:
    """Write a store of this size, in which a few speakers have most of the utterances."""
    rng = np.random.default_rng(0)
    frames = rng.integers(100, 1000, size=utterances)
    extra = rng.multinomial(utterances - speakers, rng.dirichlet(np.full(speakers, 0.3)))
    write_silent_store(path, frames, 1 + extra)


def write_silent_store(path: Path, frames: IntArray, utterances_by_speaker: IntArray) -> None:
    """Write a store with real offsets, targets and index; the features are a hole in the file.

    `frames` has the length of every utterance, in the order of the speakers. Targets have about 10 labels a second.
    """
    path.mkdir(parents=True)
    speakers, utterances = len(utterances_by_speaker), len(frames)
    speaker_offsets = np.concatenate([[0], np.cumsum(utterances_by_speaker)])
    frame_offsets = np.concatenate([[0], np.cumsum(frames)])
    token_offsets = np.concatenate([[0], np.cumsum(np.maximum(frames // _FRAMES_PER_LABEL, 1))])
    tokens = TokenSet(("en",))
    np.save(path / names.FRAME_OFFSETS, frame_offsets)
    np.save(path / names.TOKEN_OFFSETS, token_offsets)
    np.save(path / names.SPEAKER_OFFSETS, speaker_offsets)
    np.save(path / names.TOKENS, np.resize(np.arange(1, 21, dtype=np.uint8), int(token_offsets[-1])))
    digests = np.random.default_rng(1).integers(256, size=(utterances, 2, DIGEST_BYTES), dtype=np.uint8)
    np.save(path / names.DIGESTS, digests)
    with (path / names.FEATURES).open("wb") as file:
        file.truncate(int(frame_offsets[-1]) * names.BYTES_PER_FRAME)
    speaker = pc.binary_join_element_wise(
        "speaker", pc.utf8_lpad(pa.array(np.arange(speakers)).cast("string"), 9, "0"), "-"
    )
    utterance = pc.utf8_lpad(pa.array(np.arange(utterances)).cast("string"), 9, "0")
    of = speaker.take(pa.array(np.repeat(np.arange(speakers), np.diff(speaker_offsets))))
    index = {"utterance": utterance, "speaker": of, "frames": frames, "seconds": frames / 100}
    pq.write_table(pa.table(index), path / names.INDEX, row_group_size=65_536)
    pq.write_table(pa.table({"speaker": speaker}), path / names.SPEAKERS)
    (path / names.REJECTED).write_text("utterance\tspeaker\treason\tdetail\n")
    info = StoreInfo(
        format=names.FORMAT,
        label=path.name,
        request=MergeRecord(merged=(), same_speakers=False, prefix=False),
        roots=(".",),
        languages=("en",),
        tokens=tokens.tokens,
        features=logmel.DESCRIPTION,
        output_stride=3,
        utterances=utterances,
        speakers=speakers,
        frames=int(frame_offsets[-1]),
        seconds=float(frame_offsets[-1]) / 100,
        rejected=0,
        manifest_hash="",
        versions={},
        files={},
        hash="",
    )
    write_json(path / names.INFO, info.model_dump(mode="json"))


def bench_cohort(_audio: Path | None, _scratch: Path) -> Report:
    """Draw a cohort of 204,800 from growing populations: the time must not grow with them."""
    report = {}
    for population in (700_000, 70_000_000, 700_000_000):
        started = time.perf_counter()
        for step in range(5):
            poisson_cohort(population, 204_800 / population, stream(0, "cohort", step))
        report[f"cohort of 204,800 from {population:,}, ms"] = (time.perf_counter() - started) / 5 * 1000
    return report


def bench_padding(_audio: Path | None, _scratch: Path) -> Report:
    """Compare the padding of plain batches of 120 s with that of micro-batches, on lengths like Common Voice's."""
    report = {}
    for utterances in (20, 50, 100, 400):
        for name, options in (("plain", Batching(max_padding=1)), ("micro", Batching())):
            shares = []
            for user in range(300):
                rng = stream(0, "lengths", utterances, user)
                frames = np.clip(rng.gamma(9.7, 58, size=utterances), 100, 1500).astype(np.int64)
                micro = [rows for batch in epoch(np.arange(utterances), frames, options, rng) for rows in batch.micro]
                shares.append(1 - frames.sum() / sum(len(rows) * frames[rows].max() for rows in micro))
            report[f"padding at {utterances} utterances, {name}"] = float(np.mean(shares))
    return report


BENCHMARKS: dict[str, Callable[[Path | None, Path], Report]] = {
    "generate": bench_generate,
    "prepare": bench_prepare,
    "open": bench_open,
    "cohort": bench_cohort,
    "padding": bench_padding,
}


def main() -> None:
    """Run the benchmarks that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--audio", type=Path, help="a folder with FLAC files")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), help="which to run")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.open:
        print(json.dumps(open_and_use(options.open)))
        return
    reports = {}
    for name in options.only:
        with tempfile.TemporaryDirectory() as scratch:
            reports[name] = BENCHMARKS[name](options.audio, Path(scratch))
        if not options.json:
            print(f"\n{name}: {(BENCHMARKS[name].__doc__ or '').splitlines()[0]}")
            for what, value in reports[name].items():
                print(f"  {what:55} {value:12.3f}")
    if options.json:
        print(json.dumps(reports, indent=2))


if __name__ == "__main__":
    main()
