"""The inputs that cases damage: a corpus in several forms, stores, runs, lists, presets and documents, all small."""

import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile

from sottovoce.config import parse_setting, resolve
from sottovoce.data.corpora import Table
from sottovoce.data.preparation import prepare
from sottovoce.data.store import DIGESTS, INFO, OLDER_FORMAT

COUNTS = {"ann": 3, "bob": 3, "cem": 2, "dee": 2, "eve": 2, "fay": 2}
SMALL = (
    *("model.blocks=2", "model.width=16", "model.heads=2", "model.mlp_width=32", "specaugment=null"),
    *("batching.seconds=4", "central.micro_batch_seconds=4", "central.micro_batches=1"),
)
FEDERATED = (
    *SMALL,
    *(
        "participation.population=4",
        "participation.cohort_size=2",
        "federated.local.steps=1",
        "federated.central_steps=2",
    ),
    *("federated.evaluate_every=1", "privacy.clip_norm=0.5", "privacy.sigma_dp=1.0", "privacy.clipping=dim"),
)
CENTRAL = (*SMALL, "central.steps=2", "central.evaluate_every=1")


def make_inputs(folder: Path, *, runs: bool = True) -> None:
    """Make everything below a new folder; runs take most of the time. Nothing here is hostile yet."""
    folder.mkdir()
    _make_corpus(folder / "corpus")
    store = folder / "store"
    prepare(Table(file=folder / "corpus" / "index.tsv"), store, workers=1)
    other = folder / "other"
    prepare(Table(file=folder / "corpus" / "index.csv"), other, workers=1)
    for name, speakers in (("train", "ann bob cem dee"), ("dev", "eve"), ("test", "fay")):
        (folder / f"{name}.txt").write_text("\n".join(speakers.split()) + "\n")
    if runs:
        _make_runs(folder, store)
    _make_older(store, folder / "older")
    _make_documents(folder)


def _make_corpus(folder: Path) -> None:
    folder.mkdir()
    rows, recordings, supervisions = [], [], []
    for place, (speaker, count) in enumerate(COUNTS.items()):
        for number in range(count):
            name, text = f"{speaker}{number}.{'wav' if number else 'flac'}", f"hello {'again ' * number}{speaker}"
            rng = np.random.default_rng(10 * place + number)
            samples = (0.1 * rng.standard_normal(16_000 + 1_600 * number)).astype(np.float32)
            soundfile.write(folder / name, samples, 16_000)
            rows.append((name, speaker, text, "fm"[place % 2]))
            source = {"type": "file", "channels": [0], "source": name}
            seconds = len(samples) / 16_000
            recordings.append(
                {
                    "id": name,
                    "sources": [source],
                    "sampling_rate": 16_000,
                    "num_samples": len(samples),
                    "duration": seconds,
                }
            )
            supervisions.append(
                {"id": name, "recording_id": name, "start": 0.0, "duration": seconds, "text": text, "speaker": speaker}
            )
    header = ("path", "speaker", "text", "sex")
    for suffix, between in (("tsv", "\t"), ("csv", ",")):
        lines = [between.join(row) for row in (header, *rows)]
        (folder / f"index.{suffix}").write_text("\n".join(lines) + "\n")
    _make_other_layouts(folder, rows, recordings, supervisions)
    (folder / "index.jsonl").write_text("".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows))
    for name, items in (("recordings", recordings), ("supervisions", supervisions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
        (folder / f"{name}.json").write_text(json.dumps(items))


def _make_other_layouts(
    folder: Path, rows: list[tuple[str, str, str, str]], recordings: list[Any], supervisions: list[Any]
) -> None:
    """Write the same corpus as Kaldi, NeMo, Hugging Face and Lhotse have it, and its text."""
    kaldi = folder / "kaldi"
    kaldi.mkdir()
    for name, values in (
        ("wav.scp", [f"{path} {folder / path}" for path, *_ in rows]),
        ("text", [f"{path} {text}" for path, _, text, _ in rows]),
        ("utt2spk", [f"{path} {speaker}" for path, speaker, *_ in rows]),
        ("spk2gender", sorted({f"{speaker} {sex}" for _, speaker, _, sex in rows})),
    ):
        (kaldi / name).write_text("\n".join(values) + "\n")
    lines = [{"audio_filepath": path, "text": text, "speaker": speaker} for path, speaker, text, _ in rows]
    (folder / "nemo.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "text.txt").write_text("".join(f"{text}\n" for _, _, text, _ in rows))
    cuts = [
        {
            "id": own["id"],
            "type": "MonoCut",
            "start": 0.0,
            "duration": recording["duration"],
            "channel": 0,
            "recording": recording,
            "supervisions": [own],
        }
        for recording, own in zip(recordings, supervisions, strict=True)
    ]
    (folder / "cuts.jsonl").write_text("".join(json.dumps(cut) + "\n" for cut in cuts))
    audio = [{"bytes": (folder / path).read_bytes(), "path": path} for path, *_ in rows]
    columns = {"audio": audio, "text": [row[2] for row in rows], "speaker": [row[1] for row in rows]}
    pq.write_table(pa.table(columns), folder / "some.parquet")


def _make_runs(folder: Path, store: Path) -> None:
    from sottovoce.central.central_training import train_central  # loads torch
    from sottovoce.distributed import Group
    from sottovoce.federated.federated_training import train_federated
    from sottovoce.runs.display import NoDisplay

    data = [
        f"data.{name}={json.dumps({'store': str(store), 'speakers': str(folder / f'{name}.txt')})}"
        for name in ("train", "dev", "test")
    ]
    for name, train, settings in (
        ("central", train_central, CENTRAL),
        ("private", train_federated, FEDERATED),
        ("secure", train_federated, (*FEDERATED, "randomness.source=secure")),
    ):
        resolved = resolve("tiny", *map(parse_setting, [*settings, *data]))
        train(Group(), resolved, folder / name, NoDisplay)


def _make_older(store: Path, older: Path) -> None:
    """Make a store of an earlier version, which `sotto data upgrade` completes."""
    shutil.copytree(store, older)
    info = json.loads((older / INFO).read_text())
    info["format"] = OLDER_FORMAT
    del info["files"][DIGESTS], info["sizes"]
    (older / INFO).write_text(json.dumps(info))
    (older / DIGESTS).unlink()


def _make_documents(folder: Path) -> None:
    """Write a preset, a benchmark of its own and published results."""
    settings = {"extends": "tiny", "model": {"blocks": 2, "width": 16, "heads": 2, "mlp_width": 32}, "seed": 3}
    (folder / "preset.yaml").write_text(json.dumps(settings))
    package, results = resources.files("sottovoce"), Path(__file__).parents[1] / "docs" / "results"
    (folder / "bench.yaml").write_text((package / "bench" / "presets" / "demo.yaml").read_text())
    (folder / "published").mkdir()
    shutil.copy(results / "dp-results-mini.json", folder / "published")
