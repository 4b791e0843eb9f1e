"""A short form of `make fuzz`, and that the fuzzer finds what it looks for."""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT))
from fuzz.command_lines import ALWAYS, GOOD, NEVER, commands, named
from fuzz.confinement import MEMORY, confine, ends, enter_room, fresh_processes_start


def test_every_command_is_fuzzed():
    known = commands()
    assert {named(line.split(), known) for line in GOOD} | set(NEVER) == set(known)
    assert set(ALWAYS) <= set(known)


def test_some_hostile_cases_find_nothing():
    words = [sys.executable, "-m", "fuzz", "--seed", "7", "--cases", "25", "--quick", "--jobs", "1"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "25 cases in" in done.stdout
    assert "findings: none" in done.stdout


def in_a_child(work):
    """Return the exit code of a forked process that does some work."""
    child = os.fork()
    if not child:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has more than a case may have")
def test_a_case_writes_only_into_its_folder():
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        room, outside = place / "room", place / "outside"
        place.chmod(0o755)
        for folder in (room, room / "case", room / "case" / "out", outside):
            folder.mkdir()
            folder.chmod(0o777)  # the unprivileged user might write there

        def work():
            enter_room(room)
            confine(room / "case", "", MEMORY)
            Path("inside").write_text("x")
            with contextlib.suppress(OSError):
                (outside / "x").write_text("x")
            return int(os.getuid() == 0)

        assert in_a_child(work) == 0
        assert (room / "case" / "out" / "inside").read_text() == "x"
        assert list(outside.iterdir()) == []
        assert in_a_child(lambda: enter_room(room) or int(not fresh_processes_start())) == 0


@pytest.mark.parametrize(("code", "ending"), [("pass", True), ("import time; time.sleep(60)", False)])
def test_a_case_that_sleeps_hangs_and_one_that_ends_does_not(code, ending):
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    descriptor = os.pidfd_open(process.pid)
    try:
        assert ends(descriptor, process.pid, 2) is ending
    finally:
        os.close(descriptor)
        process.kill()
        process.wait()


def test_work_is_no_idle_time_and_has_a_limit_of_its_own():
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    descriptor = os.pidfd_open(process.pid)
    try:
        assert not ends(descriptor, process.pid, 1, work=1)
        used = sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().split()[13:15]))
        assert used > os.sysconf("SC_CLK_TCK")
    finally:
        os.close(descriptor)
        process.kill()
        process.wait()
