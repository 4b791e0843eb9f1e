"""No utterance is dropped for its letters: what can be spelt out is, and the rest counts in evaluation only."""

import json

import numpy as np
import pytest

from conftest import write_audio
from sottovoce.data.corpora import Table
from sottovoce.data.joining import Joining
from sottovoce.data.leaving_out import leave_out
from sottovoce.data.merging import merge
from sottovoce.data.population import Population
from sottovoce.data.preparation import Request, prepare
from sottovoce.data.spelling import spelt_out, writable
from sottovoce.data.text import TokenSet
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.evaluation.scoring import evaluate
from sottovoce.evaluation.utterances import score
from sottovoce.model.recogniser import Recogniser
from sottovoce.model.transformer_options import TransformerOptions

SMALL = TransformerOptions(blocks=1, width=16, heads=2, mlp_width=32, dropout=0.0, layer_drop=0.0)
TEXTS = {"a": ("good morning", "room 42", "five €"), "b": ("well-known", "♥"), "c": ("hello",)}


@pytest.mark.parametrize(
    ("language", "raw", "expected"),
    [
        ("en", "The 2nd of 1,000 in 1984.", "the second of one thousand in nineteen eighty-four"),
        ("en", "3.5 & 100% or 007", "three point five and one hundred percent or zero zero seven"),
        ("en", "a 10-year mp3", "a ten-year mp three"),
        ("en", "12345678901234567890", "12345678901234567890"),
        ("en", "€5", "€ five"),
        ("fr", "Le 2e, 1.000 euros & 3,5 %", "le deuxième mille euros et trois virgule cinq pour cent"),
        ("fr", "señor Straße Łódź", "senor strasse lodz"),
        ("fr", "l'été 80", "l'été quatre-vingts"),
        ("de", "déjà vu 1984: 1.000", "deja vu neunzehnhundertvierundachtzig eintausend"),
        ("de", "Москва 2", "москва zwei"),
        ("en", "2,000.50 or 0.125", "two thousand point five or zero point one two five"),
        ("en", "the 1,000th", "the one thousandth"),
        ("fr", "1\u202f000,5", "mille virgule cinq"),
        ("de", "1.000,5", "eintausend komma fünf"),
    ],
)
def test_numbers_signs_and_foreign_letters_are_spelt_out(language, raw, expected):
    tokens = TokenSet((language,))
    assert spelt_out(raw, language, tokens) == expected
    assert not tokens.unknown(writable(expected, tokens))


@pytest.mark.parametrize(
    ("language", "numbers"),
    [
        (
            "en",
            (
                "3.14.15",
                "1.000",
                "2.000,50",
                "10,00",
                "1,00,000",
                "½",
                "1½",
                "m²",
                "1/2",
                "10 000",
                ".5",
                "1.5th",
                "1/2/99",
            ),
        ),
        ("fr", ("0.5", "3,125", "1,000.5", "10 000", "¾", "1.2.3")),
        ("de", ("0.5", "3,125", "1,000.5", "10 000", "1/4", "1.00")),
    ],
)
def test_what_is_not_surely_a_number_is_never_a_complete_target(language, numbers):
    tokens = TokenSet((language,))
    for number in numbers:
        assert tokens.unknown(spelt_out(f"x {number} x", language, tokens)), number


def test_what_has_tokens_is_written_as_it_is():
    tokens = TokenSet(("fr", "de"))
    assert spelt_out("l'été über 2", "fr", tokens) == "l'été über deux"
    assert writable("rock & roll -€ x", TokenSet(("en",))) == "rock roll x"


@pytest.fixture
def table(tmp_path):
    lines = ["path\tspeaker\ttext"]
    for speaker, texts in TEXTS.items():
        for number, text in enumerate(texts):
            name = f"{speaker}{number}.flac"
            write_audio(tmp_path / name, 1.5 + 0.1 * number, seed=ord(speaker) + number)
            lines.append(f"{name}\t{speaker}\t{text}")
    file = tmp_path / "index.tsv"
    file.write_text("\n".join(lines) + "\n")
    return Table(file=file)


def test_a_kept_utterance_counts_in_evaluation_and_stays_out_of_training(table, tmp_path):
    with pytest.raises(DataError, match="3 of 6 utterances cannot be used"):
        prepare(table, tmp_path / "store")
    store = prepare(table, tmp_path / "kept", unknown_letters="keep")
    assert store.info.rejected == 0
    assert store.index(["text"])["text"].to_pylist() == [
        "good morning", "room forty-two", "five", "well-known", "", "hello",
    ]  # fmt: skip
    assert store.full_references == {2: "five €", 4: "♥"}
    everyone = Population.of(store)
    scored = evaluate(Recogniser.make(SMALL, TokenSet(("en",))).initialise(0), store, np.arange(6), Group())
    assert [one.reference for one in scored][2:5] == ["five €", "well-known", "♥"]
    assert score(scored).words == 2 + 2 + 2 + 1 + 1 + 1
    assert everyone.unwritable() == 2
    learnt = everyone.trainable()
    assert [learnt.rows_of(user).tolist() for user in range(3)] == [[0, 1], [3], [5]]
    assert learnt.speakers == everyone.speakers
    assert Population.of(store, ["c", "b"]).trainable().all_rows().tolist() == [3, 5]
    assert Population.of(store, ["c"]).unwritable() == 0
    only = leave_out(store, ["a", "c"], tmp_path / "only-b")
    assert Population.of(only).trainable().all_rows().tolist() == [0]


def test_text_that_needs_nothing_gives_the_same_bytes_either_way(make_table, tmp_path):
    table = Table(file=make_table({"a": 2, "b": 1}))
    plain, kept = (prepare(table, tmp_path / name, unknown_letters=name) for name in ("reject", "keep"))
    assert plain.info.hash == kept.info.hash
    assert plain.info.manifest_hash == kept.info.manifest_hash
    assert "full_reference" not in kept.index_columns()
    assert Population.of(kept).trainable().hash == Population.of(plain).hash
    assert "unknown_letters" not in json.dumps(Request(table).record().model_dump(exclude_defaults=True))
    with pytest.raises(DataError, match="was made with other options"):
        prepare(table, tmp_path / "keep")


def test_full_references_are_joined_merged_and_left_out(table, tmp_path):
    kept = prepare(table, tmp_path / "kept", unknown_letters="keep")
    joined = prepare(
        table, tmp_path / "joined", joining=Joining(least=2, most=3), unknown_letters="keep", max_rejected=0.5
    )
    assert sorted(joined.full_references) == [0, 1]
    assert set(joined.full_references[0].split()) == {"good", "morning", "room", "forty-two", "five", "€"}
    both = merge([kept, joined], tmp_path / "both", prefix=True)
    assert sorted(both.full_references.values()) == sorted(
        [*kept.full_references.values(), *joined.full_references.values()]
    )
    assert leave_out(kept, ["a"], tmp_path / "without-a").full_references == {1: "♥"}
    assert "full_reference" not in leave_out(kept, ["a", "b"], tmp_path / "only-c").index_columns()


def test_the_counts_are_printed(sotto, table, tmp_path):
    prepared = sotto(
        *("data", "prepare", "table", str(table.file), "--out", str(tmp_path / "s")),
        *("--unknown-letters", "keep", "--workers", "1", "--json"),
    )
    assert prepared.document["unwritable"] == 2
    figures = sotto("data", "stats", str(tmp_path / "s"), "--figure", str(tmp_path / "f.png"), "--json").document
    assert figures["subsets"][0]["unwritable"] == 2
    Recogniser.make(SMALL, TokenSet(("en",))).initialise(0).save(tmp_path / "model.safetensors")
    words = ("eval", str(tmp_path / "model.safetensors"), str(tmp_path / "s"), "--workers", "1")
    assert sotto(*words, "--json").document["unwritable"] == 2
    assert "2 utterances with characters that the model cannot write" in sotto(*words).stderr
