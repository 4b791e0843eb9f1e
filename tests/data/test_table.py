import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import write_audio
from sottovoce.data.corpora import Table
from sottovoce.data.joining import Joining
from sottovoce.data.manifest import build_manifest
from sottovoce.data.preparation import prepare
from sottovoce.errors import DataError

ROWS = [
    {"path": "x/one.wav", "speaker": "007", "text": 'Say "hi", now', "age": "30"},
    {"path": "x/two.wav", "speaker": "ann", "text": "good day", "age": None},
]


@pytest.fixture
def folder(tmp_path):
    for row in ROWS:
        write_audio(tmp_path / row["path"], 1.5)
    return tmp_path


def write(folder, suffix):
    path = folder / f"table{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
        return path
    if suffix.startswith(".jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in ROWS)
    elif suffix.startswith(".tsv"):
        text = "path\tspeaker\ttext\tage\n" + "".join("\t".join(v or "" for v in row.values()) + "\n" for row in ROWS)
    else:
        text = 'path,speaker,text,age\r\nx/one.wav,007,"Say ""hi"", now",30\r\nx/two.wav,ann,good day,\r\n'
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl", ".parquet", ".tsv.gz", ".csv.gz", ".jsonl.gz"])
def test_every_format_reads_the_same(folder, suffix):
    manifest = build_manifest(Table(file=write(folder, suffix)).read())
    rows = manifest.table.to_pylist()
    assert [(row["utterance"], row["speaker"], row["text"], row["age"]) for row in rows] == [
        ("x/one", "007", "say hi now", "30"),
        ("x/two", "ann", "good day", None),
    ]
    assert manifest.rejected == []


def test_other_column_names_and_extra_columns(folder):
    (folder / "t.tsv").write_text("file\twho\tsaid\tid\tframes\nx/one.wav\tann\thello\tu1\t12\n")
    spec = Table(
        file=folder / "t.tsv", path_column="file", speaker_column="who", text_column="said", utterance_column="id"
    )
    (row,) = build_manifest(spec.read()).table.to_pylist()
    assert (row["utterance"], row["speaker"], row["text"]) == ("u1", "ann", "hello")
    assert row["corpus_frames"] == "12"


def test_a_missing_column_names_those_that_are_there(folder):
    (folder / "t.csv").write_text("file,speaker,text\nx/one.wav,ann,hello\n")
    with pytest.raises(
        DataError, match=r"has no column 'path'\. It has: 'file', 'speaker', 'text'\. Name another with --path-column"
    ):
        build_manifest(Table(file=folder / "t.csv").read())


def test_what_is_not_a_table_is_one_clear_error(folder):
    (folder / "t.xlsx").write_text("x")
    (folder / "t.parquet").write_text("x")
    with pytest.raises(DataError, match=r"should end in \.tsv, \.csv, \.jsonl, \.parquet"):
        build_manifest(Table(file=folder / "t.xlsx").read())
    with pytest.raises(DataError, match="is damaged"):
        build_manifest(Table(file=folder / "t.parquet").read())
    with pytest.raises(DataError, match="does not exist"):
        Table(file=folder / "absent.tsv").read()
    (folder / "empty.tsv").write_text("")
    with pytest.raises(DataError, match="has no column"):
        build_manifest(Table(file=folder / "empty.tsv").read())
    (folder / "header.tsv").write_text("path\tspeaker\ttext\n")
    with pytest.raises(DataError, match="contains no utterances"):
        build_manifest(Table(file=folder / "header.tsv").read())


def test_bad_rows_are_listed_one_by_one(folder):
    lines = [
        b"path\tspeaker\ttext",
        b"x/one.wav\tann\thello",
        b"x/one.wav\tann\thello again",
        b"x/two.wav\t \thello",
        b"x/two.wav\tann",
        b"x/a.wav\tann\t\xff\xfe",
        b"\tann\thello",
        b"x/b.wav\tann\t",
        b"x/c.wav\tann\t...",
        b"x/d.wav\tann\troom 12",
        b"x/e.wav\tann\tnowhere",
        b"",
    ]
    (folder / "t.tsv").write_bytes(b"\n".join(lines) + b"\n")
    manifest = build_manifest(Table(file=folder / "t.tsv").read())
    assert len(manifest.table) == 1
    assert [(one.utterance, str(one.reason)) for one in manifest.rejected] == [
        ("x/one", "duplicate id"),
        ("x/two", "no speaker"),
        ("t.tsv row 5", "malformed row"),
        ("t.tsv row 6", "malformed row"),
        ("", "missing file"),
        ("x/b", "no transcript"),
        ("x/c", "text normalises to nothing"),
        ("x/d", "characters outside the token set"),
        ("x/e", "missing file"),
    ]
    assert manifest.corpus_utterances == 10


def test_malformed_json_lines_are_listed(folder):
    (folder / "t.jsonl").write_text(json.dumps(ROWS[0]) + "\n{oops\n[1]\n")
    manifest = build_manifest(Table(file=folder / "t.jsonl").read())
    assert [one.utterance for one in manifest.rejected] == ["t.jsonl row 2", "t.jsonl row 3"]


def test_a_language_column_gives_each_row_its_rules(folder):
    (folder / "t.tsv").write_text(
        "path\tspeaker\ttext\tlang\nx/one.wav\ta\tGrüße\tde\nx/two.wav\tb\tGrüße\ten\nx/z.wav\tb\thola\tes\n"
    )
    spec = Table(file=folder / "t.tsv", language=("en", "de"), language_column="lang")
    manifest = build_manifest(spec.read())
    assert manifest.table["text"].to_pylist() == ["grüße", "grusse"]
    assert manifest.table["language"].to_pylist() == ["de", "en"]
    assert manifest.rejected[0].detail == "language 'es' is not one of en, de"


def test_an4_with_its_speaker_table(real_speech, tmp_path):
    spec = Table(file=real_speech / "an4" / "index.tsv", speaker_table=real_speech / "an4" / "speakers.tsv")
    store = prepare(spec, tmp_path / "s", workers=2)
    assert (store.info.utterances, store.info.speakers, store.info.rejected) == (1078, 84, 0)
    assert set(store.index(["split"])["split"].to_pylist()) == {"train", "test"}
    assert store.info.label == "an4"


@pytest.mark.slow
def test_audiomnist_and_its_digit_strings(real_speech, tmp_path):
    spec = Table(file=real_speech / "audiomnist" / "index.tsv")
    store = prepare(spec, tmp_path / "digits", workers=2)
    assert (store.info.utterances, store.info.speakers, store.info.rejected) == (3000, 60, 0)
    strings = prepare(spec, tmp_path / "strings", joining=Joining(least=2, most=5), workers=2)
    index = strings.index().to_pylist()
    assert strings.info.speakers == 60
    assert sum(len(row["paths"]) for row in index) == 3000
    assert {len(row["text"].split()) for row in index} == {2, 3, 4, 5}
    spoken = store.info.seconds + sum(sum(row["pauses"]) for row in index)
    assert strings.info.seconds == pytest.approx(spoken, abs=0.1)


@pytest.mark.parametrize("column", ["text", "note"])
def test_an_unbalanced_quote_in_a_csv_never_swallows_rows_in_silence(tmp_path, column):
    write_audio(tmp_path / "a.wav", 1.0)
    rows = [f"a.wav,ann,hello,u{number},ok" for number in range(12)]
    rows[4] = 'a.wav,ann,"oops,u4,ok' if column == "text" else 'a.wav,ann,hello,u4,"oops'
    rows[8] = 'a.wav,ann,"well",u8,ok' if column == "text" else 'a.wav,ann,hello,u8,"fine"'
    (tmp_path / "t.csv").write_text("\n".join(["path,speaker,text,id,note", *rows]) + "\n")
    spec = Table(file=tmp_path / "t.csv", utterance_column="id")
    with pytest.raises(DataError, match="unbalanced quote"):  # no row can be trusted
        build_manifest(spec.read())


def test_rows_inside_balanced_quotes_are_listed_one_by_one(tmp_path):
    write_audio(tmp_path / "a.wav", 1.0)
    rows = ["a.wav,ann,hello,u0", 'a.wav,ann,"hello', "a.wav,ann,hello,u1", 'there",u2', "a.wav,ann,hello,u3"]
    (tmp_path / "t.csv").write_text("\n".join(["path,speaker,text,id", *rows]) + "\n")
    manifest = build_manifest(Table(file=tmp_path / "t.csv", utterance_column="id").read())
    assert manifest.table["utterance"].to_pylist() == ["u0", "u3"]
    assert [one.utterance for one in manifest.rejected] == ["t.csv row 3", "t.csv row 4", "t.csv row 5"]


def test_nothing_written_as_nan_is_nothing(tmp_path):
    write_audio(tmp_path / "a.wav", 1.0)
    pq.write_table(pa.table({"path": ["a.wav"], "speaker": [float("nan")], "text": ["hi"]}), tmp_path / "t.parquet")
    manifest = build_manifest(Table(file=tmp_path / "t.parquet").read())
    assert [str(one.reason) for one in manifest.rejected] == ["no speaker"]


@pytest.mark.parametrize(
    "row",
    [
        {"path": ".", "speaker": "a", "text": "hi"},
        {"path": "x" * 400, "speaker": "a", "text": "hi"},
        {"path": "a\u0000b", "speaker": "a", "text": "hi"},
        {"path": "a.wav", "speaker": "x\ny", "text": "hi"},
        {"path": "a.wav", "speaker": "\ud800", "text": "hi"},
        {"speaker": "a", "text": "hi"},
    ],
)
def test_one_odd_row_never_stops_the_corpus(tmp_path, row):
    write_audio(tmp_path / "a.wav", 1.0)
    write_audio(tmp_path / "good.wav", 1.0)
    good = {"path": "good.wav", "speaker": "a", "text": "hi"}
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (good, row)))
    store = prepare(Table(file=tmp_path / "t.jsonl"), tmp_path / "s", max_rejected=0.9, workers=1)
    assert (store.info.utterances, store.info.rejected) == (1, 1)


def test_a_cut_table_and_a_false_gz_are_one_clear_error(folder):
    whole = write(folder, ".tsv.gz").read_bytes()
    for content in (whole[:-12], b"not gzip"):
        (folder / "t.tsv.gz").write_bytes(content)
        with pytest.raises(DataError, match="is damaged"):
            build_manifest(Table(file=folder / "t.tsv.gz").read())


def test_a_table_of_speakers_has_one_row_each(folder):
    (folder / "s.tsv").write_text("speaker\tsex\nann\tf\nann\tm\n")
    spec = Table(file=write(folder, ".tsv"), speaker_table=folder / "s.tsv")
    with pytest.raises(DataError, match="has 'ann' twice"):
        build_manifest(spec.read())


def test_columns_with_our_names_are_kept_under_others(folder):
    (folder / "t.tsv").write_text("path\tspeaker\ttext\tframes\tcorpus_frames\trow\nx/one.wav\ta\thi\t1\t2\t3\n")
    (row,) = build_manifest(Table(file=folder / "t.tsv").read()).table.to_pylist()
    assert {row["corpus_frames"], row["corpus_corpus_frames"], row["corpus_row"]} == {"1", "2", "3"}
