"""Common Voice in the layout of version 13: real MP3 files of sentences spoken by eSpeak NG, in three languages."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from sottovoce.data.corpora import CommonVoice
from sottovoce.data.corpora.synthetic import Synthetic, generate
from sottovoce.data.manifest import build_manifest
from sottovoce.data.preparation import prepare
from sottovoce.data.writer import read_rejected
from sottovoce.errors import DataError

HEADER = "client_id\tpath\tsentence\tup_votes\tdown_votes\tage\tgender\taccents\tvariant\tlocale\tsegment"
SENTENCES = {
    "en": ['She said "hello.', "It’s a well-known café, isn't it?", "Zürich — one of the nicest places"],
    "fr": ["L’été, «c'est» Noël !", "Où est-ce qu'on mange, Œdipe ?", "Ça va… très bien"],
    "de": ["Große Straßen, schöne Häuser.", "„Übermäßig“ süß!", "Wie geht's dir"],
}
EXPECTED = {
    "en": ["she said hello", "it's a well-known cafe isn't it", "zurich one of the nicest places"],
    "fr": ["l'été c'est noël", "où est-ce qu'on mange œdipe", "ça va très bien"],
    "de": ["große straßen schöne häuser", "übermäßig süß", "wie geht's dir"],
}


@pytest.fixture(scope="module")
def speech(tmp_path_factory) -> dict[str, list[np.ndarray]]:
    """Some real sentences in every language, at 16 kHz."""
    if importlib.util.find_spec("espeakng_loader") is None:  # asked, not imported: it belongs into its own process
        pytest.skip("needs eSpeak NG: pip install 'sottovoce[synthetic]'")
    folder = tmp_path_factory.mktemp("speech")
    options = Synthetic(speakers=3, languages=("en", "fr", "de"), domain="clean", mean_utterances=6, tail=0)
    generate(options, folder, 1, lambda *_: None)
    return {
        language: [soundfile.read(path)[0] for path in sorted(folder.glob(f"audio/{language}-*/*.flac"))]
        for language in ("en", "fr", "de")
    }


def write_mp3(path: Path, samples: np.ndarray, rate: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, soxr.resample(samples, 16_000, rate), rate, format="MP3")


@pytest.fixture
def corpus(tmp_path: Path, speech) -> Path:
    """Three good rows and every kind of bad one, in every language."""
    for language, sentences in SENTENCES.items():
        folder = tmp_path / "cv" / language
        lines = [HEADER]

        def add(clip: str, sentence: str, client: str = "c0ffee", lines: list[str] = lines) -> None:
            lines.append(f"{client}\t{clip}\t{sentence}\t2\t0\ttwenties\tfemale\t\t\t\t")

        for number, sentence in enumerate(sentences):
            client = "c0ffee" if number < 2 else "decaf"
            rate = 32_000 if number == 1 else 48_000
            write_mp3(folder / "clips" / f"good{number}.mp3", speech[language][number], rate)
            add(f"good{number}.mp3", sentence, client)
        whole = (folder / "clips" / "good0.mp3").read_bytes()
        for name, content in {
            "empty": b"",
            "noise": b"garbage " * 500,
            "cut": whole[: len(whole) // 2],
        }.items():
            (folder / "clips" / f"{name}.mp3").write_bytes(content)
            add(f"{name}.mp3", "hello")
        write_mp3(folder / "clips" / "silent.mp3", np.zeros(16_000), 48_000)
        write_mp3(folder / "clips" / "short.mp3", speech[language][0][:6000], 48_000)
        write_mp3(folder / "clips" / "other.mp3", speech[language][1], 48_000)
        add("silent.mp3", "hello")
        add("short.mp3", "a sentence that is far too long for so little audio")
        add("missing.mp3", "hello")
        add("good0.mp3", "the same clip again")
        add("other.mp3", "hello", client="")
        add("other1.mp3", "")
        add("other2.mp3", "...!")
        add("other3.mp3", "am 24. Dezember")
        lines.append("c0ffee\tother4.mp3\thello")
        (folder / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "cv"


@pytest.mark.parametrize("language", ["en", "fr", "de"])
def test_good_rows_are_read_and_every_bad_one_is_listed(corpus, tmp_path, language):
    spec = CommonVoice(root=corpus, language=language, split="train")
    store = prepare(spec, tmp_path / "s", max_rejected=0.9, workers=2)
    index = store.index().to_pylist()
    assert {row["utterance"]: row["text"] for row in index} == {
        f"good{number}": text for number, text in enumerate(EXPECTED[language])
    }
    assert [row["speaker"] for row in index] == ["c0ffee", "c0ffee", "decaf"]
    assert {row["gender"] for row in index} == {"female"}
    assert {(one.utterance, str(one.reason)) for one in read_rejected(store.path)} == {
        ("empty", "empty audio"),
        ("noise", "unreadable audio"),
        ("cut", "truncated audio"),
        ("silent", "silent audio"),
        ("short", "audio too short for its text"),
        ("missing", "missing file"),
        ("good0", "duplicate id"),
        ("other", "no speaker"),
        ("other1", "no transcript"),
        ("other2", "text normalises to nothing"),
        ("other3", "characters outside the token set"),
        ("train.tsv row 16", "malformed row"),
    }
    assert store.info.rejected == 12
    assert store.info.label == f"CV-{language}-train"


def test_mp3_at_32_and_48_khz_comes_out_at_16_khz(corpus, tmp_path, speech):
    spec = CommonVoice(root=corpus, language="fr", split="train")
    store = prepare(spec, tmp_path / "s", max_rejected=0.9, workers=1)
    for row in store.index().to_pylist():
        number = int(row["utterance"].removeprefix("good"))
        assert row["seconds"] == pytest.approx(len(speech["fr"][number]) / 16_000, abs=0.1)


def test_more_bad_rows_than_allowed_stop_the_preparation(corpus, tmp_path):
    spec = CommonVoice(root=corpus, language="en", split="train")
    with pytest.raises(DataError, match=r"of 15 utterances cannot be used, more than --max-rejected 0\.05"):
        prepare(spec, tmp_path / "s", workers=1)
    assert not (tmp_path / "s").exists()
    assert (tmp_path / "s.partial" / "rejected.tsv").exists()


def test_a_wrong_root_is_explained(corpus):
    with pytest.raises(DataError, match=r"Did you mean .*cv\?"):
        CommonVoice(root=corpus / "en", language="en", split="train").read()
    with pytest.raises(DataError, match=r"dev\.tsv does not exist"):
        CommonVoice(root=corpus, language="en", split="dev").read()
    (corpus / "en" / "dev.tsv").write_text("path\tsentence\nx\ty\n")
    with pytest.raises(DataError, match="has no column 'client_id'"):
        build_manifest(CommonVoice(root=corpus, language="en", split="dev").read())
