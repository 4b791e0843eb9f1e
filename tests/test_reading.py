"""Documents of others are read within bounds."""

import os
import re
import time
from pathlib import Path

import pytest

from sottovoce import reading
from sottovoce.errors import DataError
from sottovoce.reading import DEEPEST, BadDocument, parse_json, parse_yaml, read_bounded


@pytest.mark.parametrize("depth", [DEEPEST + 1, 1_000, 100_000])
def test_deep_nesting_is_refused(depth):
    for parse in (parse_json, parse_yaml) if depth < 10_000 else (parse_json,):
        for opening, closing in ("[]", ('{"a":', "}")):
            with pytest.raises(BadDocument, match=r"deeply|levels"):
                parse(opening * depth + "1" + closing * depth)


def test_documents_that_are_wide_but_shallow_are_read():
    assert parse_json("[" + "[1]," * 10_000 + "[1]]")[-1] == [1]
    assert parse_json(b'{"a": [1, {"b": NaN}]}')["a"][0] == 1
    assert parse_yaml("a: [1, 2]\nb: &x {c: 3}\nd: *x") == {"a": [1, 2], "b": {"c": 3}, "d": {"c": 3}}


def test_alias_bombs_are_refused_at_once():
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    began = time.monotonic()
    for text in (bomb, "&a [*a]", "&a {b: *a}"):
        with pytest.raises(BadDocument):
            parse_yaml(text)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "text", ["2020-99-99", "a: [", "\x00", "x" * (1 << 20) + "x", "? [a]\n: b", "!!python/object:os.x"]
)
def test_what_is_not_yaml_is_a_finding(text):
    with pytest.raises(BadDocument):
        parse_yaml(text)


def test_only_regular_files_within_the_bound_are_read(tmp_path):
    path = tmp_path / "list"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(DataError, match="more than the 4"):
        read_bounded(path, 4)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "pipe", tmp_path):
        with pytest.raises(DataError, match="not a regular file"):
            read_bounded(other)


# What a module reads besides: its own files in the package, what its own workers wrote into a temporary folder, files
# of an export before they leave, the system's, and files whose kind was looked at before.
READ_DIRECTLY = {
    *("config.py", "files.py", "bench/preset.py", "data/corpora/grammar.py", "estimate/user_audio.py"),
    *("reports/drawing/script.py", "api.py", "cli/dry_run.py", "runs/models_on_speech.py", "workers.py"),
    *("boundary/comparison.py", "boundary/scan.py", "runs/machine.py", "data/audio.py", "data/corpora/rows.py"),
    "evaluation/language_model.py",
}


def test_no_other_module_opens_what_may_be_a_pipe_or_a_device():
    direct = re.compile(r'\.read_(text|bytes)\(|\.open\(("rb?"|encoding)')
    package = Path(reading.__file__).parent
    readers = {str(path.relative_to(package)) for path in package.rglob("*.py") if direct.search(path.read_text())}
    assert readers == READ_DIRECTLY
