import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from conftest import voice, write_audio
from sottovoce.data.corpora import Table
from sottovoce.data.estimate import estimate
from sottovoce.data.extract import Chunk, extract, load_audio
from sottovoce.data.joining import Joining
from sottovoce.data.manifest import Corpus, Entry, Reason, build_manifest
from sottovoce.data.prepare import Request, prepare
from sottovoce.data.store import CONTENT_FILES, INFO, Store, partial_path
from sottovoce.data.text import TokenSet
from sottovoce.data.writer import Journal, read_rejected
from sottovoce.errors import DataError
from sottovoce.features import logmel
from sottovoce.files import only_writer, require_free
from sottovoce.processes import no_progress


def content(store: Path) -> dict[str, bytes]:
    return {name: (store / name).read_bytes() for name in (*CONTENT_FILES, INFO)}


def test_a_store_holds_every_utterance_sorted_by_speaker(make_store):
    store = make_store({"b": 2, "a": 3})
    index = store.index().to_pylist()
    assert [row["speaker"] for row in index] == ["a", "a", "a", "b", "b"]
    assert store.speaker_names().to_pylist() == ["a", "b"]
    for number, row in enumerate(index):
        audio = soundfile.read(store.root_of(0) / row["paths"][0], dtype="float32")[0]
        assert row["seconds"] == len(audio) / 16_000
        assert row["frames"] == logmel.frame_count(len(audio)) == len(store.features_of(number))
        assert (store.features_of(number) == logmel.features(audio)).all()
        assert store.token_set.decode(store.tokens_of(number)) == row["text"]
        assert row["mood"] == "calm"
    assert store.damaged_files() == []


def test_more_workers_give_the_same_bytes(make_table, tmp_path):
    table = make_table({"a": 30, "b": 25})
    request = Request(Table(file=table))
    one = prepare(request, tmp_path / "one", 1, no_progress)
    three = prepare(request, tmp_path / "three", 3, no_progress)
    assert content(one.path) == content(three.path)


def test_preparing_again_changes_nothing(make_table, tmp_path):
    request = Request(Table(file=make_table({"a": 3})))
    store = prepare(request, tmp_path / "s", 1, no_progress)
    before = {path: path.stat().st_mtime_ns for path in store.path.iterdir()}
    prepare(request, tmp_path / "s", 1, no_progress)
    assert {path: path.stat().st_mtime_ns for path in store.path.iterdir()} == before


def test_an_existing_folder_is_never_overwritten(make_table, tmp_path):
    table = make_table({"a": 3})
    request = Request(Table(file=table))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="exists and is not an empty folder"):
        prepare(request, tmp_path / "mine", 1, no_progress)
    prepare(request, tmp_path / "s", 1, no_progress)
    with pytest.raises(DataError, match="made with other options"):
        prepare(Request(Table(file=table, label="other")), tmp_path / "s", 1, no_progress)
    write_audio(table.parent / "a" / "a000.flac", 2.5, seed=99)
    with pytest.raises(DataError, match="made before the corpus changed"):
        prepare(request, tmp_path / "s", 1, no_progress)


KILLED = """
import sys
from pathlib import Path
from sottovoce.data.corpora import Table
from sottovoce.data import writer
from sottovoce.data.prepare import Request, prepare
writer._COMMIT_SECONDS = 0.0
def progress(what, done, total):
    print(done, flush=True)
if __name__ == "__main__":
    prepare(Request(Table(file=Path(sys.argv[1]))), Path(sys.argv[2]), int(sys.argv[3]), progress)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_preparation_goes_on_and_gives_the_same_bytes(make_table, tmp_path, workers):
    table = make_table({"a": 80, "b": 60, "c": 60}, seconds=0.9)
    whole = prepare(Request(Table(file=table)), tmp_path / "whole", 1, no_progress)
    script, out = tmp_path / "killed.py", tmp_path / "out"
    script.write_text(KILLED)
    resumed_from = []
    for moment in (0, 48, 112):
        command = [sys.executable, str(script), str(table), str(out), str(workers)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Timer(120, process.kill).start()
        reached = -1
        for line in process.stdout:
            if reached < 0:
                resumed_from.append(int(line))
            reached = int(line)
            if reached >= moment:
                os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert not out.exists()
        with pytest.raises(DataError, match="is not finished"):
            Store.open(out)
    assert resumed_from[0] == 0
    assert resumed_from[2] > 0
    store = prepare(Request(Table(file=table)), out, workers, no_progress)
    assert content(store.path) == content(whole.path)
    assert not partial_path(out).exists()


def test_workers_do_not_outlive_a_killed_parent(make_table, tmp_path):
    table = make_table({"a": 150}, seconds=3.0)
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(table), str(tmp_path / "out"), "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) > 0:
            break
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 10
    while any(is_running(child) for child in children):
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.05)


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_torn_journal_line_and_half_a_chunk_are_cut_off(make_table, tmp_path):
    table = make_table({"a": 40})
    whole = prepare(Request(Table(file=table)), tmp_path / "whole", 1, no_progress)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        prepare(Request(Table(file=table)), out, 1, interrupt_after(16))
    journal = partial_path(out) / "journal.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"key": "torn')
    with (partial_path(out) / "features.f16").open("ab") as file:
        file.write(b"x" * 12345)
    assert content(prepare(Request(Table(file=table)), out, 1, no_progress).path) == content(whole.path)


def test_a_journal_never_vouches_for_features_that_are_not_there(make_table, tmp_path):
    table = make_table({"a": 40})
    whole = prepare(Request(Table(file=table)), tmp_path / "whole", 1, no_progress)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        prepare(Request(Table(file=table)), out, 1, interrupt_after(32))
    os.truncate(partial_path(out) / "features.f16", 5000)
    assert content(prepare(Request(Table(file=table)), out, 1, no_progress).path) == content(whole.path)


def interrupt_after(rows: int):
    def progress(what, done, total):
        if done >= rows:
            raise KeyboardInterrupt

    return progress


def test_a_file_that_was_mended_is_read_again(make_table, tmp_path):
    table = make_table({"a": 40})
    out = tmp_path / "out"
    good = (table.parent / "a" / "a001.flac").read_bytes()
    (table.parent / "a" / "a001.flac").write_bytes(good[:1000])
    with pytest.raises(DataError, match=r"1 of 40 utterances cannot be used, more than --max-rejected 0\.01"):
        prepare(Request(Table(file=table), max_rejected=0.01), out, 1, no_progress)
    assert [one.utterance for one in read_rejected(partial_path(out))] == ["a/a001"]
    (table.parent / "a" / "a001.flac").write_bytes(good)
    assert prepare(Request(Table(file=table), max_rejected=0.01), out, 1, no_progress).info.utterances == 40


def test_what_was_begun_with_other_options_is_kept(make_table, tmp_path):
    table = make_table({"a": 40})
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        prepare(Request(Table(file=table)), out, 1, interrupt_after(16))
    size = (partial_path(out) / "features.f16").stat().st_size
    with pytest.raises(DataError, match="begun with other options"):
        prepare(Request(Table(file=table, label="other")), out, 1, no_progress)
    assert (partial_path(out) / "features.f16").stat().st_size == size > 0


def test_two_preparations_cannot_write_one_store(make_table, tmp_path):
    table = make_table({"a": 3})
    partial_path(tmp_path / "s").mkdir()
    with only_writer(partial_path(tmp_path / "s")), pytest.raises(DataError, match="Another process is writing"):
        prepare(Request(Table(file=table)), tmp_path / "s", 1, no_progress)


def test_damage_is_found(make_store):
    store = make_store({"a": 3})
    path = store.path / "features.f16"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert Store.open(store.path).damaged_files() == ["features.f16"]
    path.write_bytes(good[:-160])
    with pytest.raises(DataError, match="bytes, not"):
        Store.open(store.path)
    path.write_bytes(good)
    (store.path / "tokens.npy").unlink()
    with pytest.raises(DataError, match=r"has lost its tokens\.npy"):
        Store.open(store.path)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": "other"}', '{"format": "sottovoce-store-1"}'])
def test_a_damaged_store_json_is_one_clear_error(make_store, damage):
    store = make_store({"a": 1})
    (store.path / INFO).write_text(damage)
    with pytest.raises(DataError, match="Prepare"):
        Store.open(store.path)


def row(path: Path, text: str) -> dict:
    return {"paths": [path.name], "text": text, "start": None, "segment_seconds": None, "channel": None, "pauses": []}


def test_audio_is_long_enough_for_ctc_or_refused(tmp_path):
    """Three frames make one output; "hello" between boundaries needs 7 outputs and one blank between the two l."""
    for outputs, fits in ((7, False), (8, True)):
        frames = 3 * (outputs - 1) + 1
        path = tmp_path / f"{outputs}.wav"
        soundfile.write(path, voice(1, 0)[: 400 + 160 * (frames - 1)], 16_000)
        result = extract(Chunk(tmp_path, TokenSet(("en",)), [row(path, "hello")]))
        assert (result.samples[0] > 0) == fits
        if not fits:
            assert result.rejected[0] == (Reason.TOO_SHORT, "0.20 s give 7 outputs, CTC needs 8 for the text")


def test_digital_silence_is_refused(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(16_000), 16_000)
    result = extract(Chunk(tmp_path, TokenSet(("en",)), [row(tmp_path / "a.wav", "hi")]))
    assert result.rejected[0][0] == Reason.SILENT_AUDIO


def test_a_disk_that_is_too_small_stops_before_anything_is_written(tmp_path):
    with pytest.raises(DataError, match=r"needs about 1000000\.0 TB but its disk has"):
        require_free(tmp_path / "new" / "store", 1e18)
    assert not (tmp_path / "new").exists()


FULL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv = ["sotto", *sys.argv[2:]]
from sottovoce.cli.main import run
if __name__ == "__main__":
    run()
"""


def test_a_disk_that_becomes_full_is_one_line_and_the_work_goes_on(make_table, tmp_path):
    """A limit on the size of files makes the kernel refuse a write in the middle of the work."""
    table, out = make_table({"a": 40}), tmp_path / "s"
    script = tmp_path / "limited.py"
    script.write_text(FULL_DISK)
    words = ["data", "prepare", "table", str(table), "--out", str(out), "--workers", "1"]
    failed = subprocess.run(
        [sys.executable, str(script), "300000", *words], capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1
    assert [line for line in failed.stderr.splitlines() if line][-1].startswith("error: File too large")
    assert "Traceback" not in failed.stderr
    assert not out.exists()
    store = prepare(Request(Table(file=table)), out, 1, no_progress)
    assert store.damaged_files() == []
    assert resource.RLIM_INFINITY  # the limit was the other process' own


def test_the_manifest_records_what_was_made_from_what(make_store):
    document = json.loads((make_store({"a": 2}).path / INFO).read_text())
    assert document["request"]["corpus"]["kind"] == "table"
    assert set(document["files"]) == set(CONTENT_FILES)
    assert {"sottovoce", "numpy", "soundfile", "libsndfile", "soxr", "kaldi-native-fbank"} <= set(document["versions"])
    assert document["features"]["bins"] == 80


def test_an_interrupted_commit_keeps_whole_chunks_only(tmp_path):
    with Journal(tmp_path, ["k0", "k1"]) as journal:
        journal.append(extract(Chunk(tmp_path, TokenSet(("en",)), [row(write_audio(tmp_path / "a.wav", 1), "hi")])))
    again = Journal(tmp_path, ["k0", "k1"])
    assert again.resumed == 1
    again.close()
    other = Journal(tmp_path, ["other", "k1"])
    assert other.resumed == 0
    other.close()
    assert (tmp_path / "features.f16").stat().st_size == 0


def test_the_limit_on_rejections_holds_when_the_command_is_given_again(make_table, tmp_path):
    table = make_table({"a": 40})
    for number in range(35, 40):
        (table.parent / "a" / f"a{number:03d}.flac").write_bytes(b"broken")
    for _ in range(2):
        with pytest.raises(DataError, match="5 of 40 utterances cannot be used"):
            prepare(Request(Table(file=table)), tmp_path / "s", 1, no_progress)
        assert not (tmp_path / "s").exists()
    assert prepare(Request(Table(file=table), max_rejected=0.2), tmp_path / "s", 1, no_progress).info.rejected == 5


def test_a_kill_between_the_last_file_and_the_rename_loses_nothing(make_table, tmp_path, monkeypatch):
    table, out = make_table({"a": 40}), tmp_path / "s"
    whole = prepare(Request(Table(file=table)), tmp_path / "whole", 1, no_progress)
    monkeypatch.setattr("sottovoce.data.prepare.publish", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        prepare(Request(Table(file=table)), out, 1, no_progress)
    monkeypatch.undo()
    starts = []
    store = prepare(Request(Table(file=table)), out, 1, lambda *now: starts.append(now[1]))
    assert starts[0] == 40
    assert content(store.path) == content(whole.path)
    assert {path.name for path in store.path.iterdir()} == {*CONTENT_FILES, INFO}


def test_a_file_of_the_same_size_with_another_time_is_read_again(make_table, tmp_path):
    table = make_table({"a": 40})
    out, path = tmp_path / "s", table.parent / "a" / "a001.wav"
    soundfile.write(path, voice(1.0, 1), 16_000)
    table.write_text(table.read_text().replace("a/a001.flac", "a/a001.wav"))
    with pytest.raises(KeyboardInterrupt):
        prepare(Request(Table(file=table)), out, 1, interrupt_after(32))
    soundfile.write(path, voice(1.0, 2), 16_000)
    os.utime(path, ns=(1, 1))
    store = prepare(Request(Table(file=table)), out, 1, no_progress)
    assert (store.features_of(1) == logmel.features(soundfile.read(path, dtype="float32")[0])).all()
    soundfile.write(path, voice(1.0, 3), 16_000)
    with pytest.raises(DataError, match="made before the corpus changed"):
        prepare(Request(Table(file=table)), out, 1, no_progress)


def test_work_begun_with_other_library_versions_is_not_mixed(make_table, tmp_path, monkeypatch):
    table, out = make_table({"a": 40}), tmp_path / "s"
    with pytest.raises(KeyboardInterrupt):
        prepare(Request(Table(file=table)), out, 1, interrupt_after(16))
    monkeypatch.setattr("sottovoce.data.prepare.library_versions", lambda: {"soxr": "another"})
    with pytest.raises(DataError, match="other options or library versions"):
        prepare(Request(Table(file=table)), out, 1, no_progress)


def test_the_disk_is_checked_before_a_folder_is_made(make_table, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=100_000))
    with pytest.raises(DataError, match=r"needs about 8\d\d\.\d kB but its disk has 100\.0 kB free"):
        prepare(Request(Table(file=make_table({"a": 40}))), tmp_path / "s", 1, no_progress)
    assert not partial_path(tmp_path / "s").exists()


def test_a_part_of_the_index_is_read_from_the_right_row_groups(make_table, tmp_path, monkeypatch):
    monkeypatch.setattr("sottovoce.data.writer._INDEX_GROUP_ROWS", 4)
    store = prepare(Request(Table(file=make_table({"a": 13}))), tmp_path / "s", 1, no_progress)
    everything = store.index().to_pylist()
    for start in range(13):
        for stop in range(start + 1, 14):
            assert store.index(rows=slice(start, stop)).to_pylist() == everything[start:stop]


def test_every_part_of_a_broken_joined_utterance_is_listed(make_table, tmp_path):
    table = make_table({"a": 40})
    (table.parent / "a" / "a007.flac").write_bytes(b"broken")
    store = prepare(Request(Table(file=table), Joining(least=4, most=4), 0.2), tmp_path / "s", 1, no_progress)
    rejected = read_rejected(store.path)
    used = {part for row in store.index().to_pylist() for part in row["parts"]}
    assert len(rejected) == 4
    assert "a/a007" in {one.utterance for one in rejected}
    assert used | {one.utterance for one in rejected} == {f"a/a{number:03d}" for number in range(40)}
    assert all("a007.flac" in one.detail for one in rejected)


def test_pauses_stand_where_the_index_says(make_table, tmp_path):
    request = Request(Table(file=make_table({"a": 12})), Joining(least=4, most=4))
    store = prepare(request, tmp_path / "s", 1, no_progress)
    row = store.index().to_pylist()[0]
    audio = load_audio(row, store.root_of(0))
    at = 0
    for path, pause in zip(row["paths"], [*row["pauses"], 0], strict=True):
        part = soundfile.read(store.root_of(0) / path, dtype="float32")[0]
        assert (audio[at : at + len(part)] == part).all()
        silence = round(pause * 16_000)
        assert not audio[at + len(part) : at + len(part) + silence].any()
        at += len(part) + silence
    assert at == len(audio)


def test_an_estimate_counts_segments_not_whole_recordings(tmp_path):
    write_audio(tmp_path / "long.wav", 60.0)
    entry = Entry("u", "a", "hello", "en", ("long.wav",), start=1.0, segment_seconds=2.0)
    manifest = build_manifest(Corpus("x", tmp_path, ("en",), [entry]))
    assert estimate(manifest).seconds == 2.0


def test_a_store_travels_to_another_process_as_its_path(make_store):
    store = make_store({"a": 3})
    assert store.features.shape[0] > 0
    packed = pickle.dumps(store)
    assert len(packed) < 1000
    assert (pickle.loads(packed).features == store.features).all()  # noqa: S301 - our own


@pytest.mark.parametrize("name", ["index.parquet", "speakers.parquet"])
def test_damaged_tables_are_one_clear_error(make_store, name):
    store = make_store({"a": 3})
    (store.path / name).write_bytes(b"damaged")
    with pytest.raises(DataError, match="is damaged"):
        store.index(["speaker"]) if name == "index.parquet" else store.speaker_names()


def test_a_name_that_cannot_become_a_store_is_refused_at_once(make_table, tmp_path, monkeypatch):
    request = Request(Table(file=make_table({"a": 2})))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with pytest.raises(DataError, match="is a link"):
        prepare(request, tmp_path / "link", 1, no_progress)
    monkeypatch.chdir(tmp_path / "folder")
    with pytest.raises(DataError, match="cannot be replaced"):
        prepare(request, Path(), 1, no_progress)
    monkeypatch.chdir(tmp_path)
    assert prepare(request, tmp_path / "folder", 1, no_progress).info.utterances == 2
