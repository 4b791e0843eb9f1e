"""A short form of `make fuzz`, and that the fuzzer finds what it looks for."""

import subprocess
import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT))
from fuzz.command_lines import ALWAYS, GOOD, NEVER, commands, named


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
