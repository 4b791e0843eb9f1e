"""Several commands on one benchmark folder: real processes, locks, kills, parts of a plan."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import write_audio
from sottovoce.bench.bench_plan_costs import _planned
from sottovoce.bench.locks import lock_path
from sottovoce.bench.plan import BenchRun
from sottovoce.bench.planned import PlanPart
from sottovoce.bench.scheduling import Queue, train_jobs
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import holder_of, sha256_of, taken
from sottovoce.model.model_file import MODEL_FILE
from sottovoce.runs.documents import Done
from sottovoce.runs.machine import machines_of
from trainings import TORCHRUN, run_here

ROWS = ("one", "two", "three")
PRESET = """
about: a benchmark for tests
source: nowhere
finding: nothing
sizes:
  mini:
    preset: quick
    set: [central.steps=3, central.micro_batch_seconds=10, central.micro_batches=1, federated.central_steps=2,
          federated.evaluate_every=2, participation.population=8, participation.cohort_size=3, batching.seconds=10]
    corpora: {voices: {kind: synthetic, speakers: 8, vocabulary: 8, mean_utterances: 1, max_utterances: 2}}
    parts:
      dev: {corpus: voices, speakers: ":2"}
      seed: {corpus: voices, speakers: "2:4"}
      users: {corpus: voices, speakers: "4:"}
    models: {base: {name: base, kind: central, train: seed}}
    train: users
    dev: dev
    rows:
      - {name: one, seed_model: base}
      - {name: two, seed_model: base, set: [privacy.sigma_dp=0.002]}
      - {name: three, seed_model: base, set: [privacy.sigma_dp=0.003]}
"""


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    path = tmp_path_factory.mktemp("scheduling") / "tiny.yaml"
    path.write_text(PRESET)
    return str(path)


@pytest.fixture(scope="module")
def reference(tmp_path_factory, preset):
    """Everything trained by one command."""
    out = tmp_path_factory.mktemp("one")
    done = run_here(["bench", "run", preset, "--out", str(out), "--workers", "1"])
    assert done.returncode == 0, done.stderr
    return out


def models_in(preset, out, rows=None):
    jobs = BenchRun.choose(preset, rows=rows, out=out).jobs()
    return {job.row.name: sha256_of(job.folder / "last" / MODEL_FILE) for job in jobs}


def command(preset, out, *more):
    return [sys.executable, "-m", "sottovoce", "bench", "run", preset, "--out", str(out), "--workers", "1", *more]


def begin(words, log, **options):
    with log.open("wb") as file:
        return subprocess.Popen(words, stderr=file, stdout=subprocess.DEVNULL, **options)


def with_corpora(reference, out):
    """Return a folder that has the corpora, but no runs."""
    out.mkdir()
    (out / "corpora").symlink_to(reference / "corpora")
    return out


def until(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_two_commands_at_once_train_every_row_once_and_end_like_one(preset, reference, tmp_path):
    logs = [tmp_path / "a.txt", tmp_path / "b.txt"]
    commands = [begin(command(preset, tmp_path / "out"), log) for log in logs]
    assert [process.wait(300) for process in commands] == [0, 0], [log.read_text() for log in logs]
    said = "".join(log.read_text() for log in logs)
    for row in ("base", *ROWS):  # the display names a run with its last step
        steps = 3 if row == "base" else 2
        assert said.count(f"] {row} {steps} of {steps}") == 1, said
    assert models_in(preset, tmp_path / "out") == models_in(preset, reference)


def test_a_run_whose_command_was_killed_is_continued_by_the_one_that_waits(preset, reference, tmp_path):
    out = with_corpora(reference, tmp_path / "out")
    words = command(preset, out, "--rows", "one")
    first = begin(words, tmp_path / "a.txt", start_new_session=True)
    try:
        until(lambda: list(out.glob("runs/*/private.jsonl")))
        os.killpg(first.pid, signal.SIGSTOP)  # in the middle, with its lock held
        assert not list(out.glob("runs/*/done.json"))
        second = begin(words, tmp_path / "b.txt")
        until(lambda: "Waiting for runs that other commands train, such as base" in (tmp_path / "b.txt").read_text())
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert second.wait(300) == 0, (tmp_path / "b.txt").read_text()
    assert models_in(preset, out, ["one"]) == models_in(preset, reference, ["one"])


@pytest.mark.slow
def test_torchrun_ends_like_one_command(preset, reference, tmp_path):
    out = with_corpora(reference, tmp_path / "out")
    (base, *_) = BenchRun.choose(preset, rows=["two"], out=reference).jobs()
    shutil.copytree(base.folder, out / "runs" / base.folder.name)  # central training rounds by the number of processes
    words = [*TORCHRUN, "sottovoce", "--", "bench", "run", preset, "--out", str(out), "--rows", "two"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert models_in(preset, out, ["two"]) == models_in(preset, reference, ["two"])


def unfinished(preset, reference, tmp_path):
    """Return the runs of the reference, as if only its corpora were there."""
    out = tmp_path / "out"
    jobs = BenchRun.choose(preset, out=reference).jobs()
    moved = {}
    for job in jobs:
        base = None if job.base is None else moved[job.base.row.name]
        moved[job.row.name] = replace(job, folder=out / "runs" / job.key[:16], base=base)
    return list(moved.values())


def test_a_row_waits_for_its_model_and_a_free_one_is_taken_first(preset, reference, tmp_path):
    jobs = unfinished(preset, reference, tmp_path)
    queue = Queue(jobs)
    with contextlib.ExitStack() as holding:
        turn = queue.take(holding, wait=False)
        assert (jobs[turn.number].row.name, turn.place, turn.total) == ("base", 1, 4)
        with contextlib.ExitStack() as other:  # all are waiting for the model, so even a command that may end stays
            assert Queue(jobs).take(other, wait=False).waiting.startswith("base (")
    finish(jobs[0], reference)
    with contextlib.ExitStack() as holding, contextlib.ExitStack() as others:
        taken_by = [jobs[Queue(jobs).take(stack, wait=True).number].row.name for stack in (holding, others)]
        assert taken_by == ["one", "two"]
        third = contextlib.ExitStack()
        assert jobs[Queue(jobs).take(third, wait=True).number].row.name == "three"
        with contextlib.ExitStack() as late:
            assert Queue(jobs).take(late, wait=True).waiting
            assert not Queue(jobs).take(late, wait=False).waiting  # all are in good hands
        third.close()
    with contextlib.ExitStack() as holding:
        assert jobs[Queue(jobs).take(holding, wait=False).number].row.name == "one"  # given back


def finish(job, reference):
    """Let a run be done."""
    job.folder.mkdir(parents=True)
    for name in (Done.FILE, "evaluation.json"):
        (job.folder / name).write_bytes((reference / "runs" / job.folder.name / name).read_bytes())


def test_a_row_that_fails_does_not_stop_the_others(preset, reference, tmp_path):
    jobs = unfinished(preset, reference, tmp_path)
    blocked = next(job for job in jobs if job.row.name == "one").folder
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder should be")
    said = []
    with pytest.raises(DataError, match="1 of the runs failed, the others were trained"):
        train_jobs([rebased(job) for job in jobs], 1, say=said.append)
    assert "one: " in said[0]
    done = {job.row.name for job in jobs if (job.folder / Done.FILE).exists()}
    assert done == {"base", "two", "three"}


def test_a_lock_of_a_run_that_is_done_is_given_back(preset, reference, tmp_path, monkeypatch):
    base, one, *_ = unfinished(preset, reference, tmp_path)
    finish(base, reference)
    shared = replace(one, row=one.row.model_copy(update={"name": "the same run on more parts"}))
    queue = Queue([one, shared])
    answers = iter([False, False, True, False])  # two looks at all rows; then `one` is found done, its lock in hand
    monkeypatch.setattr("sottovoce.bench.scheduling.is_done", lambda _job: next(answers))
    with contextlib.ExitStack() as holding:
        assert queue.take(holding, wait=False).number == 1
        with taken(lock_path(tmp_path / "out", one.folder.name)) as free:
            assert not free
    with taken(lock_path(tmp_path / "out", one.folder.name)) as free:
        assert free


def test_an_empty_part_ends_at_once_under_torchrun(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("RANK", "0")
    assert train_jobs([], 1)


def test_rows_for_different_processes_are_refused(preset, reference, tmp_path):
    base, one, *_ = unfinished(preset, reference, tmp_path)
    with pytest.raises(ConfigError, match=r"'base' and 'one' differ in hardware\.device or"):
        train_jobs([base, with_hardware(one, threads_per_worker=2)], 1)
    assert not (tmp_path / "out").exists()


def with_hardware(job, **values):
    hardware = job.resolved.config.hardware.model_copy(update=values)
    config = job.resolved.config.model_copy(update={"hardware": hardware})
    return replace(job, resolved=replace(job.resolved, config=config))


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory.\nTried"), MemoryError()])
def test_a_row_without_memory_fails_alone(preset, reference, tmp_path, monkeypatch, error):
    base, one, two, _ = unfinished(preset, reference, tmp_path)
    finish(base, reference)
    trained = []

    def train(_group, job, *_):
        trained.append(job.row.name)
        if job.row.name == "one":
            raise error
        finish(job, reference)

    monkeypatch.setattr("sottovoce.bench.scheduling.run_one", train)
    with pytest.raises(DataError, match=r"1 of the runs failed.* one: Out of memory"):
        train_jobs([base, one, two], 1)
    assert trained == ["one", "two"]


def rebased(job):
    """Return a run that starts from the model of its own folder."""
    if job.base is None:
        return job
    data = job.resolved.config.data.model_copy(update={"seed_model": job.base.folder / "last"})
    config = job.resolved.config.model_copy(update={"data": data})
    return replace(job, resolved=replace(job.resolved, config=config))


def test_parts_of_a_plan_cover_it_and_bring_their_models(preset, reference):
    jobs = BenchRun.choose(preset, seeds=2, out=reference).jobs()
    parts = [PlanPart.parse(f"{number}/4").of(jobs) for number in range(1, 5)]
    shown = [[job.label for job in part if job.shown] for part in parts]
    assert shown == [["one", "two, seed 1"], ["two", "three, seed 1"], ["three"], ["one, seed 1"]]
    for part in parts:
        keys = {job.key for job in part}
        assert all(job.base is None or job.base.key in keys for job in part)


@pytest.mark.parametrize("text", ["0/4", "5/4", "3", "a/b", "-1/4", "1/0"])
def test_a_part_that_does_not_exist_is_refused(text):
    with pytest.raises(ConfigError, match="Expected --part K/N"):
        PlanPart.parse(text)


def test_a_lock_names_its_holder_and_is_free_after_it(tmp_path):
    lock = tmp_path / "lock"
    with taken(lock) as first, taken(lock) as second:
        assert (first, second) == (True, False)
        assert f"process {os.getpid()}" in holder_of(lock)
    with taken(lock) as again:
        assert again


def test_what_was_shown_says_when_rows_come_from_different_machines(preset, reference):
    job = next(job for job in BenchRun.choose(preset, out=reference).jobs() if job.row.name == "one")
    path = job.folder / "machines.json"
    assert [machine.processes for one in (job.base, job) for machine in machines_of(one.folder)] == [1, None]
    before = path.read_text()
    try:
        path.write_text(before.replace(json.loads(before)["machines"][0]["cpu"], "Another CPU"))
        shown = run_here(["bench", "show", preset, "--out", str(reference)])
    finally:
        path.write_text(before)
    assert "Trained on Another CPU" in shown.stderr
    assert "Trained on" not in run_here(["bench", "show", preset, "--out", str(reference)]).stderr


def planned(*words):
    shown = run_here(["bench", "run", *map(str, words), "--workers", "1", "--dry-run", "--json"])
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def test_a_plan_is_printed_before_any_corpus_is_prepared(preset, tmp_path):
    plan = planned(preset, "--out", tmp_path / "out")
    assert [run["row"] for run in plan["runs"]] == ["base", *ROWS]
    assert (plan["left"], plan["unknown"]) == (4, 0)
    assert plan["corpora"][0]["seconds"] > 0
    assert plan["bytes"] > plan["corpora"][0]["bytes"]
    assert 0 < plan["seconds"][0] < plan["seconds"][1]
    assert not (tmp_path / "out").exists()
    part = planned(preset, "--out", tmp_path / "out", "--part", "2/3")
    assert [run["row"] for run in part["runs"]] == ["base", "two"]


def test_times_of_finished_runs_are_used_for_others_of_the_same_work(preset, reference):
    assert planned(preset, "--out", reference)["left"] == 0
    plan = planned(preset, "--out", reference, "--seeds", "2")
    assert [run["done"] for run in plan["runs"]] == [True] * 4 + [False] * 4
    jobs = {job.row.name: job for job in BenchRun.choose(preset, out=reference).jobs()}
    spent = sorted(Done.read(jobs[row].folder).seconds for row in ROWS)
    assert plan["runs"][-1]["seconds"] == pytest.approx(spent[1])  # the median of the three rows, of as many steps


def test_a_plan_knows_runs_apart_as_their_keys_do(preset, tmp_path):
    text = Path(preset).read_text()
    text = text.replace(
        "models: {base:", "models: {other: {name: other, kind: central, train: seed, dev: users}, base:"
    )
    text = text.replace("      - {name: one, seed_model: base}", (
        "      - {name: four, seed_model: other, set: ["
        "federated.local.rule.name=fedprox, federated.local.rule.mu=0.1]}\n"
        "      - {name: one, seed_model: base}"
    ))  # fmt: skip
    (tmp_path / "more.yaml").write_text(text)
    run = BenchRun.choose(str(tmp_path / "more.yaml"), rows=["four", "one"], out=tmp_path / "out")
    runs = {one.label: one for one in _planned(run)}
    assert runs["base"].key != runs["other"].key  # they differ in dev alone
    assert runs["base"].work == runs["other"].work
    assert runs["one"].work != runs["four"].work


def test_settings_for_every_row_make_other_runs_and_are_shown(preset, reference, tmp_path):
    plain, changed = (
        BenchRun.choose(preset, out=reference, settings=settings) for settings in ((), ["model.dropout=0.25"])
    )
    keys = [{job.key for job in run.jobs()} for run in (plain, changed)]
    assert not keys[0] & keys[1]
    assert all(job.resolved.config.model.dropout == 0.25 for job in changed.jobs())
    words = ["bench", "show", preset, "--out", str(reference), "--set", "model.dropout=0.25"]
    shown = run_here(words)
    assert "Every row with model.dropout=0.25" in shown.stderr
    assert json.loads(run_here([*words, "--json"]).stdout)["settings"] == ["model.dropout=0.25"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "seed=3"], "chooses seed and data itself"),
        (["--set", "model.dropuot=0.1"], "dropuot"),
        (["--set", "model.dropout=0.25", "--results", "results.md"], "without --set. Give another file"),
        (["--part", "1/2", "--results", "results.md"], "leave out --rows, --part, --published and --no-wait"),
        (["--all"], "Give the name of a benchmark"),
    ],
)
def test_what_would_mix_results_is_refused(preset, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    name = Path(preset).name
    Path("results.md").write_text(f"<!-- begin bench {name} -->\n<!-- end bench {name} -->\n")
    refused = run_here(["bench", "run", preset, *words])
    assert refused.returncode == 1
    assert said in refused.stderr
    assert not Path("runs").exists()


def test_all_benchmarks_need_no_name_and_take_no_rows():
    refused = run_here(["bench", "run", "--all", "--rows", "one"])
    assert "leave out --rows" in refused.stderr
    assert "Give the name" in run_here(["bench", "run"]).stderr


def test_the_share_of_unusable_utterances_is_passed_to_the_preparation(tmp_path):
    write_audio(tmp_path / "a.flac", 1.0, 0)
    (tmp_path / "index.tsv").write_text("path\tspeaker\ttext\na.flac\ta\thello\nmissing.flac\tb\thello\n")
    (tmp_path / "b.yaml").write_text(
        "{about: a, source: b, finding: c, sizes: {mini: {preset: quick, "
        f"corpora: {{own: {{kind: table, file: {tmp_path}/index.tsv}}}}, parts: {{all: {{corpus: own}}}}, train: all, "
        "rows: [{name: one}]}}}"
    )
    words = ["bench", "run", str(tmp_path / "b.yaml"), "--out", str(tmp_path / "out"), "--prepare-only"]
    refused = run_here([*words, "--workers", "1"])
    assert "more than --max-rejected 0.05" in refused.stderr
    allowed = run_here([*words, "--workers", "1", "--max-rejected", "0.6"])
    assert allowed.returncode == 0, allowed.stderr


def test_the_scripts_of_the_documentation_are_valid():
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    scripts = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    assert sum("#SBATCH" in script for script in scripts) == 2
    for script in scripts:
        checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")
