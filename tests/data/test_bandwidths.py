"""Source rate and bandwidth in stores, and what is said where training and test differ."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
from safetensors import safe_open

from conftest import voice, write_audio
from golden_runs import _model
from sottovoce.data.bandwidths import bandwidths_of, declared_band, difference, heard_in, store_note
from sottovoce.data.corpora import Table
from sottovoce.data.joining import Joining
from sottovoce.data.leaving_out import leave_out
from sottovoce.data.merging import merge
from sottovoce.data.population import Population
from sottovoce.data.preparation import Request, prepare
from sottovoce.data.store import CONTENT_FILES, INDEX, INFO, Store
from sottovoce.errors import ConfigError
from sottovoce.features.bandwidth import BandRange, limit_bandwidth
from sottovoce.features.specaugment import SpecAugment
from sottovoce.files import sha256_of
from sottovoce.model.model_file import band_in
from trainings import SMALL_MODEL

WIDE, NARROW = 8000, 4000


def write_corpus(folder, rates):
    """Write one utterance of speaker `a` and one of `b` at every rate."""
    lines = ["path\tspeaker\ttext"]
    for place, rate in enumerate(rates):
        for number, speaker in enumerate("ab"):
            path = write_audio(folder / f"{speaker}{place}.flac", 1.2, 10 * place + number, rate)
            lines.append(f"{path.name}\t{speaker}\thello {'abcdefghij'[place]}")
    (folder / "index.tsv").write_text("\n".join(lines) + "\n")
    return Table(file=folder / "index.tsv")


def without_bandwidths(store):
    """Make a store as the version before had it."""
    index = pq.read_table(store.path / INDEX).drop_columns(["source_rate_hz", "bandwidth_hz"])
    pq.write_table(index, store.path / INDEX)
    document = json.loads((store.path / INFO).read_text())
    document["files"][INDEX] = sha256_of(store.path / INDEX)
    del document["request"]["bandwidth_hz"], document["sizes"]
    (store.path / INFO).write_text(json.dumps(document))
    return Store.open(store.path)


def test_a_store_keeps_source_rate_and_bandwidth(tmp_path):
    store = prepare(write_corpus(tmp_path, (8000, 16000, 44100)), tmp_path / "s")
    rows = store.index().to_pylist()
    assert [row["source_rate_hz"] for row in rows] == [8000, 16000, 44100] * 2
    measured = np.array([row["bandwidth_hz"] for row in rows])
    assert (measured[[0, 3]] < 4100).all()
    assert (measured[[1, 2, 4, 5]] == WIDE).all()
    assert "bandwidth_limit_hz" not in rows[0]


def test_the_columns_change_no_digest_and_no_population(tmp_path):
    table = write_corpus(tmp_path, (8000, 16000))
    store = prepare(table, tmp_path / "s")
    before = Population.of(store).hash
    older = without_bandwidths(store)
    assert Population.of(older).hash == before
    assert older.damaged_files() == []
    assert len(bandwidths_of(Population.of(older))) == 0
    assert store_note(older) is None
    assert heard_in(Population.of(older), SpecAugment(bandlimit=1)) is None
    assert prepare(table, tmp_path / "s").info == older.info  # the same corpus and options: nothing to do
    newer = prepare(table, tmp_path / "again")
    np.testing.assert_array_equal(newer.content_digests, older.content_digests)
    (tmp_path / "more").mkdir()
    other = prepare(write_corpus(tmp_path / "more", (16000,)), tmp_path / "t")
    both = merge([older, other], tmp_path / "both", prefix=True)  # some are known, some are not
    assert bandwidths_of(Population.of(both)).tolist() == [WIDE] * 2


def test_the_hash_of_a_request_has_no_new_option_in_it(tmp_path):
    table = write_corpus(tmp_path, (16000,))
    assert Request(table).hash == Request(table, bandwidth_hz=None).hash != Request(table, bandwidth_hz=4000).hash


def test_a_store_can_be_limited_on_purpose(tmp_path, sotto):
    table = write_corpus(tmp_path, (16000, 44100))
    done = sotto(
        "data", "prepare", "table", table.file, "--out", tmp_path / "s", "--bandwidth-hz", 4000, "--workers", 1
    )
    assert done.code == 0, done.stderr
    assert "Note" not in done.stderr  # it was meant
    store = Store.open(tmp_path / "s")
    assert (bandwidths_of(Population.of(store)) < 4100).all()
    assert declared_band(store, None) == BandRange(NARROW, NARROW)
    assert declared_band(store, SpecAugment(bandlimit=0.5)) == BandRange(3400, NARROW)
    # Features are those of recordings at 8 kHz, and the exported audio is what they were made of.
    (tmp_path / "narrow").mkdir()
    for path in tmp_path.glob("?0.flac"):
        samples = soundfile.read(path, dtype="float32")[0]
        soundfile.write(tmp_path / "narrow" / path.name, limit_bandwidth(samples, 4000), 16000, subtype="PCM_24")
    out = tmp_path / "a.wav"
    assert sotto("data", "export", tmp_path / "s", "a0", "--out", out).code == 0
    exported, expected = soundfile.read(out)[0], soundfile.read(tmp_path / "narrow" / "a0.flac")[0]
    assert np.abs(exported - expected).max() < 1e-4
    left = leave_out(store, ["b"], tmp_path / "left")
    assert left.info.request == store.info.request
    assert left.index(["bandwidth_limit_hz"])["bandwidth_limit_hz"].to_pylist() == [NARROW] * 2
    assert {*left.info.files} == {*CONTENT_FILES}


@pytest.mark.parametrize("bandwidth", [0, -4000, 8000, 100_000])
def test_impossible_limits_are_refused(tmp_path, sotto, bandwidth):
    table = write_corpus(tmp_path, (16000,))
    with pytest.raises(ConfigError, match="Expected a bandwidth from 1000"):
        prepare(table, tmp_path / "s", bandwidth_hz=bandwidth)
    for more in ((), ("--dry-run",)):
        done = sotto(
            "data", "prepare", "table", table.file, "--out", tmp_path / "s", "--bandwidth-hz", bandwidth, *more
        )
        assert "Expected a bandwidth" in done.error
    assert not (tmp_path / "s").exists()


def test_preparing_says_where_a_store_is_narrow_or_mixed(tmp_path, sotto):
    notes = {}
    for name, rates in {"wide": (16000, 44100), "narrow": (8000, 8000), "mixed": (8000, 16000)}.items():
        (tmp_path / name).mkdir()
        table = write_corpus(tmp_path / name, rates)
        words = ("data", "prepare", "table", table.file, "--out", tmp_path / f"{name}-store", "--workers", 1)
        notes[name] = sotto(*words).stderr
    assert "Note" not in notes["wide"]
    assert "4 of 4 utterances have nothing above about 3," in notes["narrow"]
    assert "fail on wideband speech" in notes["narrow"]
    assert "2 of 4 utterances" in notes["mixed"]
    assert "the store is mixed" in notes["mixed"]


def test_what_a_model_has_heard_decides_what_is_said():
    wide, narrow = np.full(100, WIDE), np.full(100, 3900)
    assert difference(BandRange(WIDE, WIDE), wide, "files") is None
    assert difference(BandRange(3900, 3900), narrow, "files") is None
    assert "100 of 100 files have a bandwidth of about 3,900 Hz" in difference(BandRange(WIDE, WIDE), narrow, "files")
    assert "trained on 3,900 Hz" in difference(BandRange(3900, 3900), wide, "files")
    assert difference(BandRange(3400, WIDE), narrow, "files") is None  # mixed, or band-limited in training
    assert difference(BandRange(7000, WIDE), np.full(9, 6900), "files") is None
    assert difference(None, narrow, "files") is None
    assert difference(BandRange(WIDE, WIDE), [], "files") is None
    mostly = np.concatenate([wide, narrow[:4]])
    assert difference(BandRange(WIDE, WIDE), mostly, "files") is None  # a few do not matter
    assert "10 of 110" in difference(BandRange(WIDE, WIDE), np.concatenate([wide, narrow[:10]]), "files")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A wideband store of speakers a and b, and a narrow one of c and d."""
    folder = tmp_path_factory.mktemp("stores")
    for name, speakers, rate in (("wide", "ab", 16000), ("narrow", "cd", 8000)):
        lines = ["path\tspeaker\ttext"]
        for number in range(4):
            for speaker in speakers:
                path = write_audio(folder / name / f"{speaker}{number}.wav", 1.0, 7 * number + ord(speaker), rate)
                lines.append(f"{path.name}\t{speaker}\thello {'abcd'[number]}")
        (folder / name / "index.tsv").write_text("\n".join(lines) + "\n")
        prepare(Table(file=folder / name / "index.tsv"), folder / f"{name}-store")
    return folder


def central(sotto, stores, run, *settings):
    words = [
        "train",
        "central",
        "tiny",
        "--run",
        run,
        "--train",
        stores / "wide-store",
        "--dev",
        stores / "narrow-store",
    ]
    words += ["--workers", 1]
    chosen = (*SMALL_MODEL, "central.steps=1", "central.micro_batch_seconds=4", *settings)
    return sotto(*words, *(word for setting in chosen for word in ("--set", setting)))


def test_training_evaluating_and_transcribing_say_where_bandwidths_differ(tmp_path, stores, sotto):
    done = central(sotto, stores, tmp_path / "run")
    assert done.code == 0, done.stderr
    expected = "8 of 8 utterances of dev have a bandwidth of about 3,"
    assert done.stderr.count(expected) == 1
    model = tmp_path / "run" / "last" / "model.safetensors"
    with safe_open(model, "np") as file:
        assert json.loads(file.metadata()["sottovoce"])["training"] == {"bandwidth_hz": [WIDE, WIDE]}
    narrow, wide = (
        sotto("eval", tmp_path / "run", stores / f"{name}-store", "--workers", 1) for name in ("narrow", "wide")
    )
    assert "was trained on 8,000 Hz" in narrow.stderr
    assert "Note" not in wide.stderr
    narrow, wide = (
        sotto("transcribe", tmp_path / "run", *(stores / name).glob("*.wav")) for name in ("narrow", "wide")
    )
    assert "8 of 8 files have a bandwidth" in narrow.stderr
    assert "Note" not in wide.stderr


def test_a_model_that_is_prepared_for_both_is_not_warned_about(tmp_path, stores, sotto):
    done = central(sotto, stores, tmp_path / "run", "specaugment.bandlimit=0.5")
    assert done.code == 0, done.stderr
    assert "Note" not in done.stderr
    assert "Note" not in sotto("eval", tmp_path / "run", stores / "narrow-store", "--workers", 1).stderr


FEDERATED = (
    *SMALL_MODEL,
    *("participation.population=2000", "participation.cohort_size=2", "privacy.sigma_dp=1", "privacy.clip_norm=0.1"),
    "privacy.clipping=global",
    *("privacy.target_delta=1e-6", "federated.central_steps=1", "federated.local.steps=1", "batching.seconds=4"),
)


@pytest.mark.parametrize("source", ["secure", "seeded"])
def test_a_private_run_says_nothing_about_its_users_bandwidth(tmp_path, stores, sotto, source):
    words = ["train", "federated", "tiny", "--run", tmp_path / "run", "--workers", 1]
    words += ["--train", stores / "wide-store", "--dev", stores / "narrow-store"]
    chosen = (*FEDERATED, f"randomness.source={source}", f"privacy.ledger={stores / 'ledger'}")
    done = sotto(*words, *(word for setting in chosen for word in ("--set", setting)))
    assert done.code == 0, done.stderr
    assert ("utterances of dev have a bandwidth" in done.stderr) == (source == "seeded")  # simulated: with diagnostics
    with safe_open(tmp_path / "run" / "last" / "model.safetensors", "np") as file:
        assert "training" not in json.loads(file.metadata()["sottovoce"])


def test_golden_digests_do_not_depend_on_the_note(tmp_path, stores, sotto):
    assert central(sotto, stores, tmp_path / "run").code == 0
    path = tmp_path / "run" / "last" / "model.safetensors"
    plain = tmp_path / "plain.safetensors"
    plain.write_bytes(_model(path))
    assert plain.read_bytes() != path.read_bytes()
    assert _model(plain) == plain.read_bytes()


def test_a_damaged_note_is_no_note():
    good = {"training": {"bandwidth_hz": [3400, 8000]}}
    assert band_in(good) == BandRange(3400, 8000)
    for bad in ({}, {"training": 5}, {"training": {}}, {"training": {"bandwidth_hz": [8000, 3400]}}):
        assert band_in(bad) is None
    for band in ([1], [1, 2, 3], ["a", "b"], [0, 10], [10, 10**9], [True, True], None):
        assert band_in({"training": {"bandwidth_hz": band}}) is None


def test_a_joined_utterance_has_the_lowest_rate_of_its_files(tmp_path):
    soundfile.write(tmp_path / "a0.wav", voice(1, 1, 8000), 8000)
    soundfile.write(tmp_path / "a1.wav", voice(1, 2), 16000)
    (tmp_path / "index.tsv").write_text("path\tspeaker\ttext\na0.wav\ta\thello\na1.wav\ta\tyes\n")
    store = prepare(Table(file=tmp_path / "index.tsv"), tmp_path / "s", joining=Joining(least=2, most=2))
    (row,) = store.index().to_pylist()
    assert (row["source_rate_hz"], row["bandwidth_hz"]) == (8000, WIDE)
