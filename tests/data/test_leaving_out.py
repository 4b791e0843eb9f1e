"""A store without a speaker is the store of a corpus without that speaker."""

import shutil

import pytest

from conftest import write_audio
from sottovoce.data.corpora import Table
from sottovoce.data.joining import Joining
from sottovoce.data.leaving_out import leave_out
from sottovoce.data.preparation import prepare
from sottovoce.data.store import CONTENT_FILES
from sottovoce.errors import DataError

SPEAKERS = {"ann": 3, "bob": 2, "cem": 4}


def write_corpus(folder, speakers):
    lines = ["path\tspeaker\ttext\tsex"]
    for place, (speaker, count) in enumerate(SPEAKERS.items()):
        for number in range(count):
            name = f"{speaker}{number}.flac"
            write_audio(folder / name, 1 + 0.1 * number, 10 * place + number)
            text = "" if (speaker, number) == ("bob", 1) else f"hello {'again ' * number}{speaker}"  # one is rejected
            if speaker in speakers:
                lines.append(f"{name}\t{speaker}\t{text}\tf")
    (folder / "index.tsv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("joining", [None, Joining(least=1, most=2)])
@pytest.mark.parametrize("left_out", [*SPEAKERS])
def test_it_equals_a_store_prepared_without_them(tmp_path, left_out, joining):
    write_corpus(tmp_path, SPEAKERS)
    table = Table(file=tmp_path / "index.tsv")
    whole = prepare(table, tmp_path / "whole", joining=joining, workers=1, max_rejected=1)
    write_corpus(tmp_path, [speaker for speaker in SPEAKERS if speaker != left_out])
    expected = prepare(table, tmp_path / "expected", joining=joining, workers=1, max_rejected=1)
    found = leave_out(whole, [left_out], tmp_path / "found")
    assert {name: found.info.files[name] for name in CONTENT_FILES} == expected.info.files
    assert found.info.hash == expected.info.hash != whole.info.hash
    assert found.damaged_files() == []


def test_nothing_is_left_behind_by_a_name_that_is_not_there(tmp_path):
    write_corpus(tmp_path, SPEAKERS)
    whole = prepare(Table(file=tmp_path / "index.tsv"), tmp_path / "whole", workers=1, max_rejected=1)
    with pytest.raises(DataError, match="'nobody' not in"):
        leave_out(whole, ["nobody"], tmp_path / "found")
    shutil.copytree(tmp_path / "whole", tmp_path / "found")
    with pytest.raises(DataError, match="exists"):
        leave_out(whole, ["ann"], tmp_path / "found")
