"""A corpus of one's own: a class outside the package that `prepare` and configurations take like any other."""

from pathlib import Path
from typing import Literal

import pytest

import sottovoce as sv
from conftest import write_audio
from sottovoce.config import resolve
from sottovoce.estimate.user_audio import audio_of


class NamedFiles(sv.CorpusSpec):
    """Recordings SPEAKER_WORDS.wav in one folder: the name says who speaks and what."""

    kind: Literal["named-files"] = "named-files"
    folder: Path

    def read(self):
        return sv.Corpus("named files", self.folder, ("en",), self._entries())

    def _entries(self):
        for path in sorted(self.folder.glob("*.wav")):
            speaker, _, words = path.stem.partition("_")
            if words:
                yield sv.Entry(path.stem, speaker, words.replace("-", " "), "en", (path.name,))
            else:
                yield sv.Rejection(path.stem, speaker, sv.Reason.NO_TRANSCRIPT, "the name has no words")


@pytest.fixture
def recordings(tmp_path):
    for number, name in enumerate(("ada_good-morning", "ada_good-night", "bob_hello", "bob")):
        write_audio(tmp_path / "recordings" / f"{name}.wav", 1.0, number)
    return tmp_path / "recordings"


def test_a_corpus_of_ones_own_is_prepared(recordings, tmp_path):
    corpus = NamedFiles(folder=recordings)
    store = sv.prepare(corpus, tmp_path / "store", max_rejected=0.5)
    assert store.speaker_names().to_pylist() == ["ada", "bob"]
    assert store.info.request.corpus == {"kind": "named-files", "folder": str(recordings)}
    assert "no transcript" in (tmp_path / "store" / "rejected.tsv").read_text()
    again = sv.prepare(corpus, tmp_path / "store", max_rejected=0.5)
    assert again.info.hash == store.info.hash


def test_a_configuration_names_a_corpus_of_ones_own(recordings, tmp_path, sotto):
    config = resolve("tiny", {"corpus": {"kind": "named-files", "folder": str(recordings)}})
    assert config.config.corpus == NamedFiles(folder=recordings)
    with pytest.raises(sv.ConfigError, match="does not tell how much audio a user has"):
        audio_of(config)
    settings = ("--set", "corpus.kind=named-files", "--set", f"corpus.folder={recordings}")
    words = ("data", "prepare", "preset", "tiny", *settings, "--out", tmp_path / "store", "--max-rejected", 0.5)
    made = sotto(*words, "--workers", 1, "--json")
    assert made.document["speakers"] == 2
    assert "there is no key 'corpus.foldr'. did you mean 'corpus.folder'" in (
        sotto("config", "show", "tiny", *settings, "--set", "corpus.foldr=x").error.lower()
    )


def test_an_unknown_corpus_names_those_that_are_known():
    with pytest.raises(sv.ConfigError, match=r"corpus\.kind='nothing' .*expected commonvoice, .*synthetic.* or table"):
        resolve("tiny", {"corpus": {"kind": "nothing"}})
