"""Datasets as `save_to_disk` and the Hub lay them out, written by pyarrow."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import write_audio
from sottovoce.data.corpora import HuggingFace, Table
from sottovoce.data.embedded import EmbeddedFault, open_embedded, place_of, split_place
from sottovoce.data.manifest import build_manifest
from sottovoce.data.population import Population
from sottovoce.data.preparation import prepare
from sottovoce.errors import DataError

TEXTS = {"a0.flac": ("ann", "hello there", 0), "a1.flac": ("ann", "good day", 0), "b0.flac": ("bob", "yes", 1)}
FEATURES = {
    "audio": {"sampling_rate": 16000, "_type": "Audio"},
    "text": {"dtype": "string", "_type": "Value"},
    "speaker": {"dtype": "string", "_type": "Value"},
    "gender": {"names": ["female", "male"], "_type": "ClassLabel"},
}
AUDIO = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@pytest.fixture
def corpus(tmp_path):
    for number, name in enumerate(TEXTS):
        write_audio(tmp_path / "audio" / name, 1.0, number)
    return tmp_path


def dataset(folder, *, embedded=True, metadata=True) -> pa.Table:
    audio = [
        {
            "bytes": (folder / "audio" / name).read_bytes() if embedded else None,
            "path": name if embedded else f"../audio/{name}",
        }
        for name in TEXTS
    ]
    table = pa.table(
        {
            "audio": pa.array(audio, AUDIO),
            "text": [text for _, text, _ in TEXTS.values()],
            "speaker": [speaker for speaker, _, _ in TEXTS.values()],
            "gender": pa.array([gender for _, _, gender in TEXTS.values()], pa.int64()),
            "embedding": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32())),
        }
    )
    described = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    return table.replace_schema_metadata(described if metadata else None)


def save_to_disk(table: pa.Table, folder: Path, shards: int = 2) -> Path:
    """Write a dataset as `datasets` does: Arrow streams, state.json and dataset_info.json."""
    folder.mkdir(parents=True)
    size = -(-len(table) // shards)
    names = [f"data-{number:05d}-of-{shards:05d}.arrow" for number in range(shards)]
    for number, name in enumerate(names):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table.slice(number * size, size), max_chunksize=1)
    state = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "0123456789abcdef",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": "train",
    }
    (folder / "state.json").write_text(json.dumps(state, indent=2, sort_keys=True))
    info = {"builder_name": "generator", "citation": "", "description": "", "features": FEATURES, "splits": None}
    (folder / "dataset_info.json").write_text(json.dumps(info, indent=2))
    return folder


def expected(corpus) -> str:
    """Return the hash of the population that a table of the same files gives."""
    rows = [
        f"audio/{name}\t{who}\t{text}\t{name[:-5]}\t{('female', 'male')[sex]}"
        for name, (who, text, sex) in TEXTS.items()
    ]
    (corpus / "t.tsv").write_text("path\tspeaker\ttext\tid\tgender\n" + "\n".join(rows) + "\n")
    return Population.of(prepare(Table(file=corpus / "t.tsv", utterance_column="id"), corpus / "t")).hash


@pytest.mark.parametrize("metadata", [True, False])
def test_a_saved_dataset_equals_the_table_of_its_files(corpus, metadata):
    folder = save_to_disk(dataset(corpus, metadata=metadata), corpus / "saved")
    store = prepare(HuggingFace(place=folder), corpus / "s")
    assert Population.of(store).hash == expected(corpus)
    row = store.index().to_pylist()[2]
    assert row["paths"] == ["data-00001-of-00002.arrow#audio[0]"]
    assert "embedding" not in row


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_parquet_files_too(corpus, rows, statistics):
    (corpus / "hub" / "data").mkdir(parents=True)
    for name in ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"):
        path = corpus / "hub" / "data" / name
        pq.write_table(dataset(corpus), path, row_group_size=rows, write_statistics=statistics)
    with pytest.raises(DataError, match=r"has several splits. Choose one of test, train with --split"):
        HuggingFace(place=corpus / "hub").read()
    manifest = build_manifest(HuggingFace(place=corpus / "hub", split="train").read())
    assert manifest.table["paths"].to_pylist()[2] == ["data/train-00000-of-00001.parquet#audio[2]"]
    store = prepare(HuggingFace(place=path), corpus / "s")
    assert Population.of(store).hash == expected(corpus)


def test_paths_instead_of_bytes(corpus):
    saved = save_to_disk(dataset(corpus, embedded=False), corpus / "saved")
    manifest = build_manifest(HuggingFace(place=saved).read())
    assert manifest.table["paths"].to_pylist()[0] == ["../audio/a0.flac"]
    pq.write_table(dataset(corpus, embedded=False), corpus / "saved.parquet")
    manifest = build_manifest(HuggingFace(place=corpus / "saved.parquet", audio_root=saved).read())
    assert len(manifest.table) == 3
    plain = dataset(corpus).set_column(0, "audio", pa.array([f"audio/{name}" for name in TEXTS]))
    pq.write_table(plain, corpus / "plain.parquet")
    assert len(build_manifest(HuggingFace(place=corpus / "plain.parquet").read()).table) == 3
    binary = dataset(corpus).set_column(0, "audio", pa.array([b"x"] * 3))
    pq.write_table(binary, corpus / "binary.parquet")
    manifest = build_manifest(HuggingFace(place=corpus / "binary.parquet").read())
    assert manifest.table["utterance"].to_pylist() == ["ann-000000", "ann-000001", "bob-000000"]  # by speaker


def test_splits_of_a_dataset_dict(corpus, sotto):
    for split in ("train", "test"):
        save_to_disk(dataset(corpus), corpus / "both" / split)
    (corpus / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    words = ("data", "prepare", "huggingface", corpus / "both", "--out", corpus / "s", "--workers", 1)
    assert "has several splits. Choose one of train, test with --split" in sotto(*words).error
    assert "has no split 'dev'" in sotto(*words, "--split", "dev").error
    assert sotto(*words, "--split", "test", "--json").document["utterances"] == 3


def test_rows_without_audio_are_listed(corpus):
    audio = [None, {"bytes": None, "path": None}, {"bytes": b"no audio", "path": "x.flac"}]
    table = dataset(corpus).set_column(0, "audio", pa.array(audio, AUDIO))
    saved = save_to_disk(table, corpus / "saved")
    manifest = build_manifest(HuggingFace(place=saved).read())
    assert [(one.speaker, str(one.reason)) for one in manifest.rejected] == [("ann", "missing file")] * 2
    with pytest.raises(DataError, match=r"3 of 3 utterances cannot be used.* Most often: missing file.* \(2\)"):
        prepare(HuggingFace(place=saved), corpus / "s", max_rejected=0.9)
    assert "unreadable audio" in (corpus / "s.partial" / "rejected.tsv").read_text()


def test_what_is_no_dataset_is_one_clear_error(corpus):
    def refused(place, words, **more):
        with pytest.raises(DataError, match=words):
            build_manifest(HuggingFace(place=place, **more).read())

    refused(corpus / "gone", "does not exist")
    refused(corpus / "audio", "neither state.json nor Parquet")
    refused(corpus / "audio" / "a0.flac", "should end in .arrow or .parquet")
    saved = save_to_disk(dataset(corpus), corpus / "saved")
    refused(saved, "has no column 'who'.*--speaker-column", speaker_column="who")
    refused(saved, "holds no audio in its column of int64", audio_column="gender")
    (saved / "data-00001-of-00002.arrow").write_bytes(b"nothing")
    refused(saved, "is damaged")
    for content in ("{", "[]", "{}", '{"_data_files": [{"filename": "../t.arrow"}]}', '{"_data_files": [5]}'):
        (saved / "state.json").write_text(content)
        refused(saved, "is damaged|names no files|has no file")
    (saved / "state.json").write_text('{"_indices_data_files": [{"filename": "i.arrow"}]}')
    refused(saved, "flatten_indices")
    (corpus / "bad.parquet").write_bytes(b"PAR1")
    refused(corpus / "bad.parquet", "is damaged")
    decoded = pa.array([{"array": [0.0], "sampling_rate": 16000}] * 3)
    pq.write_table(dataset(corpus).set_column(0, "audio", decoded), corpus / "decoded.parquet")
    refused(corpus / "decoded.parquet", "holds decoded samples")


def test_places_inside_files():
    assert split_place(place_of("x/data.arrow", "audio", 17)) == ("x/data.arrow", "audio", 17)
    for plain in ("a.wav", "data.arrow", "data.arrow#audio[]", "a.wav#audio[1]", "[1]"):
        assert split_place(plain) is None


def test_a_place_that_is_not_there_is_a_fault(corpus):
    pq.write_table(dataset(corpus), corpus / "d.parquet")
    save_to_disk(dataset(corpus), corpus / "saved", 1)
    for file in (corpus / "d.parquet", corpus / "saved" / "data-00000-of-00001.arrow"):
        assert (
            open_embedded(Path(place_of(str(file), "audio", 2))).read() == (corpus / "audio" / "b0.flac").read_bytes()
        )
        for place in (place_of(str(file), "audio", 3), place_of(str(file), "sound", 0), place_of(str(file), "text", 0)):
            with pytest.raises(EmbeddedFault):
                open_embedded(Path(place))
