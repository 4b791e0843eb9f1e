"""LibriSpeech: the real corpus if it is available, and its layout with generated faults."""

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from conftest import write_audio
from sottovoce.data.corpora import LibriSpeech
from sottovoce.data.manifest import build_manifest
from sottovoce.data.population import Population
from sottovoce.data.preparation import prepare
from sottovoce.data.statistics import statistics_of
from sottovoce.errors import DataError


def stream_info(path: Path) -> tuple[int, int]:
    """Read sample rate and number of samples from the header of a FLAC file, byte by byte."""
    header = path.read_bytes()[:42]
    assert header[:4] == b"fLaC"
    packed = int.from_bytes(header[18:26], "big")
    return packed >> 44, packed & (2**36 - 1)


def test_the_real_corpus_agrees_with_a_count_of_its_files(real_speech, tmp_path):
    root = real_speech / "LibriSpeech"
    spec = LibriSpeech(root=root, subset=("dev-clean", "test-clean"))
    store = prepare(spec, tmp_path / "s", workers=2)
    files = list(root.glob("*-clean/*/*/*.flac"))
    by_speaker: dict[str, float] = defaultdict(float)
    for path in files:
        rate, samples = stream_info(path)
        by_speaker[path.parts[-3]] += samples / rate / 60
    row = statistics_of("LS", Population.of(store))
    assert (
        (store.info.utterances, store.info.speakers, store.info.rejected)
        == (418, 40, 0)
        == (len(files), len(by_speaker), 0)
    )
    assert row.hours == pytest.approx(sum(by_speaker.values()) / 60)
    assert row.minutes_min == pytest.approx(min(by_speaker.values()))
    assert row.minutes_max == pytest.approx(max(by_speaker.values()))
    printed = {
        fields[0].strip(): (fields[1].strip(), float(fields[3]))
        for fields in (line.split("|") for line in (root / "SPEAKERS.TXT").read_text().splitlines()[1:])
    }
    seconds = Population.of(store).seconds_by_user()
    for number, speaker in enumerate(store.speaker_names().to_pylist()):
        assert seconds[number] / 60 == pytest.approx(printed[speaker][1], abs=0.01)
    assert {(r["speaker"], r["sex"]) for r in store.index(["speaker", "sex"]).to_pylist()} == {
        (speaker, sex) for speaker, (sex, _) in printed.items()
    }
    words = subprocess.run(
        ["wc", "-w", *root.glob("*-clean/*/*/*.trans.txt")], capture_output=True, check=True, text=True
    )
    total = int(words.stdout.splitlines()[-1].split()[0])
    assert sum(len(text.split()) for text in store.index(["text"])["text"].to_pylist()) == total - 418


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    root = tmp_path / "LibriSpeech"
    for subset, speaker in (("train-clean-360", "11"), ("train-other-500", "22"), ("train-clean-100", "33")):
        chapter = root / subset / speaker / "7"
        for number in range(3):
            write_audio(chapter / f"{speaker}-7-000{number}.flac", 1.2, seed=number)
        lines = [f"{speaker}-7-000{number} HELLO THERE" for number in range(2)] + [f"{speaker}-7-0009 GONE"]
        (chapter / f"{speaker}-7.trans.txt").write_text("\n".join(lines) + "\n")
    return root


def test_the_papers_names_are_understood(corpus):
    for name, speakers in {
        "LS-100": {"33"},
        "LS-360": {"11"},
        "LS-500": {"22"},
        "LS-860": {"11", "22"},
        "LS-960": {"11", "22", "33"},
    }.items():
        manifest = build_manifest(LibriSpeech(root=corpus, subset=(name,)).read())
        assert manifest.label == name
        assert set(manifest.table["speaker"].to_pylist()) == speakers


def test_audio_without_transcript_and_transcript_without_audio_are_listed(corpus):
    manifest = build_manifest(LibriSpeech(root=corpus, subset=("LS-100",)).read())
    assert len(manifest.table) == 2
    assert {(one.utterance, str(one.reason)) for one in manifest.rejected} == {
        ("33-7-0002", "no transcript"),
        ("33-7-0009", "missing file"),
    }


def test_a_wrong_root_or_subset_says_what_is_there(corpus, tmp_path):
    with pytest.raises(DataError, match=r"has no subset dev-clean\. It contains: train-clean-100, train-clean-360"):
        LibriSpeech(root=corpus, subset=("dev-clean",)).read()
    with pytest.raises(DataError, match="does not exist"):
        LibriSpeech(root=tmp_path / "nowhere", subset=("dev-clean",)).read()


def test_an_id_twice_in_one_transcript_is_listed(corpus):
    path = corpus / "train-clean-100" / "33" / "7" / "33-7.trans.txt"
    path.write_text("33-7-0000 HELLO\n33-7-0001 THERE\n33-7-0002 NOW\n33-7-0000 SOMETHING ELSE\n")
    write_audio(corpus / "train-clean-100" / "33" / "33-stray.flac", 1.0)
    manifest = build_manifest(LibriSpeech(root=corpus, subset=("LS-100",)).read())
    assert manifest.table["text"].to_pylist() == ["hello", "there", "now"]
    assert {(one.utterance, str(one.reason)) for one in manifest.rejected} == {
        ("33-7-0000", "duplicate id"),
        ("33-stray", "no transcript"),
    }
