"""Outputs are regular files, whole or not at all; locks and links lead nowhere."""

import os
import socket

import pytest

from sottovoce.errors import DataError
from sottovoce.files import only_writer, open_private, open_shared, taken, written_whole


def make(kind, path):
    """Put something that is not a regular file at a path."""
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.with_name("target").write_text("kept")
        path.symlink_to("target")
    elif kind == "dangling link":
        path.symlink_to("nothing")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        folder = os.open(path.parent, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{folder}/{path.name}")  # the name of a socket must be short
        os.close(folder)


@pytest.mark.parametrize("kind", ["folder", "link", "dangling link", "pipe", "socket"])
def test_only_regular_files_are_written(tmp_path, kind):
    path = tmp_path / "out"
    make(kind, path)
    before = path.lstat().st_mode
    with pytest.raises(DataError, match=f"{path} is a .*, not a regular file"), written_whole(path) as file:
        file.write(b"new")
    for mode in (open_private, open_shared):
        with pytest.raises(DataError, match="not a regular file"):
            mode(path, "ab")
    assert path.lstat().st_mode == before
    assert kind != "link" or path.read_text() == "kept"
    assert not (tmp_path / "nothing").exists()


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / ("n" * 250)  # the temporary name must not be too long
    for content in (b"one", b"two"):
        with written_whole(path) as file:
            (temporary,) = tmp_path.glob(".*.tmp")
            file.write(content)
        assert len(temporary.name.split(".")[-2]) == 32
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"two"


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_a_lock_follows_no_link(tmp_path, kind):
    make(kind, tmp_path / "run.lock")
    with pytest.raises(DataError, match="not a regular file"), only_writer(tmp_path / "run"):
        pass
    with pytest.raises(DataError, match="not a regular file"), taken(tmp_path / "run.lock"):
        pass
    assert kind != "link" or (tmp_path / "target").read_text() == "kept"


def test_a_file_in_the_place_of_a_lock_is_kept(tmp_path):
    (tmp_path / "run.lock").write_text("mine")
    with pytest.raises(DataError, match="a file of yours"), only_writer(tmp_path / "run"):
        pass
    assert (tmp_path / "run.lock").read_text() == "mine"
    (tmp_path / "run.lock").write_text("")  # of a process that was killed
    with (
        only_writer(tmp_path / "run"),
        pytest.raises(DataError, match="Another process"),
        only_writer(tmp_path / "run"),
    ):
        pass
    assert not (tmp_path / "run.lock").exists()
