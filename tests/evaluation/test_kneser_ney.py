"""Language models: against KenLM's lmplz, against arithmetic by hand, and as probabilities.

tests/golden/lm.arpa is what `lmplz -o 3 --discount_fallback` (KenLM 0.3.0) makes of lm.txt, and lm.trie the same as
`build_binary -s trie` writes it. Its discounts of order 1 are the fallback; the others follow from the text.
"""

import gzip
import math
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from sottovoce.errors import ConfigError, DataError
from sottovoce.evaluation.kneser_ney import BEGIN, END, UNKNOWN, NgramModel, build
from sottovoce.evaluation.language_model import LanguageModelNote, open_language_model, write_arpa
from sottovoce.evaluation.lm_text import LmText, units

GOLDEN = ROOT / "tests" / "golden"
NOTE = LanguageModelNote("word", 3, 90, False)
sentences = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=12)


def read(path: Path) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return log10 probability and back-off of every n-gram of an ARPA file."""
    lines = [line.split("\t") for line in path.read_text().splitlines() if "\t" in line]
    return {tuple(line[1].split()): (float(line[0]), float(line[2]) if len(line) > 2 else 0.0) for line in lines}


def listed(model: NgramModel) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return the same of a model."""
    found, names = {}, [()]
    for grams in model.grams:
        names = [(*names[prefix], model.words[word]) for prefix, word in zip(grams.prefix, grams.word, strict=True)]
        found |= dict(zip(names, zip(grams.log_prob, grams.log_backoff, strict=True), strict=True))
    return found


def probability(grams: dict[tuple[str, ...], tuple[float, float]], context: tuple[str, ...], word: str) -> float:
    """Return p(word | context) as ARPA defines it: the longest n-gram there is, and back-offs on the way down."""
    if (*context, word) in grams:
        return 10 ** grams[(*context, word)][0]
    return 10 ** grams.get(context, (0, 0.0))[1] * probability(grams, context[1:], word)


def test_every_number_is_that_of_lmplz():
    text = (GOLDEN / "lm.txt").read_text().splitlines()
    model = build([line.split() for line in text], 3)
    ours, theirs = listed(model), read(GOLDEN / "lm.arpa")
    assert model.fallbacks == (1,)
    assert ours.keys() == theirs.keys()
    for gram, (log_prob, log_backoff) in theirs.items():
        assert gram == (BEGIN,) or ours[gram][0] == pytest.approx(log_prob, abs=1e-6)
        assert ours[gram][1] == pytest.approx(log_backoff, abs=1e-6)


def test_two_sentences_by_hand():
    grams = listed(build([["one", "two"], ["two", "one"]], 2))
    # Both words and </s> follow two different words: a = 2 of 6, D2 = 1, and 1/2 is left for 4 equal shares.
    single = (2 - 1) / 6 + 1 / 2 / 4
    assert 10 ** grams[("one",)][0] == pytest.approx(single)
    assert 10 ** grams[(UNKNOWN,)][0] == pytest.approx(1 / 8)
    # "one two" occurs once of two times, D1 = 0.5, so gamma is 1/2.
    assert 10 ** grams[("one", "two")][0] == pytest.approx((1 - 0.5) / 2 + 0.5 * single)
    assert 10 ** grams[("one",)][1] == pytest.approx(0.5)


@given(sentences, st.integers(1, 4))
def test_probabilities_of_every_context_add_up_to_one(text, order):
    model = build(text, order)
    grams = listed(model)
    contexts = {gram for gram in grams if len(gram) < order and gram[-1:] != (END,)} | {()}
    predicted = [word for word in model.words if word != BEGIN]
    for context in contexts:
        assert math.fsum(probability(grams, context, word) for word in predicted) == pytest.approx(1, abs=1e-9)


def test_a_written_model_reads_back_and_says_what_it_is(tmp_path):
    model = build([["one", "two"], ["two", "one"]], 2)
    write_arpa(model, tmp_path / "lm.arpa", NOTE)
    ours, back = listed(model), read(tmp_path / "lm.arpa")
    assert all(back[gram] == pytest.approx(ours[gram], abs=1e-6) for gram in ours)
    opened = open_language_model(tmp_path / "lm.arpa")
    assert (opened.words, opened.note, opened.has_users_transcripts) == (("one", "two"), NOTE, False)
    (tmp_path / "lm.arpa.gz").write_bytes(gzip.compress((tmp_path / "lm.arpa").read_bytes()))
    assert open_language_model(tmp_path / "lm.arpa.gz").words == ("one", "two")


def test_binary_and_arpa_have_the_same_words():
    arpa, binary = open_language_model(GOLDEN / "lm.arpa"), open_language_model(GOLDEN / "lm.trie")
    assert sorted(arpa.words) == sorted(binary.words)
    assert len(arpa.words) == 20
    assert arpa.note is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is no language model"),
        (b"hello\n" * 2000, "is no language model"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (b"\x1f\x8b\x08", "cannot be read as a language model"),
        (b"mmap lm http://kheafield.com/code format version 5\n\0", "has no list of words"),
        (b"\\data\\\nngram 7=1\n", "more than 6 words"),
        (b"# sottovoce-lm {}\n", "damaged note"),
        (b"# sottovoce-lm " + b"[" * 100_000, "damaged note"),
    ],
)
def test_what_is_no_language_model_is_one_line(content, says, tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says) as raised:
        open_language_model(path)
    assert "\n" not in str(raised.value)


def test_text_is_normalised_as_transcripts_are(tmp_path):
    (tmp_path / "text.txt").write_text("It's 42 Degrees!\n\n\u4f60\u597d\nDon't.\n")
    text = LmText("en")
    assert list(text.lines_of([tmp_path / "text.txt"])) == ["it's forty-two degrees", "ni hao", "don't"]
    (tmp_path / "text.txt").write_text("pay \u20ac now\n")
    assert list(text.lines_of([tmp_path / "text.txt"])) == []
    assert text.left_out == 1
    assert units("a bc", "character") == ["|", "a", "|", "b", "c", "|"]


def test_transcripts_need_a_statement_and_leave_a_note(make_store, tmp_path, sotto):
    store = make_store({"ann": 4, "bob": 3}).path
    out = tmp_path / "lm.arpa"
    refused = sotto("lm", "build", "--from-store", store, "--out", out)
    assert refused.code == 1
    assert "--includes-users" in refused.error
    assert not out.exists()
    built = sotto("lm", "build", "--from-store", store, "--includes-users", "--order", 2, "--out", out, "--json")
    assert built.document["users_transcripts"] is True
    assert built.document["sentences"] == 7
    assert "no privacy guarantee" in built.stderr
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert open_language_model(out).has_users_transcripts


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--out", "lm.arpa"], "nothing to build"),
        (["absent.txt", "--out", "lm.arpa"], "absent.txt cannot be read: No such file"),
        (["text.txt", "--out", "no/lm.arpa"], "there is no folder no"),
        (["text.txt", "--out", "."], "is a folder"),
        (["text.txt", "--out", "empty.txt"], "exists, and its name does not end in .arpa"),
        (["text.txt", "--out", "lm.arpa", "--level", "letter"], "is not one of 'word', 'character'"),
        (["text.txt", "--out", "lm.arpa", "--language", "xx"], "'xx' is unknown"),
        (["empty.txt", "--out", "lm.arpa"], "no text to build"),
    ],
)
def test_bad_input_of_lm_build_is_one_line(words, says, sotto, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("one two\n")
    Path("empty.txt").write_text("\n\n")
    assert says in sotto("lm", "build", *words).error


def test_an_order_beyond_kenlms_is_refused():
    with pytest.raises(ConfigError, match="from 1 to 6"):
        build([["one"]], 7)
