"""Benchmarks: parts, keys, runs that are not repeated, killed runs, results beside the paper's."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from sottovoce.bench.bench_costs import row_costs
from sottovoce.bench.benchmark import run_bench
from sottovoce.bench.corpora import choose, find_part, prepare_parts
from sottovoce.bench.document_folder import DocumentFolder
from sottovoce.bench.plan import BenchRun, configure, wanted_parts, with_models
from sottovoce.bench.preset import CORPORA, Part, bench_names, load_bench
from sottovoce.bench.published import document_name, joined_with_older, publish, read_published
from sottovoce.bench.result_tables import markdown, table
from sottovoce.bench.results import claimed, collect, require_results, seeds_that_ran
from sottovoce.bench.row_hashes import described_hash
from sottovoce.bench.run import is_done
from sottovoce.cli.bench_results import corpora_option, keep_document, section_name, summary_name, unreadable_corpora
from sottovoce.config import Layer
from sottovoce.data.store import Store
from sottovoce.errors import ConfigError, DataError, PrivacyError
from sottovoce.estimate.devices import A100
from sottovoce.files import sha256_of
from sottovoce.model.model_file import MODEL_FILE
from sottovoce.privacy.accounting import Event, pld, rdp, rounded_up, short_exponents
from sottovoce.processes import no_progress
from sottovoce.runs.folder import Run
from trainings import run_here

TINY = """
about: a benchmark for tests
source: "nowhere"
finding: nothing
sizes:
  paper:
    preset: quick
    corpora: {voices: {kind: synthetic, speakers: 24}}
    parts: {all: {corpus: voices}}
    rows: [{name: printed, train: all, paper: {dev: 12.5, test: 14.0}}]
  mini:
    preset: quick
    set: [central.steps=3, central.micro_batch_seconds=10, central.micro_batches=2, federated.central_steps=2,
          central.evaluate_every=1, federated.evaluate_every=2, participation.population=14,
          participation.cohort_size=4, batching.seconds=10]
    corpora: {voices: {kind: synthetic, speakers: 20, domain: both, vocabulary: 12, mean_utterances: 2,
                       max_utterances: 3}}
    parts:
      home: {corpus: voices, where: {domain: clean}, speakers: ":2"}
      clean: {corpus: voices, where: {domain: clean}, speakers: "2:"}
      dev: {corpus: voices, where: {domain: noisy}, speakers: ":2"}
      test: {corpus: voices, where: {domain: noisy}, speakers: "2:40%"}
      users: {corpus: voices, where: {domain: noisy}, speakers: "40%:"}
    models: {seed-model: {name: seed-model, kind: central, train: clean}}
    train: users
    dev: dev
    test: test
    rows:
      - {name: seed, is: seed-model, also: [home]}
      - {name: noise, seed_model: seed-model, like: printed}
      - {name: none, seed_model: seed-model, set: [privacy.sigma_dp=0, privacy.clipping=none]}
    claims: [{row: noise, cohort_size: 4000, population: 14000}]
    effects:
      - {name: noise hurts, contrast: {noise: 1, none: -1}}
      - {name: training helps, contrast: {seed: 1, none: -1}, scale: relative, on: dev}
    figures: [{title: WER over noise, x: noise, lines: {all: {none: 0, noise: 1}}}]
"""


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "tiny.yaml"
    path.write_text(TINY)
    return str(path)


@pytest.fixture(scope="module")
def out(tmp_path_factory, preset):
    """Everything trained once, by the command."""
    folder = tmp_path_factory.mktemp("out")
    done = sotto(
        "bench", "run", preset, "--out", folder, "--results", folder / "results.md", "--workers", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # given back at the end
    (folder / "shown.json").write_text(done.stdout)
    return folder


def sotto(*words):
    return run_here([*map(str, words)])


def jobs_of(preset, out, seeds=1):
    run = BenchRun.choose(preset, seeds=seeds, out=out)
    for part in run.size.parts:
        find_part(run.size, part, out, make=True)
    return {job.row.name: job for job in run.jobs()}


def test_parts_are_disjoint_slices_of_speakers_in_an_order_of_their_own(out, preset):
    size = load_bench(preset).size("mini")
    parts = prepare_parts(size, size.parts, out, 1, no_progress)
    names = {name: set(part.speakers.read_text().split()) for name, part in parts.items()}
    assert {name: len(found) for name, found in names.items()} == {
        "home": 2,
        "clean": 8,
        "dev": 2,
        "test": 2,
        "users": 6,
    }
    assert len(set().union(*names.values())) == 20
    assert sorted(names["dev"]) != [f"en-noisy-{number:05d}" for number in range(2)]  # drawn, not the first ones


def test_a_part_without_speakers_is_refused(out, preset):
    size = load_bench(preset).size("mini")
    store = Store.open(next(iter(prepare_parts(size, ["dev"], out, 1, no_progress).values())).store)
    with pytest.raises(DataError, match="no speaker"):
        choose(store, Part(corpus="voices", speakers="5:5"))
    with pytest.raises(ConfigError, match="at most"):
        choose(store, Part(corpus="voices", speakers="200:"))


def test_models_come_before_the_rows_that_start_from_them_and_only_once(preset):
    size = load_bench(preset).size("mini")
    assert [row.name for row in with_models(size, size.rows)] == ["seed-model", "seed", "noise", "none"]
    assert wanted_parts(size, size.rows[1:]) == {"clean", "dev", "test", "users"}


def test_a_run_is_known_by_its_content(out, preset, tmp_path):
    jobs = jobs_of(preset, out)
    assert jobs["seed"].key == jobs["seed-model"].key
    assert len({job.key for job in jobs.values()}) == 3
    other = tmp_path / "other.yaml"
    renamed = TINY.replace("name: noise,", "name: renamed,").replace("{row: noise", "{row: renamed")
    other.write_text(renamed.replace("{noise: 1", "{renamed: 1").replace("noise: 1}", "renamed: 1}"))
    assert jobs_of(str(other), out)["renamed"].key == jobs["noise"].key
    other = tmp_path / "often.yaml"
    other.write_text(TINY.replace("central.steps=3", "central.steps=3, federated.checkpoint_every=1"))
    assert jobs_of(str(other), out)["noise"].key == jobs["noise"].key
    other = tmp_path / "longer.yaml"
    other.write_text(TINY.replace("central.steps=3", "central.steps=4"))
    changed = jobs_of(str(other), out)
    assert changed["noise"].key != jobs["noise"].key  # its seed model is another one
    seeded = replace(BenchRun.choose(preset, out=out), seeds=[1]).jobs()
    assert not {job.key for job in seeded} & {job.key for job in jobs.values()}


def _written(out):
    """Return when every file of the runs was written, but for the note for which row a run was last used."""
    files = (path for path in (out / "runs").rglob("*") if path.is_file() and path.name != "row.json")
    return {path: path.stat().st_mtime_ns for path in files}


def test_what_has_run_is_not_run_again(out, preset):
    jobs = jobs_of(preset, out)
    assert all(map(is_done, jobs.values()))
    before = _written(out)
    again = sotto("bench", "run", preset, "--out", out, "--workers", "1")
    assert again.returncode == 0
    assert "0 of 3 runs are left" in again.stderr
    assert _written(out) == before


def test_a_python_program_gets_the_results_of_what_has_run(out, preset):
    said = []
    results = run_bench(BenchRun.choose(preset, rows=["noise", "none"], out=out), say=said.append)
    assert said == [f"{preset}: 0 of 3 runs are left to train."]
    noise, none = results
    assert set(noise.wer) == {"dev", "test"}
    assert noise.epsilon.tightest == min(noise.epsilon.rdp, noise.epsilon.pld)
    assert none.epsilon.tightest is None


def test_nobody_whom_a_seed_model_has_heard_is_evaluated_on(out, preset, tmp_path):
    other = tmp_path / "leaky.yaml"
    other.write_text(TINY.replace("kind: central, train: clean}", "kind: central, train: test, test: home}"))
    size = load_bench(str(other)).size("mini")
    prepare_parts(size, size.parts, out, 1, no_progress)
    with pytest.raises(DataError, match="noise: test and test share"):
        BenchRun.choose(str(other), rows=["noise"], out=out).jobs()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("like: printed", "like: misprinted"), "Did you mean 'printed'?"),
        (("cohort_size: 4000,", "cohort_size: 40000,"), "cohort"),
        (("{row: noise,", "{row: none,"), "There is nothing to claim of the row 'none'"),
    ],
)
def test_what_could_not_be_shown_is_refused_before_any_work(tmp_path, change, said):
    other = tmp_path / "other.yaml"
    other.write_text(TINY.replace(*change))
    run = BenchRun.choose(str(other), out=tmp_path)
    with pytest.raises((ConfigError, PrivacyError), match=re.escape(said)):
        require_results(run)


def test_other_speakers_under_the_same_name_are_evaluated_anew(out, preset, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(TINY.replace('speakers: "2:40%"', 'speakers: "2:3"'))
    jobs = jobs_of(str(other), out)
    assert jobs["noise"].key == jobs_of(preset, out)["noise"].key
    assert not is_done(jobs["noise"])
    shown = collect(BenchRun.choose(str(other), out=out))
    assert all("test" not in one.wer for one in shown)


def test_speakers_of_training_are_not_evaluated_on(out, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(TINY.replace("    test: test\n", "    test: users\n"))
    with pytest.raises(DataError, match="share"):
        jobs_of(str(other), out)


def test_rows_whose_corpus_is_missing_do_not_hide_the_others(out, tmp_path):
    other = tmp_path / "other.yaml"
    voices = "corpora: {voices: {kind: synthetic, speakers: 20,"
    more = "corpora: {missing: {kind: synthetic, speakers: 4}, voices: {kind: synthetic, speakers: 20,"
    other.write_text(
        TINY.replace(voices, more)
        .replace("      home: {corpus", "      nobody: {corpus: missing}\n      home: {corpus")
        .replace("      - {name: none,", "      - {name: later, train: nobody}\n      - {name: none,")
    )
    shown = {one.row.name: one for one in collect(BenchRun.choose(str(other), out=out))}
    assert "test" in shown["noise"].wer
    assert not shown["later"].wer


def test_without_a_guarantee_there_is_no_claim(preset):
    size = load_bench(preset).size("mini")
    config = configure(size, size.rows[2]).config
    with pytest.raises(PrivacyError, match="nothing to claim of the row 'noise'"):
        claimed(config, size.claims[0])
    weighted = [Layer({"participation": {"weight": "seconds", "weight_total": 100}})]
    row = size.rows[1].model_copy(update={"settings": (*size.rows[1].settings, *weighted)})
    with pytest.raises(PrivacyError, match="The row 'noise' weighs its users"):
        claimed(configure(size, row).config, size.claims[0])
    everyone = size.rows[1].model_copy(update={"settings": (Layer({"participation": {"sampling": "fixed"}}),)})
    fixed = claimed(configure(size, everyone).config, size.claims[0])
    assert fixed.epsilon_rdp > claimed(configure(size, size.rows[1]).config, size.claims[0]).epsilon_rdp


def test_ours_and_the_papers_stand_side_by_side(out, preset):
    document = json.loads((out / "shown.json").read_text())
    rows = {row["row"]: row for row in document["rows"]}
    assert rows["noise"]["paper"] == {"dev": 12.5, "test": 14.0}
    assert rows["seed"]["paper"] == {}
    assert set(rows["seed"]["ours"]) == {"dev", "test", "home"}
    assert rows["seed"]["simulated"] is None
    assert rows["none"]["simulated"]["epsilon_rdp"] is None
    assert rows["noise"]["simulated"]["epsilon_rdp"] > 0
    text = markdown(collect(BenchRun.choose(preset, out=out)))
    assert text in (out / "results.md").read_text()
    assert "12.5" in text
    assert "seed, on home: ours" in (out / "results.md").read_text()


def test_a_claim_is_the_same_noise_at_other_sizes(preset):
    size = load_bench(preset).size("mini")
    found = claimed(configure(size, size.rows[1]).config, size.claims[0])
    spent = {Event(0.001 * 4000, 4000 / 14000): 2}
    assert found.epsilon_rdp == rdp(spent, 1e-9).epsilon
    assert found.epsilon_pld == pld(spent, 1e-9).epsilon


def test_a_claim_without_a_tight_epsilon_is_shown_by_rdp(tmp_path):
    other = tmp_path / "long.yaml"  # so little noise and so many releases that PLD's grid would be too large
    sizes = "cohort_size: 1, population: 2, central_steps: 200000}"
    other.write_text(TINY.replace("cohort_size: 4000, population: 14000}", sizes))
    run = BenchRun.choose(str(other), out=tmp_path)
    claim = claimed(configure(run.size, run.rows[1]).config, run.size.claims[0])
    lines = table(collect(run))
    assert claim.epsilon_pld is None
    assert lines[1][5] == f"{short_exponents(rounded_up(claim.epsilon_rdp))} at 1 of 2"


def test_without_runs_only_the_papers_numbers_are_shown(preset, tmp_path):
    lines = table(collect(BenchRun.choose(preset, out=tmp_path)))
    assert [line[1:3] for line in lines] == [["-", "-"]] * 3
    assert lines[1][-2:] == ["12.5", "14.0"]


def test_a_killed_benchmark_goes_on_and_ends_with_the_same_bits(out, preset, tmp_path):
    command = [sys.executable, "-m", "sottovoce", "bench", "run", preset, "--out", str(tmp_path), "--workers", "1"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "runs").glob("*/private.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert sotto("bench", "run", preset, "--out", tmp_path, "--workers", "1").returncode == 0
    for job in jobs_of(preset, out).values():
        one, other = (folder / "runs" / job.folder.name for folder in (out, tmp_path))
        assert sha256_of(other / "last" / MODEL_FILE) == sha256_of(one / "last" / MODEL_FILE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("is: seed-model", "is: seed-modle"), "needs the model 'seed-modle'"),
        (("train: users", "train: user"), "needs the part 'user'"),
        (("{row: noise,", "{row: nose,"), "a claim is about the row 'nose'"),
        (("name: none", "name: noise"), "two rows or models are named 'noise'"),
        (
            ("corpus: voices, where: {domain: clean}", "corpus: voice, where: {domain: clean}"),
            "needs the corpus 'voice'",
        ),
        (("sizes:", "size:"), "no `sizes`"),
        (("is: seed-model, also", "is: noise, seed_model: none, also"), "is 'noise' as it is"),
        (("kind: central, train: clean}", "kind: central, train: clean, seed_model: seed-model}"), "needs itself"),
        (("{name: seed-model,", "{name: seed-modell,"), "has another name inside"),
        (("{row: noise,", "{row: seed,"), "which is not federated"),
        (("{noise: 1, none: -1}", "{noise: 1, nothing: -1}"), "needs the row 'nothing'"),
        (("{noise: 1, none: -1}", "{noise: 1, none: -0.9}"), "do not sum to 0"),
        (("{noise: 1, none: -1}", "{noise: 1, none: -1, seed: 0}"), "weight that is 0"),
        (("{noise: 1, none: -1}", "{}"), "contrast"),
        (("name: training helps", "name: noise hurts"), "two effects are named 'noise hurts'"),
        (("on: dev}", "on: home}"), "decided on 'home', on which the row 'none' is not evaluated"),
        (("{none: 0, noise: 1}", "{none: 0, noises: 1}"), "the figure 'WER over noise' needs the row 'noises'"),
        (("{none: 0, noise: 1}}", "{none: 0, noise: 1}}, log: true"), "not a number above 0"),
        (("{none: 0, noise: 1}", "{none: 0, noise: .inf}"), "a place that is not finite"),
        (("{none: 0, noise: 1}", "{}"), "no rows in its line 'all'"),
        (("privacy.sigma_dp=0, privacy.clipping=none", ""), "'noise hurts' are one and the same run"),
        (("{none: 0, noise: 1}", "{none: 0, noise: much}"), "mixes numbers and texts"),
        (("preset: quick\n    set:", "set:"), "preset"),
        (("about: a benchmark for tests", "about: [1]"), "about"),
        (('"2:40%"', '"2-4"'), "speakers"),
        (
            ("privacy.sigma_dp=0, privacy", "privacy.sigma_dp, privacy"),
            "expected --set key=value, not 'privacy.sigma_dp'",
        ),
    ],
)
def test_a_preset_that_contradicts_itself_is_refused_in_one_line(tmp_path, change, message):
    path = tmp_path / "bad.yaml"
    path.write_text(TINY.replace(*change))
    with pytest.raises(ConfigError, match=message):
        load_bench(str(path))


def test_bad_names_get_a_hint(preset):
    found = sotto("bench", "run", "dp-result")
    assert found.returncode == 1
    assert "Did you mean 'dp-results'?" in found.stderr
    assert "Traceback" not in found.stderr
    with pytest.raises(ConfigError, match="Did you mean 'noise'"):
        load_bench(preset).size("mini").row("nois")
    with pytest.raises(ConfigError, match="no benchmark file"):
        load_bench("no-such-file.yaml")


def test_a_table_in_a_file_is_whole(preset, tmp_path):
    refused = sotto("bench", "run", preset, "--out", tmp_path, "--results", tmp_path / "results.md", "--no-wait")
    assert refused.returncode == 1
    assert "leave out --rows, --part, --published and --no-wait" in refused.stderr


def test_sizes_and_files_named_like_a_benchmark_have_sections_of_their_own(preset, tmp_path):
    mini, paper = (BenchRun.choose(preset, size=size, out=tmp_path) for size in ("mini", "paper"))
    assert (section_name(mini), section_name(paper)) == ("bench tiny.yaml", "bench tiny.yaml --size paper")
    assert summary_name("mini") == "bench summary"
    assert document_name("./demo.yaml") == document_name("demo.yaml") != document_name("demo")


def test_corpora_that_are_not_there_are_named(preset, tmp_path):
    found = sotto("bench", "show", preset, "--out", tmp_path, "--corpora", tmp_path / "nowhere")
    assert f"with corpora in {tmp_path / 'nowhere'}: voices." in found.stderr.replace("\n", "")
    run = BenchRun.choose("real-speech", out=tmp_path, corpora=tmp_path / "nowhere")
    missing = unreadable_corpora(run)
    assert list(missing) == ["an4", "digits"]
    assert "index.tsv does not exist" in str(missing["an4"])
    assert corpora_option(run.corpora) == f" --corpora {tmp_path / 'nowhere'}"
    assert corpora_option(CORPORA) == ""


def test_every_benchmark_is_listed():
    listed = json.loads(sotto("bench", "list", "--json").stdout)
    assert sorted(listed) == bench_names()
    assert len(listed) == 26  # the paper's 21 results, the demo, and four of our own


def test_documents_show_what_the_runs_show(out, preset, tmp_path):
    wanted = json.loads(sotto("bench", "show", preset, "--out", out, "--json").stdout)
    assert wanted["rows"][0]["ours"]["test"]["over"] == "speakers"
    assert [effect["verdict"] for effect in wanted["effects"]] == ["one seed", "one seed"]
    assert wanted["reproduced"] == "cannot tell"
    assert sotto("bench", "export", preset, "--out", out, "--to", tmp_path).returncode == 0
    for folder in (tmp_path, out / "results"):  # `run` keeps it, too
        shown = json.loads(sotto("bench", "show", preset, "--from", folder, "--json").stdout)
        for row in wanted["rows"]:
            row["runs"] = []  # they are elsewhere
        assert shown == wanted
    text = (tmp_path / "tiny.yaml-mini.json").read_text()
    assert "en-noisy" not in text  # no names of speakers
    assert str(out) not in text
    assert preset not in text
    kept = out / "results" / "tiny.yaml-mini.json"
    assert kept.stat().st_mode & 0o777 == 0o600  # it holds error rates of single speakers


def document_of(out):
    return json.loads((out / "results" / "tiny.yaml-mini.json").read_text())


def with_seed(document, seed):
    rows = [{**row, "runs": [{**row["runs"][0], "seed": seed, "key": f"{seed}"}]} for row in document["rows"]]
    return {**document, "rows": rows}


def test_seeds_after_those_that_were_trained_elsewhere_are_found(monkeypatch):
    for ran, wanted in (({3, 4}, [3, 4]), ({0, 1, 4}, [0, 1, 4]), (set(), [])):
        monkeypatch.setattr("sottovoce.bench.results._has_run", lambda _, seed, ran=ran: seed in ran)
        assert seeds_that_ran(None) == wanted


def test_documents_of_several_machines_are_read_as_one(out, preset, tmp_path):
    document = document_of(out)
    for seed in (0, 1):
        (tmp_path / str(seed)).mkdir()
        (tmp_path / str(seed) / "tiny.yaml-mini.json").write_text(json.dumps(with_seed(document, seed)))
    joined = read_published(tmp_path)["tiny.yaml", "mini"]
    assert [[run.seed for run in row.runs] for row in joined.rows] == [[0, 1]] * 3
    shown = json.loads(sotto("bench", "show", preset, "--from", tmp_path, "--seeds", "2", "--json").stdout)
    assert shown["rows"][0]["ours"]["dev"]["over"] == "speakers and seeds"
    page = tmp_path / "page.html"
    assert sotto("bench", "show", preset, "--from", tmp_path, "--seeds", "2", "--report", page).returncode == 0
    assert "wer-by-row" in page.read_text()
    assert {one.suffix for one in (tmp_path / "page_files").iterdir()} == {".png", ".csv"}
    for key, said in (("code", "algorithm"), ("described", "preset"), ("content", "set of data")):
        other = with_seed(document, 2)
        other["rows"][1] |= {key: "another", "content": "another"}
        (tmp_path / "other.json").write_text(json.dumps(other))
        with pytest.raises(DataError, match=f"the row 'noise' of another {said} than"):
            read_published(tmp_path)
    (tmp_path / "other.json").write_text(json.dumps({**document, "form": "sottovoce-bench-1"}))
    with pytest.raises(DataError, match="Export it again"):
        read_published(tmp_path)
    with pytest.raises(DataError, match="There is no folder"):
        read_published(tmp_path / "missing")


def damaged_documents(document):
    """Yield texts of documents that cannot be right."""
    text = json.dumps(document)
    yield text[:-9]
    yield "9" * 5000
    parts = document["words"]
    for words in ({}, {part: [0] * len(own) for part, own in parts.items()}, {part: [2**63] * 2 for part in parts}):
        yield json.dumps({**document, "words": words})
    yield json.dumps({**document, "rows": document["rows"] * 2})
    row = document["rows"][1]
    for change in ({"runs": row["runs"] * 2}, {"cohort_size": float("nan")}, {"population": 0}):
        yield json.dumps({**document, "rows": [{**row, **change}]})
    run, machine = row["runs"][0], row["runs"][0]["machines"][0]
    for change in (
        {"machines": [{**machine, "cpu": "a\nb"}]},
        {"machines": [{**machine, "cpu": "<script>"}]},
        {"started_from": {"key": "a b", "sha256": "0" * 64}},
        {"started_from": {"key": "a", "sha256": "x"}},
    ):
        yield json.dumps({**document, "rows": [{**row, "runs": [{**run, **change}]}]})


def test_a_damaged_document_is_refused_in_one_line(out, tmp_path):
    for text in damaged_documents(document_of(out)):
        (tmp_path / "some.json").write_text(text)
        with pytest.raises(DataError, match=r"some.json is damaged. Export it again, or remove it."):
            read_published(tmp_path)


def test_documents_of_another_preset_or_algorithm_are_not_shown(out, preset, tmp_path, monkeypatch):
    folder = out / "results"
    changed = tmp_path / "tiny.yaml"  # another file of the same name
    changed.write_text(TINY.replace("privacy.sigma_dp=0, ", "privacy.sigma_dp=0, federated.central_steps=1, "))
    found = sotto("bench", "show", changed, "--from", folder, "--json")
    assert [bool(row["ours"]) for row in json.loads(found.stdout)["rows"]] == [True, True, False]
    assert "its document is of another algorithm or preset; left out: none." in found.stderr
    changed.write_text(TINY.replace("speakers: 20,", "speakers: 21,"))
    run = BenchRun.choose(str(changed), out=tmp_path)
    assert [described_hash(run, row) for row in run.rows] != [row["described"] for row in document_of(out)["rows"]]
    monkeypatch.setattr("sottovoce.bench.code_version.ALGORITHM", -1)
    older = BenchRun.choose(preset, out=tmp_path)
    said = []
    shown = DocumentFolder(folder).results(older, said.append)
    assert not any(one.runs for one in shown)
    assert said == [f"{preset}: its document is of another algorithm or preset; left out: seed, noise, none."]


def test_an_export_keeps_the_rows_and_seeds_of_the_document_that_is_there(out, preset, tmp_path):
    document, path = document_of(out), tmp_path / "tiny.yaml-mini.json"
    other = with_seed(document, 1)
    gone = {**document["rows"][0], "row": "gone"}
    path.write_text(json.dumps({**other, "rows": [gone, *other["rows"][1:]], "version": "0"}))
    exported = sotto("bench", "export", preset, "--out", out, "--to", tmp_path)
    assert exported.returncode == 0
    assert "rows of another algorithm or preset are no longer in it: gone." in exported.stderr
    joined = json.loads(path.read_text())
    assert [row["row"] for row in joined["rows"]] == ["seed", "noise", "none"]
    assert [[run["seed"] for run in row["runs"]] for row in joined["rows"]] == [[0], [0, 1], [0, 1]]
    assert joined["version"] == document["version"]
    assert seeds_that_ran(BenchRun.choose(preset, seeds=3, out=out)) == [0]
    assert seeds_that_ran(BenchRun.choose(preset, out=tmp_path)) == []


def unlike_documents(document):
    """Yield documents that an export may not join, with the reason that is said."""
    rows = document["rows"]
    yield (
        {**document, "rows": [{**row, "content": "0" * 64} for row in rows]},
        "has the row 'seed' of another set of data",
    )
    yield {**document, "bench": "other"}, "holds results of other (mini)"
    yield {**document, "form": "sottovoce-bench-3"}, "is in the form 'sottovoce-bench-3'"
    text = json.dumps(document).replace('"part": "dev"', '"part": "old"').replace('"dev": [', '"old": [')
    yield json.loads(text), "on parts of other names"


def test_an_export_replaces_no_document_of_something_else(out, preset, tmp_path):
    path, run = tmp_path / "tiny.yaml-mini.json", BenchRun.choose(preset, out=out)
    document = publish(run, collect(run))
    for unlike, said in unlike_documents(document_of(out)):
        path.write_text(json.dumps(unlike))
        with pytest.raises(DataError, match=re.escape(said)):
            joined_with_older(run, document, tmp_path)
    refused = sotto("bench", "export", preset, "--out", out, "--to", tmp_path)
    assert refused.returncode == 1
    assert json.loads(path.read_text()) == unlike


def test_what_a_folder_keeps_follows_its_runs(out, preset):
    run, path = BenchRun.choose(preset, out=out), out / "results" / "tiny.yaml-mini.json"
    kept = path.read_bytes()
    for unlike, _ in unlike_documents(document_of(out)):
        path.write_text(json.dumps(unlike))
        keep_document(run)
        assert path.read_bytes() == kept


def test_documents_say_where_rows_were_trained_and_from_which_model(out, preset):
    published = DocumentFolder(out / "results").results(BenchRun.choose(preset, out=out))
    for run, ran in zip(collect(BenchRun.choose(preset, out=out)), published, strict=True):
        assert run.machines == ran.machines != []
        assert [one.started_from for one in run.runs] == [one.started_from for one in ran.runs]
    assert published[1].runs[0].started_from is not None


def test_a_row_that_another_benchmark_has_run_is_shown_in_both(out, preset, tmp_path):
    run, document = BenchRun.choose(preset, seeds=2, out=tmp_path), document_of(out)
    rows = [{**row, "row": f"{row['row']}, elsewhere"} for row in with_seed(document, 1)["rows"]]
    other = {**document, "bench": "other", "rows": rows}

    def seeds_with(other):
        (tmp_path / "other.json").write_text(json.dumps(other))
        return [[one.seed for one in row.runs] for row in DocumentFolder(tmp_path).results(run)]

    assert seeds_with(other) == [[1]] * 3
    (tmp_path / "own.json").write_text(json.dumps(document))
    assert seeds_with(other) == [[0, 1]] * 3
    (of_other_data, _), *_, (on_other_parts, _) = unlike_documents(other)
    assert seeds_with(of_other_data) == seeds_with(on_other_parts) == [[0]] * 3


def test_runs_that_documents_have_are_left_out(out, preset, tmp_path):
    run, path = BenchRun.choose(preset, seeds=2, out=out), tmp_path / "some.json"
    path.write_text(json.dumps(document_of(out)))
    left = DocumentFolder(tmp_path).left_of(run, run.jobs())
    assert {job.label for job in left} == {"seed, seed 1", "seed-model, seed 1", "noise, seed 1", "none, seed 1"}
    plan = sotto("bench", "run", preset, "--out", tmp_path / "new", "--published", tmp_path, "--dry-run", "--json")
    assert json.loads(plan.stdout)["runs"] == []  # nothing is prepared there, but all of it is known
    document = document_of(out)
    document["rows"][1]["runs"][0]["key"] = "of other data"
    path.write_text(json.dumps(document))
    left = DocumentFolder(tmp_path).left_of(replace(run, seeds=[0]), replace(run, seeds=[0]).jobs())
    assert {job.label for job in left} >= {"seed-model", "noise"}  # with the model that it starts from
    assert "none" not in {job.label for job in left}


@pytest.mark.slow
def test_the_page_of_a_benchmark_has_its_effects(out, preset, tmp_path):
    page = tmp_path / "page.html"
    assert sotto("bench", "run", preset, "--out", out, "--workers", "1", "--report", page).returncode == 0
    assert "one seed: " in page.read_text()
    files = {path.name for path in (tmp_path / "page_files").iterdir()}
    assert {"wer-by-row.png", "wer-by-row.csv", "effects.png", "effects.csv", "series-1.png"} <= files


def test_nothing_is_exported_where_nothing_has_run(preset, tmp_path):
    refused = sotto("bench", "export", preset, "--out", tmp_path / "out", "--to", tmp_path / "to")
    assert refused.returncode == 1
    assert "No row of" in refused.stderr
    assert not (tmp_path / "to").exists()


def test_the_best_model_on_dev_is_evaluated_too(out, preset):
    run = BenchRun.choose(preset, out=out)
    jobs = {job.row.name: job for job in run.jobs()}
    assert jobs["seed"].resolved.config.data.dev is not None  # central training has a dev set
    folder = jobs["seed"].folder
    evaluated = [line["step"] for line in Run(folder).log.lines() if "dev_wer" in line]
    assert evaluated == [1, 2, 3]
    assert Run(folder).best_checkpoint.step < 3  # so short a training makes nothing but errors, at every step
    seed, *others = collect(run)
    assert (seed.runs[0].best_steps, seed.runs[0].steps) == (Run(folder).best_checkpoint.step, 3)
    for result in (seed, *others):
        assert set(result.best_wer) == set(result.wer)
        assert result.best_wer["dev"].value <= result.wer["dev"].value


@pytest.mark.parametrize(
    ("option", "place", "said"),
    [("--results", "missing/results.md", "cannot be written"), ("--report", ".", "is a folder")],
)
def test_where_results_go_is_looked_at_before_any_work(preset, tmp_path, option, place, said):
    refused = sotto("bench", "run", preset, "--out", tmp_path / "out", option, tmp_path / place)
    assert refused.returncode != 0
    assert said in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "size"), [(name, size) for name in bench_names() for size in load_bench(name).sizes])
def test_everything_is_evaluated_in_the_language_it_was_trained_in(name, size):
    found = load_bench(name).size(size)
    for row in with_models(found, found.rows):
        origin = row if row.same is None else found.row(row.same)
        parts = {*found.part_of(row).values(), found.part_of(origin)["train"], *row.also} - {None}
        corpora = [found.corpora[found.parts[part].corpus] for part in parts]
        languages = {getattr(one, "languages", getattr(one, "language", "en")) for one in corpora}
        assert len(languages) == 1, row.name


@pytest.mark.parametrize("name", [name for name in bench_names() if "paper" in load_bench(name).sizes])
def test_the_papers_size_has_a_cost(name):
    bench = load_bench(name)
    size = bench.size("paper")
    some = size.model_copy(update={"rows": size.rows[:: max(len(size.rows) // 3, 1)]})  # a few: each takes 0.1 s
    costs = list(row_costs(bench.model_copy(update={"sizes": {"paper": some}}), A100, 8, "tf32"))
    assert costs
    assert all(0 < one.cost.gpu_hours < 20_000 for one in costs)
