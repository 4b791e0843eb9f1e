"""Preparing a store that was killed, interrupted or refused, and is prepared again."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import soundfile

from conftest import is_alive, store_content, voice, write_audio
from sottovoce.data.corpora import Table
from sottovoce.data.extract import Chunk, extract
from sottovoce.data.journal import Journal
from sottovoce.data.preparation import prepare
from sottovoce.data.store import CONTENT_FILES, INFO, Store, partial_path
from sottovoce.data.text import TokenSet
from sottovoce.data.writer import read_rejected
from sottovoce.errors import DataError
from sottovoce.features import logmel
from sottovoce.files import only_writer

KILLED = """
import sys
from pathlib import Path
from sottovoce.data.corpora import Table
from sottovoce.data import journal
from sottovoce.data.preparation import prepare
journal._COMMIT_SECONDS = 0.0
def progress(what, done, total):
    print(done, flush=True)
if __name__ == "__main__":
    prepare(Table(file=Path(sys.argv[1])), sys.argv[2], workers=int(sys.argv[3]), progress=progress)
"""


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_killed_preparation_goes_on_and_gives_the_same_bytes(make_table, tmp_path, workers):
    table = make_table({"a": 80, "b": 60, "c": 60}, seconds=0.9)
    whole = prepare(Table(file=table), tmp_path / "whole", workers=1)
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
    store = prepare(Table(file=table), out, workers=workers)
    assert store_content(store.path) == store_content(whole.path)
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
    while any(is_alive(child) for child in children):
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.05)


def test_a_torn_journal_line_and_half_a_chunk_are_cut_off(make_table, tmp_path):
    table = make_table({"a": 40})
    whole = prepare(Table(file=table), tmp_path / "whole", workers=1)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        prepare(Table(file=table), out, workers=1, progress=interrupt_after(16))
    journal = partial_path(out) / "journal.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"key": "torn')
    with (partial_path(out) / "features.f16").open("ab") as file:
        file.write(b"x" * 12345)
    assert store_content(prepare(Table(file=table), out, workers=1).path) == store_content(whole.path)


def test_a_journal_never_vouches_for_features_that_are_not_there(make_table, tmp_path):
    table = make_table({"a": 40})
    whole = prepare(Table(file=table), tmp_path / "whole", workers=1)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        prepare(Table(file=table), out, workers=1, progress=interrupt_after(32))
    os.truncate(partial_path(out) / "features.f16", 5000)
    assert store_content(prepare(Table(file=table), out, workers=1).path) == store_content(whole.path)


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
        prepare(Table(file=table), out, max_rejected=0.01, workers=1)
    assert [one.utterance for one in read_rejected(partial_path(out))] == ["a/a001"]
    (table.parent / "a" / "a001.flac").write_bytes(good)
    assert prepare(Table(file=table), out, max_rejected=0.01, workers=1).info.utterances == 40


def test_what_was_begun_with_other_options_is_kept(make_table, tmp_path):
    table = make_table({"a": 40})
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        prepare(Table(file=table), out, workers=1, progress=interrupt_after(16))
    size = (partial_path(out) / "features.f16").stat().st_size
    with pytest.raises(DataError, match="with other options"):
        prepare(Table(file=table, label="other"), out, workers=1)
    assert (partial_path(out) / "features.f16").stat().st_size == size > 0


def test_two_preparations_cannot_write_one_store(make_table, tmp_path):
    table = make_table({"a": 3})
    partial_path(tmp_path / "s").mkdir()
    with only_writer(partial_path(tmp_path / "s")), pytest.raises(DataError, match="Another process is writing"):
        prepare(Table(file=table), tmp_path / "s", workers=1)


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
    store = prepare(Table(file=table), out, workers=1)
    assert store.damaged_files() == []
    assert resource.RLIM_INFINITY  # the limit was the other process' own


def test_an_interrupted_commit_keeps_whole_chunks_only(tmp_path):
    write_audio(tmp_path / "a.wav", 1)
    row = {"paths": ["a.wav"], "text": "hi", "start": None, "segment_seconds": None, "channel": None, "pauses": []}
    with Journal(tmp_path, ["k0", "k1"]) as journal:
        journal.append(extract(Chunk(tmp_path, TokenSet(("en",)), [row])))
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
            prepare(Table(file=table), tmp_path / "s", workers=1)
        assert not (tmp_path / "s").exists()
    assert prepare(Table(file=table), tmp_path / "s", max_rejected=0.2, workers=1).info.rejected == 5


def test_a_kill_between_the_last_file_and_the_rename_loses_nothing(make_table, tmp_path, monkeypatch):
    table, out = make_table({"a": 40}), tmp_path / "s"
    whole = prepare(Table(file=table), tmp_path / "whole", workers=1)
    monkeypatch.setattr("sottovoce.data.preparation.publish", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        prepare(Table(file=table), out, workers=1)
    monkeypatch.undo()
    starts = []
    store = prepare(Table(file=table), out, workers=1, progress=lambda *now: starts.append(now[1]))
    assert starts[0] == 40
    assert store_content(store.path) == store_content(whole.path)
    assert {path.name for path in store.path.iterdir()} == {*CONTENT_FILES, INFO}


def test_a_file_of_the_same_size_with_another_time_is_read_again(make_table, tmp_path):
    table = make_table({"a": 40})
    out, path = tmp_path / "s", table.parent / "a" / "a001.wav"
    soundfile.write(path, voice(1.0, 1), 16_000)
    table.write_text(table.read_text().replace("a/a001.flac", "a/a001.wav"))
    with pytest.raises(KeyboardInterrupt):
        prepare(Table(file=table), out, workers=1, progress=interrupt_after(32))
    soundfile.write(path, voice(1.0, 2), 16_000)
    os.utime(path, ns=(1, 1))
    store = prepare(Table(file=table), out, workers=1)
    assert (store.features_of(1) == logmel.features(soundfile.read(path, dtype="float32")[0])).all()
    soundfile.write(path, voice(1.0, 3), 16_000)
    with pytest.raises(DataError, match="made before the corpus changed"):
        prepare(Table(file=table), out, workers=1)


def test_a_try_with_the_wrong_reader_leaves_nothing_in_the_way(make_table, tmp_path):
    table, out = make_table({"a": 3}), tmp_path / "s"
    with pytest.raises(DataError, match="3 of 3 utterances cannot be used"):
        prepare(Table(file=table, path_column="text"), out, workers=1)
    assert partial_path(out).is_dir()
    store = prepare(Table(file=table), out, workers=1)
    assert store_content(store.path) == store_content(prepare(Table(file=table), tmp_path / "t", workers=1).path)


def test_work_begun_with_other_library_versions_is_not_mixed(make_table, tmp_path, monkeypatch):
    table, out = make_table({"a": 40}), tmp_path / "s"
    with pytest.raises(KeyboardInterrupt):
        prepare(Table(file=table), out, workers=1, progress=interrupt_after(16))
    monkeypatch.setattr("sottovoce.data.preparation.library_versions", lambda: {"soxr": "another"})
    with pytest.raises(DataError, match="other options or library versions"):
        prepare(Table(file=table), out, workers=1)
