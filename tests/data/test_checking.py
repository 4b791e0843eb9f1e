"""Downloads compared with what is published: real speech, and small files beside small numbers."""

import hashlib

import pytest

from conftest import write_audio
from sottovoce.data.corpora import download_figures
from sottovoce.data.corpora.checking import Verdict, check_commonvoice, check_librispeech, require_complete
from sottovoce.data.corpora.download_figures import COMMON_VOICE, LIBRISPEECH, Archive, Language, Subset
from sottovoce.errors import DataError

CONTENT = b"an archive"
ARCHIVE = Archive("dev-clean.tar.gz", len(CONTENT), "md5", hashlib.md5(CONTENT).hexdigest())  # noqa: S324 - as published


@pytest.fixture
def libri(tmp_path, monkeypatch):
    """A corpus of two speakers with two chapters, and as many numbers published about it."""
    root = tmp_path / "LibriSpeech"
    chapters = [";ID |READER|MINUTES| SUBSET | ..."]
    for speaker, chapter in ((1, 10), (1, 11), (2, 20)):
        folder = root / "dev-clean" / str(speaker) / str(chapter)
        for number in range(2):
            write_audio(folder / f"{speaker}-{chapter}-{number:04d}.flac", 0.5)
        texts = [f"{speaker}-{chapter}-{number:04d} HELLO" for number in range(2)]
        (folder / f"{speaker}-{chapter}.trans.txt").write_text("\n".join(texts) + "\n")
        chapters.append(f"{chapter} | {speaker} | 0.02 | dev-clean | 60 | 1 | A | B | C")
    (root / "CHAPTERS.TXT").write_text("\n".join(chapters))
    monkeypatch.setitem(LIBRISPEECH, "dev-clean", Subset(ARCHIVE, 2, 6, 3 / 3600))
    return root


def found_in(root, *subsets):
    return {one.subset: one for one in check_librispeech(root, subsets or ["dev-clean"])}


def test_a_whole_subset_is_complete(libri, sotto):
    finding = found_in(libri)["dev-clean"]
    assert finding.verdict is Verdict.COMPLETE
    assert finding.found.startswith("2 speakers, 3 chapters, 6 utterances")
    assert finding.expected.startswith("2 speakers, 3 chapters, 6 utterances")
    done = sotto("data", "check", "librispeech", libri, "--subset", "dev-clean", "--json")
    assert done.code == 0
    assert [one["verdict"] for one in done.document["findings"]] == ["complete"]


def test_what_is_absent_is_said(libri, sotto):
    (libri / "dev-clean" / "1" / "11" / "1-11-0001.flac").unlink()
    finding = found_in(libri)["dev-clean"]
    assert str(finding) == "part: 5 of 6 utterances"
    assert found_in(libri, "dev-clean", "test-clean")["test-clean"].verdict is Verdict.MISSING
    done = sotto("data", "check", "librispeech", libri, "--subset", "dev-clean")
    assert done.code == 1
    assert "is not complete: dev-clean. Download" in done.error


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda file: file.write_bytes(b""), "1 recordings cannot be read: 2-20-0000"),
        (lambda file: (file.parent / "2-20.trans.txt").unlink(), "2 recordings have no transcript"),
        (lambda file: write_audio(file.parents[2] / "3" / "30" / "3-30-0000.flac", 0.5), "have no transcript"),
    ],
)
def test_damage_is_found(libri, harm, reason):
    harm(libri / "dev-clean" / "2" / "20" / "2-20-0000.flac")
    finding = found_in(libri)["dev-clean"]
    assert finding.verdict is Verdict.DAMAGED
    assert reason in finding.reason
    with pytest.raises(DataError, match=r"is damaged: dev-clean\. Download that again"):
        require_complete(libri, [finding])


def test_utterances_that_are_too_short_are_found(libri, monkeypatch):
    monkeypatch.setitem(LIBRISPEECH, "dev-clean", Subset(ARCHIVE, 2, 6, 0.1))
    assert "not with all of their audio" in str(found_in(libri)["dev-clean"])


def test_archives_beside_the_folder_are_hashed(libri):
    archive = libri.parent / "dev-clean.tar.gz"
    archive.write_bytes(CONTENT)
    shown = []
    findings = check_librispeech(libri, ["dev-clean"], lambda *work: shown.append(work))
    assert [one.verdict for one in findings] == [Verdict.COMPLETE] * 2
    assert ("reading dev-clean.tar.gz", 0, 0) in shown
    archive.write_bytes(CONTENT[:-1])
    assert "cut short" in found_in(libri)["dev-clean.tar.gz"].reason
    archive.write_bytes(CONTENT.upper())
    assert found_in(libri)["dev-clean.tar.gz"].verdict is Verdict.DAMAGED
    archive.write_bytes(CONTENT)
    (libri / "dev-clean").rename(libri / "elsewhere")
    assert str(found_in(libri)["dev-clean"]) == "missing: unpack dev-clean.tar.gz"


def test_common_voice_is_checked_by_rows_speakers_and_clips(tmp_path, monkeypatch, sotto):
    folder = tmp_path / "de"
    (folder / "clips").mkdir(parents=True)
    for name in "abc":
        (folder / "clips" / f"{name}.mp3").touch()
    head = "client_id\tpath\tsentence\n"
    (folder / "train.tsv").write_text(head + "anna\ta.mp3\tJa.\nanna\tb.mp3\tNein.\n")
    (folder / "dev.tsv").write_text(head + "bert\tc.mp3\tJa.\nbert\td.mp3\tNein.\n")
    (folder / "validated.tsv").write_text(head + "bert\tc.mp3\n")
    language = Language(COMMON_VOICE["de"].archive, {"train": 2, "dev": 2, "test": 1, "validated": 9}, 1)
    monkeypatch.setitem(download_figures.COMMON_VOICE, "de", language)
    verdicts = {one.subset: str(one) for one in check_commonvoice(tmp_path, ["de"])}
    assert verdicts == {
        "de train": "complete",
        "de dev": "part: 1 of 2 clips",
        "de test": "missing",
        "de validated": "damaged: 1 rows cannot be read",
    }
    (folder / "train.tsv").write_text(head + "anna\ta.mp3\tJa.\nbert\tb.mp3\tNein.\n")  # one speaker too many
    assert "more than was published" in str(check_commonvoice(tmp_path, ["de"])[0])
    done = sotto("data", "check", "commonvoice", tmp_path, "--language", "de", "--json")
    assert done.code == 1
    assert len(done.document["findings"]) == 4


def test_bad_input_is_one_line(tmp_path, sotto):
    assert "does not exist" in sotto("data", "check", "librispeech", tmp_path / "none").error
    assert "Choose from: dev-clean" in sotto("data", "check", "librispeech", tmp_path, "--subset", "dev").error
    assert "Choose from: en, fr, de" in sotto("data", "check", "commonvoice", tmp_path, "--language", "it").error


def test_published_numbers_agree_with_each_other():
    assert sum(LIBRISPEECH[f"train-{name}"].speakers for name in ("clean-100", "clean-360", "other-500")) == 2338
    assert all(len(one.archive.digest) == 32 for one in LIBRISPEECH.values())
    assert all(len(one.archive.digest) == 64 for one in COMMON_VOICE.values())
    for language in COMMON_VOICE.values():
        assert sum(language.rows[split] for split in ("train", "dev", "test")) < language.rows["validated"]


def test_a_part_of_real_speech_is_called_a_part(real_speech):
    finding = found_in(real_speech / "LibriSpeech")["dev-clean"]
    assert str(finding) == "part: 20 of 40 speakers, 210 of 2,703 utterances"
