"""Publishing: what leaves a run's folder is what the guarantee covers, and nothing else."""

import hashlib
import json
import os
import shutil

import pytest
from safetensors.numpy import load_file, save_file

import sottovoce as sv
from conftest import write_audio
from report_runs import NOISE, listed, make_data, make_run
from sottovoce.boundary import publish as publishing
from sottovoce.config import PUBLIC_SETTINGS, Config, public_part
from sottovoce.data.corpora import Table
from sottovoce.data.preparation import prepare
from sottovoce.errors import DataError, PrivacyError
from sottovoce.files import as_json
from sottovoce.model import model_file
from sottovoce.privacy.claims import open_account, statement
from sottovoce.privacy.run_files import MODEL_FILE, PUBLIC_METRICS, RUN_FILES
from sottovoce.runs import Run

DIM = (*NOISE, "privacy.clipping=dim", "federated.central_steps=3")
FILES = {"model.safetensors", "ledger.jsonl", "metrics.jsonl", "statement.md", "public_config.json", "manifest.json"}
# Sections of the configuration that stay private; a new section belongs here or into PUBLIC_SETTINGS.
PRIVATE_SECTIONS = {"about", "corpus", "joining", "features", "data", "central", "hardware"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A secure run with diagnostics, a seeded one, one without a guarantee, and a central one."""
    folder = tmp_path_factory.mktemp("runs")
    data = make_data(folder)
    secure = (*DIM, "randomness.source=secure", "privacy.diagnostics=true")
    make_run("federated", folder / "secure", data, secure)
    make_run("federated", folder / "seeded", data, DIM)
    make_run("federated", folder / "void", data, ("federated.central_steps=1", "randomness.source=secure"))
    make_run("central", folder / "central", data, ("central.steps=1",))
    return folder


@pytest.fixture
def secure(folder, tmp_path):
    """A copy of the secure run that a test may change."""
    return shutil.copytree(folder / "secure", tmp_path / "run", symlinks=True)


def test_an_export_holds_what_is_covered_and_nothing_else(folder, tmp_path):
    run, out = folder / "secure", tmp_path / "release"
    published = sv.publish(run, out)
    assert {path.name for path in out.iterdir()} == set(published.files) == FILES
    manifest = json.loads((out / "manifest.json").read_text())["sha256"]
    assert manifest.keys() == FILES - {"manifest.json"}
    for name, digest in manifest.items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    assert (out / "model.safetensors").read_bytes() == (run / "best" / "model.safetensors").read_bytes()
    assert (out / "ledger.jsonl").read_bytes() == (run / "ledger.jsonl").read_bytes()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert all(set(line) <= {"line", *PUBLIC_METRICS} for line in lines)
    assert (out / "statement.md").read_text().startswith("# Privacy statement of release\n")
    assert published.epsilon == Run(run).epsilon
    assert published.speakers_searched_for == 8
    assert sv.load(out).recogniser.flat.theta.numel() > 0
    assert b"ann" not in (out / "public_config.json").read_bytes()


def test_only_the_owner_can_change_an_export(folder, tmp_path):
    before = os.umask(0)
    try:
        out = sv.publish(folder / "secure", tmp_path / "out").folder
    finally:
        os.umask(before)
    assert {oct(path.stat().st_mode & 0o777) for path in out.iterdir()} == {"0o644"}
    assert oct(out.stat().st_mode & 0o777) == "0o755"


def test_a_line_that_a_killed_process_left_is_not_exported(secure, tmp_path):
    ledger = secure / "ledger.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + b'{"previous": "')
    sv.publish(secure, tmp_path / "out")
    assert (tmp_path / "out" / "ledger.jsonl").read_bytes() == whole


def test_the_last_model_where_it_is_asked_for_or_there_is_no_best(secure, tmp_path, sotto):
    outcome = sotto("privacy", "publish", secure, tmp_path / "last", "--model", "last", "--json")
    assert outcome.document["model"] == "last"
    assert (tmp_path / "last" / MODEL_FILE).read_bytes() == (secure / "last" / MODEL_FILE).read_bytes()
    (secure / "best").unlink()
    (tmp_path / "empty").mkdir()
    outcome = sotto("privacy", "publish", secure, tmp_path / "empty")
    assert outcome.code == 0
    assert "6 files with the last model. All of it may be public." in outcome.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("seeded", "is a simulation: whoever knows its seed can subtract the noise. Nothing is published."),
        ("void", "has no privacy guarantee: there is no noise (privacy.sigma_dp=0). Nothing is published."),
        ("central", "Give the folder of a federated run."),
    ],
)
def test_runs_that_nobody_should_publish_are_refused(folder, tmp_path, sotto, name, message):
    assert message in sotto("privacy", "publish", folder / name, tmp_path / "out").error
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_does_not_verify_is_refused(secure, tmp_path):
    ledger = secure / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:-2]))
    with pytest.raises(PrivacyError, match="cut"):
        sv.publish(secure, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(folder, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for place in ("out", "file"):
        with pytest.raises(DataError, match="exists and is not an empty folder"):
            sv.publish(folder / "secure", tmp_path / place)
    with pytest.raises(DataError, match="is not a folder"):
        sv.publish(folder / "secure", tmp_path / "nowhere" / "out")
    assert (tmp_path / "out" / "mine").read_text() == "mine"


def test_an_export_is_not_made_inside_the_run_or_in_place_of_the_current_folder(secure, tmp_path, monkeypatch, sotto):
    (tmp_path / "link").symlink_to(secure)
    for place in (secure, secure / "out", secure / "corpus" / ".." / "out", tmp_path / "link" / "out"):
        assert "is inside the run's folder, which is private. Choose another OUT." in (
            sotto("privacy", "publish", secure, place).error
        )
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert ". is the current folder, which cannot be replaced." in sotto("privacy", "publish", secure, ".").error


WORDS = ("secure", "gaussian", "delta", "epsilon", "speaker", "none", "hamming", "poisson", "privacy", "trust_ratios")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A store whose speakers are called like words of the program."""
    place = tmp_path_factory.mktemp("words")
    rows = [f"a.flac\t{word}\thello" for word in WORDS]
    write_audio(place / "a.flac", 1.0, 1)
    (place / "index.tsv").write_text("\n".join(["path\tspeaker\ttext", *rows]) + "\n")
    return prepare(Table(file=place / "index.tsv"), place / "store", workers=1).path


@pytest.fixture
def named_like_words(secure, words):
    """The secure run, with users who are called like words of the program."""
    document = json.loads((secure / "config.json").read_text())
    document["config"]["data"]["train"] = {"store": str(words), "speakers": None}
    (secure / "config.json").write_text(json.dumps(document))
    return secure


def test_speakers_may_be_called_like_words_of_the_program(named_like_words, tmp_path):
    assert sv.publish(named_like_words, tmp_path / "out").speakers_searched_for == 4 + len(WORDS)


@pytest.mark.parametrize(
    ("file", "leak", "name"),
    [
        ("more.json", {"wer": {"secure": 0.3}}, "secure"),
        ("more.json", {"noise": "gaussian"}, "gaussian"),
        ("metrics.jsonl", {"line": 1, "step": "delta"}, "delta"),
        ("metrics.jsonl", {"line": 1, "trust_ratios": {"speaker": 1}}, "speaker"),
        ("public_config.json", {"randomness": {"source": "gaussian"}}, "gaussian"),
        ("public_config.json", {"privacy": {"hamming": 1}}, "hamming"),
        ("ledger.jsonl", {"noise": "speaker"}, "speaker"),
    ],
)
def test_in_any_other_place_such_a_word_is_a_name(named_like_words, tmp_path, monkeypatch, file, leak, name):
    monkeypatch.setitem(publishing.EXPORTS, file, lambda _: json.dumps(leak).encode() + b"\n")
    with pytest.raises(PrivacyError, match=f"{file} would hold the speaker's name '{name}'"):
        sv.publish(named_like_words, tmp_path / "out")


@pytest.mark.parametrize(
    ("leak", "message"),
    [
        (lambda _: {"layers": {"not_private": 1}}, "the private key 'not_private'"),
        (lambda _: {"dev_wer": 0.5}, "the private key 'dev_wer'"),
        (lambda source: {"text": f"made from {source.run.config.setting('data.train.store')}"}, "the path"),
        (lambda source: {"text": f"see {source.run.path.absolute()}"}, "the path"),
        (lambda _: {"text": "/srv/voices"}, "the path '/srv/'"),
        (lambda _: {"wer": {"ann": 0.3}}, "the speaker's name 'ann'"),
        (lambda _: {"list": ["nobody, gus."]}, "the speaker's name 'gus'"),
    ],
)
def test_what_slips_into_an_export_stops_it(folder, tmp_path, monkeypatch, leak, message):
    monkeypatch.setitem(publishing.EXPORTS, "more.json", lambda source: as_json(leak(source)))
    with pytest.raises(PrivacyError, match=f"more.json would hold {message}.*Nothing was published"):
        sv.publish(folder / "secure", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []  # nothing is left, not even a temporary folder


def test_a_model_that_says_more_than_what_it_is_is_refused(secure, tmp_path):
    model = (secure / "best" / MODEL_FILE).resolve()
    description = json.dumps({"model": {}, "languages": [], "tokens": [], "features": {}, "users": 4})
    save_file(load_file(model), model, {"sottovoce": description})
    source = publishing.Source(Run(secure), open_account(secure), "best")
    with pytest.raises(PrivacyError, match="holds more than a model"):
        publishing.write_public_files(source, tmp_path)
    save_file(load_file(model), model, {"sottovoce": "[" * 200_000})
    with pytest.raises(DataError, match="is not a whole model"):
        publishing.write_public_files(source, tmp_path)
    assert MODEL_FILE == model_file.MODEL_FILE


def test_a_run_of_an_earlier_version_gives_away_no_more(secure, tmp_path):
    lines = list(Run(secure).log.lines())
    (secure / "private.jsonl").unlink()
    (secure / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sv.publish(secure, tmp_path / "out")
    exported = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert len(exported) == 4
    assert all(set(line) <= {"line", *PUBLIC_METRICS} for line in exported)


def test_without_its_data_a_run_is_not_searched_for_names(secure, tmp_path, sotto):
    document = json.loads((secure / "config.json").read_text())
    document["config"]["data"]["train"]["store"] = str(tmp_path / "gone")
    (secure / "config.json").write_text(json.dumps(document))
    outcome = sotto("privacy", "publish", secure, tmp_path / "out", "--json")
    assert outcome.document["speakers_searched_for"] is None
    assert "not searched for speakers' names" in outcome.stderr


def test_every_section_and_key_of_the_configuration_has_a_side():
    assert set(Config.model_fields) == {*PUBLIC_SETTINGS, *PRIVATE_SECTIONS}
    tree = Config().model_dump(mode="json")
    added = {**tree, "invented": 1, "privacy": {**tree["privacy"], "invented": "/srv/ledger"}}
    assert public_part(added) == public_part(tree)
    for section, keys in PUBLIC_SETTINGS.items():
        if keys is not None:
            assert set(keys) <= set(tree[section]), section
    assert not {*PRIVATE_SECTIONS} & set(public_part(tree))


@pytest.mark.parametrize("name", ["secure", "seeded", "void"])
def test_every_file_of_a_run_is_published_covered_or_named_as_private(folder, name):
    run = folder / name
    text = statement(open_account(run))
    private = text.partition("## What is not covered")[2]
    for path in run.rglob("*"):
        place = path.relative_to(run)
        if path.is_dir() or path.is_symlink() or place.parts[0] in ("last", "best"):
            continue
        file = listed(place)
        assert file is not None, f"{place} is on no side of the boundary"
        if file.side == "private" and name != "void":
            assert f"{file.name} ({file.content})" in private
    if name != "void":
        for words in ("evaluation.json", "What training prints", "The list of speakers", "private.jsonl", "train.txt"):
            assert words in private
    exported = {file.name for file in RUN_FILES if file.side == "published"}
    assert exported == {"ledger.jsonl", "metrics.jsonl", "model.safetensors"} <= set(publishing.EXPORTS)
    assert not {file.name for file in RUN_FILES if file.side == "private"} & set(publishing.EXPORTS)
