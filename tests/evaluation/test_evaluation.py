import json
import subprocess
import sys

import jiwer
import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import voice
from sottovoce.data.corpora import Table
from sottovoce.data.joining import Joining
from sottovoce.data.preparation import prepare
from sottovoce.data.text import TokenSet
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.evaluation.hypotheses import hypothesis_rows, write_hypotheses
from sottovoce.evaluation.scoring import evaluate
from sottovoce.evaluation.transcription import transcribe
from sottovoce.evaluation.utterances import compare, score
from sottovoce.evaluation.windows import HOP_SAMPLES, WINDOW_SAMPLES, _windows
from sottovoce.model.recogniser import Recogniser, load_recogniser
from sottovoce.model.transformer_options import TransformerOptions

SMALL = TransformerOptions(blocks=1, width=16, heads=2, mlp_width=32, dropout=0.0, layer_drop=0.0)
words = st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=6).map(" ".join)


@pytest.fixture
def recogniser():
    return Recogniser.make(SMALL, TokenSet(("en",))).initialise(0)


@given(st.lists(st.tuples(words, st.one_of(st.just(""), words)), min_size=1, max_size=5))
def test_corpus_rates_are_all_edits_over_all_words(pairs):
    result = score([compare(row, 1.0, *pair) for row, pair in enumerate(pairs)])
    references, hypotheses = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    assert result.wer == pytest.approx(jiwer.wer(references, hypotheses))
    assert result.cer == pytest.approx(jiwer.cer(references, hypotheses))
    assert result.words == sum(len(reference.split()) for reference in references)


def test_long_references_weigh_more():
    heard = [compare(0, 0.0, "a", "b"), compare(1, 0.0, "a b c d e f g h i", "a b c d e f g h i")]
    assert score(heard).wer == pytest.approx(0.1)


def test_every_utterance_counts_in_any_batch(recogniser, make_store):
    store = make_store({"a": 5, "b": 4})
    rows = np.arange(9)
    together = evaluate(recogniser, store, rows, Group(), batch_seconds=120)
    alone = evaluate(recogniser, store, rows, Group(), batch_seconds=0.5)  # each longer than the batch
    assert [one.row for one in together] == list(range(9))
    assert [one.hypothesis for one in together] == [one.hypothesis for one in alone]
    assert [one.loss for one in together] == pytest.approx([one.loss for one in alone], rel=1e-4)
    with pytest.raises(DataError, match="nothing to evaluate"):
        evaluate(recogniser, store, rows[:0], Group())


def test_a_saved_model_is_the_same_model(recogniser, tmp_path):
    recogniser.save(tmp_path / "model.safetensors")
    first = (tmp_path / "model.safetensors").read_bytes()
    recogniser.save(tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").read_bytes() == first
    again = load_recogniser(tmp_path)
    assert (again.flat.theta == recogniser.flat.theta).all()
    assert again.options == SMALL


def test_what_is_not_our_model_is_one_clear_error(recogniser, make_store, make_table, tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(DataError, match="There is no model"):
        load_recogniser(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(DataError, match="not a whole safetensors file"):
        load_recogniser(path)
    from safetensors.torch import save_file

    for metadata in (None, {"sottovoce": "[" * 200_000}):
        save_file({"x": torch.zeros(1)}, path, metadata)
        with pytest.raises(DataError, match="was not saved by Sottovoce"):
            load_recogniser(path)
    description = json.dumps(recogniser.description(), sort_keys=True)
    save_file({"x": torch.zeros(1)}, path, {"sottovoce": description})
    with pytest.raises(DataError, match="does not fit the model it describes"):
        load_recogniser(path)
    post = Recogniser.make(SMALL.model_copy(update={"norm": "post"}), recogniser.token_set).initialise(0)
    final = {"ln.weight": torch.ones(SMALL.width), "ln.bias": torch.zeros(SMALL.width)}  # as older versions had it
    save_file({**post.flat.tensors(), **final}, path, {"sottovoce": json.dumps(post.description())})
    with pytest.raises(DataError, match="norm=post no longer have a final LayerNorm"):
        load_recogniser(path)
    german = Recogniser.make(SMALL, TokenSet(("de",))).initialise(0)
    with pytest.raises(DataError, match="has the tokens of en, the model those of de"):
        german.require_store(make_store({"a": 1}))


@pytest.mark.parametrize("seconds", [1.0, 17.9, 18.1, 40.0, 100.0])
@pytest.mark.parametrize("block", [7_777, 160_000])
def test_windows_overlap_and_cover_everything(seconds, block):
    samples = np.arange(int(seconds * 16_000), dtype=np.float32)
    windows = list(_windows(iter(np.split(samples, range(block, len(samples), block))), 0))
    assert [window.number for window in windows] == list(range(len(windows)))
    assert [window.ends for window in windows] == [False] * (len(windows) - 1) + [True]
    for window in windows:
        assert window.samples[0] == window.number * HOP_SAMPLES
        assert len(window.samples) <= WINDOW_SAMPLES
    assert windows[-1].samples[-1] == samples[-1]


def test_a_short_file_is_heard_as_in_evaluation_in_every_format(recogniser, make_store, tmp_path):
    store = make_store({"a": 1})
    (heard,) = evaluate(recogniser, store, np.array([0]), Group())
    source = store.root_of(0) / store.index().to_pylist()[0]["paths"][0]
    assert transcribe(recogniser, source).text == heard.hypothesis
    for name, rate in (("a.wav", 8_000), ("a.mp3", 48_000), ("a.ogg", 44_100), ("a.flac", 16_000)):
        soundfile.write(tmp_path / name, np.stack([voice(25.0, 1, rate)] * 2, axis=1), rate)
        result = transcribe(recogniser, tmp_path / name)
        assert result.seconds == pytest.approx(25.0, abs=0.1)
        assert all(0 <= word.start < word.end <= 25.1 for word in result.words)


@pytest.mark.slow
def test_a_long_file_needs_no_more_memory_than_a_short_one(recogniser, real_speech, tmp_path):
    recogniser.save(tmp_path / "model.safetensors")
    spoken = []
    for path in sorted((real_speech / "LibriSpeech").rglob("*.flac")):
        spoken.append(soundfile.read(path, dtype="int16")[0])
        if sum(map(len, spoken)) >= 600 * 16_000:
            break
    samples = np.concatenate(spoken)[: 600 * 16_000]
    peaks = []
    for seconds in (30, 600):
        soundfile.write(tmp_path / "long.wav", samples[: seconds * 16_000], 16_000)
        program = (
            "import json, resource, sys; from pathlib import Path; import torch; torch.set_num_threads(1)\n"
            "from sottovoce.evaluation.transcription import transcribe\n"
            "from sottovoce.model.recogniser import load_recogniser\n"
            "heard = transcribe(load_recogniser(Path(sys.argv[1])), Path(sys.argv[2]))\n"
            "print(json.dumps([heard.seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))"
        )
        words = [sys.executable, "-c", program, str(tmp_path), str(tmp_path / "long.wav")]
        heard_seconds, peak = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        assert heard_seconds == pytest.approx(seconds, abs=0.1)
        peaks.append(peak)
    # The samples alone, read whole as float32, would take 37 MB.
    assert peaks[1] < peaks[0] + 15, peaks


def test_what_cannot_be_transcribed_is_one_line(recogniser, tmp_path, sotto):
    recogniser.save(tmp_path / "model.safetensors")
    (tmp_path / "a.wav").write_bytes(b"no audio")
    assert "cannot be read" in sotto("transcribe", tmp_path, tmp_path / "a.wav").error
    absent = tmp_path / "absent.wav"
    outcome = sotto("transcribe", tmp_path, absent)
    assert outcome.error == f"error: {absent} cannot be read: there is no such file. Check the path."
    soundfile.write(tmp_path / "good.wav", voice(1.0, 1, 16_000), 16_000)
    mixed = sotto("transcribe", tmp_path, tmp_path / "a.wav", tmp_path / "good.wav")
    assert "cannot be read" in mixed.error
    assert "good.wav: " in mixed.stdout
    assert "There is no model" in sotto("transcribe", tmp_path / "x", tmp_path / "a.wav").error


def test_eval_on_the_command_line(recogniser, make_store, tmp_path, sotto):
    store = make_store({"a": 3, "b": 2})
    recogniser.save(tmp_path / "model.safetensors")
    document = sotto("eval", tmp_path, store.path, "--by", "mood", "--workers", 1, "--json").document
    assert document["utterances"] == 5
    assert document["speakers"]["count"] == 2
    assert document["groups"]["mood"]["calm"]["speakers"] == 2
    assert "has no column 'sex'" in sotto("eval", tmp_path, store.path, "--by", "sex", "--workers", 1).error
    by_speaker = sotto("eval", tmp_path, store.path, "--by", "speaker", "--workers", 1, "--json").document
    assert {name: group["wer"] for name, group in by_speaker["groups"]["speaker"].items()} == by_speaker["speakers"][
        "wer"
    ]
    assert "holds lists" in sotto("eval", tmp_path, store.path, "--by", "paths", "--workers", 1).error
    both = sotto("eval", tmp_path, store.path, "--workers", 2, "--json").document
    assert both["loss"] == pytest.approx(document["loss"], rel=1e-5)
    assert both["wer"] == document["wer"]


def test_eval_of_several_models_on_several_stores(recogniser, make_store, tmp_path, sotto):
    first, second = make_store({"a": 3, "b": 2, "c": 1}), make_store({"d": 2, "e": 2}, name="other")
    recogniser.save(tmp_path / "one.safetensors")
    Recogniser.make(SMALL, TokenSet(("en",))).initialise(1).save(tmp_path / "two.safetensors")
    models, on = (tmp_path / "one.safetensors", tmp_path / "two.safetensors"), ("--on", first.path, "--on", second.path)
    out = tmp_path / "hypotheses.jsonl"
    document = sotto("eval", *models, *on, "--by", "seconds:1.2", "--workers", 1, "--out", out, "--json").document
    found = [(one["model"], one["store"]) for one in document["evaluations"]]
    assert found == [(str(model), str(store.path)) for model in models for store in (first, second)]
    low, high = document["evaluations"][0]["wer_interval"]
    assert low <= document["evaluations"][0]["wer"] <= high
    assert [one["on"] for one in document["differences"]] == [str(first.path), str(second.path)]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert out.stat().st_mode & 0o777 == 0o600
    for one in document["evaluations"]:
        own = [row for row in rows if (row["model"], row["store"]) == (one["model"], one["store"])]
        assert [row["speaker"] for row in own] == sorted(row["speaker"] for row in own)
        for kind in ("substitutions", "deletions", "insertions"):
            assert sum(row[kind] for row in own) == one[kind]
            assert all(row[kind] == [e["error"] + "s" for e in row["errors"]].count(kind) for row in own)
        assert sum(row["words"] for row in own) == one["words"]
    table = sotto("eval", *models, *on, "--workers", 1, "--out", tmp_path / "hypotheses.tsv")
    assert f"two.safetensors minus {models[0]} on {first.path}: " in table.stdout
    lines = [line.split("\t") for line in (tmp_path / "hypotheses.tsv").read_text().splitlines()]
    assert len(lines) == 1 + len(rows)
    assert {len(line) for line in lines} == {len(lines[0])}
    assert "should end in .tsv or .jsonl" in sotto("eval", *models, *on, "--out", tmp_path / "x.csv").error
    assert "there is no folder" in sotto("eval", *models, *on, "--out", tmp_path / "absent" / "x.tsv").error
    assert "no speech to evaluate on" in sotto("eval", models[0]).error


def test_eval_groups_and_warns_of_speakers_without_a_value(recogniser, tmp_path, make_table, sotto):
    table = make_table({"a": 2, "b": 1, "c": 1})
    people = tmp_path / "people.tsv"
    people.write_text("speaker\tage\tgender\tsex\na\t9\tf\tx\nb\t40\tm\tx\n")
    store = prepare(Table(file=table, speaker_table=people), tmp_path / "store", workers=1)
    recogniser.save(tmp_path / "model.safetensors")
    outcome = sotto("eval", tmp_path, store.path, "--workers", 1)
    assert "age=" in outcome.stdout  # the rest of the name may be in the next line of a narrow table
    assert "sex=" not in outcome.stdout  # one value tells nobody apart
    assert "1 speaker without a value for gender: c." in outcome.stderr
    by_age = sotto("eval", tmp_path, store.path, "--by", "age:18", "--workers", 1, "--json").document
    assert list(by_age["groups"]["age"]) == ["below 18", "18 and more", "(no value)"]
    assert by_age["without_value"] == {"age": ["c"]}
    assert "rising numbers" in sotto("eval", tmp_path, store.path, "--by", "age:x", "--workers", 1).error


def test_hypotheses_of_joined_strings_name_their_parts(recogniser, tmp_path, make_table):
    corpus = Table(file=make_table({"a": 4}))
    store = prepare(corpus, tmp_path / "joined", joining=Joining(least=2, most=2), workers=1)
    utterances = evaluate(recogniser, store, np.arange(2), Group())
    rows = list(hypothesis_rows(store, utterances))
    assert [len(row["parts"]) for row in rows] == [2, 2]
    assert all(len(row["reference"].split()) == row["words"] for row in rows)


def test_the_size_of_a_model_on_the_command_line(sotto):
    document = sotto("model", "baseline", "--json").document
    assert (document["parameters"], document["layers"]) == (255_800_864, 296)
    assert sotto("model", "tiny", "--partition", "kind", "--json").document["layers"] == 7
    assert "is not one of 'tensor'" in sotto("model", "tiny", "--partition", "x").error


def test_formulas_in_hypotheses_are_texts_in_a_spreadsheet_and_unchanged_in_json(tmp_path):
    row = {"speaker": "+1+1", "hypothesis": "-e", "reference": "a\tb", "loss": -1.5, "parts": ["@SUM(1)", "x"]}
    write_hypotheses(tmp_path / "table.tsv", iter([row]))
    assert (tmp_path / "table.tsv").read_text().splitlines()[1] == "'+1+1\t'-e\ta b\t-1.5\t'@SUM(1) x"
    write_hypotheses(tmp_path / "lines.jsonl", iter([row]))
    assert json.loads((tmp_path / "lines.jsonl").read_text())["speaker"] == "+1+1"
