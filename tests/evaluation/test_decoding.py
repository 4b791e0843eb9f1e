"""Beam search: against a search of all alignments, with language models and lexica, and on recordings of any length."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
import torch

from conftest import ROOT, write_audio
from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError, DataError
from sottovoce.evaluation import beam
from sottovoce.evaluation.decoder import GreedyDecoder, tokens_of
from sottovoce.evaluation.decoding import Decoding
from sottovoce.evaluation.kneser_ney import build
from sottovoce.evaluation.language_model import LanguageModelNote, write_arpa
from sottovoce.evaluation.lm_text import units
from sottovoce.evaluation.transcription import transcribe
from sottovoce.model.recogniser import Recogniser
from sottovoce.model.transformer_options import TransformerOptions

GOLDEN = ROOT / "tests" / "golden"
ENGLISH = TokenSet(("en",))
USED = [ENGLISH.tokens.index(token) for token in ("<blank>", "|", "a", "t")]
SMALL = TransformerOptions(blocks=1, width=16, heads=2, mlp_width=32, dropout=0.0, layer_drop=0.0)


def scores_of(outputs: int, seed: int, sharpness: float = 2.0) -> torch.Tensor:
    """Return scores of which only blank, boundary, a and t are possible."""
    rng = np.random.default_rng(seed)
    scores = torch.full((outputs, len(ENGLISH.tokens)), -1e3)
    scores[:, USED] = torch.from_numpy(sharpness * rng.standard_normal((outputs, len(USED)))).float()
    return scores


def text_of(decoding: Decoding, scores: torch.Tensor) -> str:
    return ENGLISH.decode(tokens_of(decoding.open(ENGLISH).path(scores)))


def model_of(path, sentences, level="word", order=2):
    write_arpa(
        build([units(sentence, level) for sentence in sentences], order),
        path,
        LanguageModelNote(level, order, len(sentences), False),
    )
    return path


def test_greedy_collapses_repeats_and_drops_blanks():
    best = torch.tensor([[1, 1, 0, 1, 2, 2, 0, 3], [4, 4, 4, 4, 4, 0, 0, 0]])
    scores = torch.nn.functional.one_hot(best, 5).float()
    assert GreedyDecoder().decode(scores, torch.tensor([7, 8])) == [[1, 1, 2], [4]]
    assert Decoding() == Decoding(decoder="greedy")


@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_the_most_probable_text(seed):
    scores = scores_of(6, seed)
    # Boundaries at the ends and in a row are tokens for the search, so it compares token strings, not words.
    log_probs = torch.log_softmax(scores, -1)
    strings: dict[tuple[int, ...], float] = defaultdict(float)
    for path in itertools.product(USED, repeat=len(scores)):
        string = tuple(token for token, _ in itertools.groupby(path) if token)
        strings[string] += math.exp(sum(float(log_probs[place, token]) for place, token in enumerate(path)))
    best = max(strings, key=strings.__getitem__)
    assert tuple(tokens_of(Decoding(decoder="beam", beam=2000).open(ENGLISH).path(scores))) == best


def test_a_lexicon_allows_its_words_only(tmp_path):
    (tmp_path / "words.txt").write_text("at\ntat\n")
    for seed in range(4):
        text = text_of(Decoding(decoder="beam", lexicon=tmp_path / "words.txt"), scores_of(12, seed))
        assert set(text.split()) <= {"at", "tat"}


def test_a_language_model_of_words_prefers_its_sentences(tmp_path):
    lm = model_of(tmp_path / "lm.arpa", ["at tat"] * 8 + ["tat"])
    scores = scores_of(12, 3, sharpness=0.1)
    assert text_of(Decoding(decoder="beam", lm=lm, lm_weight=3), scores) in ("at tat", "tat")
    # Without any weight it is a lexicon; a word's score makes words rare or frequent.
    few, many = (
        len(text_of(Decoding(decoder="beam", lm=lm, lm_weight=0, word_score=score), scores).split())
        for score in (-20, 20)
    )
    assert few <= 1 < many


def test_a_language_model_of_characters_leaves_spelling_free(tmp_path):
    lm = model_of(tmp_path / "lm.arpa", ["at", "at at"] * 5, "character", 4)
    scores = scores_of(10, 5, sharpness=0.1)
    assert set(text_of(Decoding(decoder="beam", lm=lm, lm_weight=3), scores).split()) == {"at"}
    certain = torch.full((5, len(ENGLISH.tokens)), -30.0)
    certain[range(5), [ENGLISH.tokens.index(token) for token in "|tta|"]] = 30.0
    assert text_of(Decoding(decoder="beam", lm=lm, lm_weight=0.5), certain) == "ta"  # which the model has never seen
    both = Decoding(decoder="beam", lm=lm, lm_weight=0.5, lexicon=tmp_path / "words.txt")
    (tmp_path / "words.txt").write_text("tat\n")
    assert set(text_of(both, scores).split()) <= {"tat"}


def test_scores_of_the_language_model_are_natural_logarithms(tmp_path):
    """With weight 1 the score of a text is ln p(text | audio) + ln p_LM(text), </s> included."""
    lm = model_of(tmp_path / "lm.arpa", ["at", "tat", "at at"])
    certain = torch.full((4, len(ENGLISH.tokens)), -60.0)
    certain[range(4), [ENGLISH.tokens.index(token) for token in "|at|"]] = 60.0
    decoder = Decoding(decoder="beam", lm=lm, lm_weight=1).open(ENGLISH)
    emissions = np.ascontiguousarray(torch.log_softmax(certain, -1).numpy())
    found = decoder._search.decode(emissions.ctypes.data, *emissions.shape)[0]
    kenlm = beam._loaded(lm, ["at"])
    state, first = kenlm.score(kenlm.start(False), 0)
    assert found.score == pytest.approx(math.log(10) * (first + kenlm.finish(state)[1]), abs=1e-4)


@pytest.mark.parametrize("form", ["lm.arpa", "lm.trie"])
def test_models_of_kenlm_are_read_without_a_word_on_stderr(form, capfd):
    decoder = Decoding(decoder="beam", lm=GOLDEN / form).open(ENGLISH)
    assert set(ENGLISH.decode(tokens_of(decoder.path(scores_of(9, 1)))).split()) <= {"a", "at", "that"}
    assert capfd.readouterr().err == ""


def test_long_recordings_are_cut_in_pauses(monkeypatch):
    monkeypatch.setattr(beam, "_PIECE_OUTPUTS", 40)
    scores = torch.full((200, len(ENGLISH.tokens)), -20.0)
    path = [0 if place % 12 > 6 else ENGLISH.tokens.index("|at|||t"[place % 12]) for place in range(200)]
    scores[range(200), path] = 20.0
    decoder = Decoding(decoder="beam").open(ENGLISH)
    assert decoder.path(scores).tolist() == path
    assert decoder.path(scores[:0]).tolist() == []


def test_damaged_scores_are_an_error():
    with pytest.raises(DataError, match="not finite"):
        Decoding(decoder="beam").open(ENGLISH).path(torch.full((4, len(ENGLISH.tokens)), math.nan))


def test_transcribing_by_beam_search_gives_words_with_times(tmp_path):
    recogniser = Recogniser.make(SMALL, ENGLISH).initialise(0)
    file = write_audio(tmp_path / "voice.wav", 3.0)
    (tmp_path / "words.txt").write_text("a\nat\nthat\n")
    decoder = Decoding(decoder="beam", lexicon=tmp_path / "words.txt").open(ENGLISH)
    transcript = transcribe(recogniser, file, decoder)
    assert {word.word for word in transcript.words} <= {"a", "at", "that"}
    assert all(0 <= word.start < word.end <= 3.01 for word in transcript.words)
    assert transcribe(recogniser, file) == transcribe(recogniser, file, GreedyDecoder())


@pytest.fixture
def model(tmp_path):
    Recogniser.make(SMALL, ENGLISH).initialise(0).save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_evaluation_by_beam_search_says_how_it_decoded(model, make_store, tmp_path, sotto):
    store = make_store({"ann": 2, "bob": 2}).path
    lm = tmp_path / "users.arpa"
    assert sotto("lm", "build", "--from-store", store, "--includes-users", "--out", lm).code == 0
    found = sotto("eval", model, store, "--decoder", "beam", "--lm", lm, "--beam", 5, "--workers", 1, "--json")
    assert found.document["decoding"]["lm"] == str(lm)
    assert "no privacy guarantee covers it" in found.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--lm", "lm.arpa"], "needs --decoder beam"),
        (["--beam", "10"], "--beam changes nothing without --decoder beam"),
        (["--decoder", "beam", "--lm-weight", "2"], "--lm-weight changes nothing without --lm"),
        (["--decoder", "bean"], "'bean' is not one of 'greedy', 'beam'"),
        (["--decoder", "beam", "--lm", "absent.arpa"], "There is no language model at absent.arpa"),
        (["--decoder", "beam", "--lm", "words.txt"], "is no language model"),
        (["--decoder", "beam", "--lm", "cut.arpa"], "not a language model that KenLM can read"),
        (["--decoder", "beam", "--lm", "digits.arpa"], "No word of digits.arpa can be written"),
        (["--decoder", "beam", "--lexicon", "."], "not a regular file"),
        (["--decoder", "beam", "--beam", "0"], "--beam 0: expected at least 1"),
        (["--decoder", "beam", "--lm-weight", "nan"], "--lm-weight"),
        (["--decoder", "beam", "--word-score", "1e300"], "--word-score"),
    ],
)
def test_bad_options_are_one_line(options, says, model, sotto, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("one\n")
    (tmp_path / "cut.arpa").write_bytes((GOLDEN / "lm.arpa").read_bytes()[:3000])
    (tmp_path / "digits.arpa").write_text("\\data\\\nngram 1=1\n\n\\1-grams:\n-1\t42\n\n\\end\\\n")
    write_audio(tmp_path / "voice.wav", 1.0)
    assert says in sotto("transcribe", model, "voice.wav", *options).error


def test_a_missing_library_is_one_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "flashlight.lib.text.decoder.kenlm", None)
    with pytest.raises(ConfigError, match=r"sottovoce\[decode\]"):
        Decoding(decoder="beam").check()
