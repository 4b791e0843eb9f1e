"""Several commands on one benchmark folder: real processes, locks, kills, parts of a plan."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sottovoce.bench.plan import BenchRun
from sottovoce.bench.scheduling import PlanPart, Queue, train_jobs
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import holder_of, sha256_of, taken
from sottovoce.model.recogniser import MODEL_FILE
from sottovoce.runs.documents import Done
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
    first = begin(command(preset, out), tmp_path / "a.txt", start_new_session=True)
    try:
        until(lambda: list(out.glob("runs/*/private.jsonl")))
        os.killpg(first.pid, signal.SIGSTOP)  # in the middle, with its lock held
        assert not list(out.glob("runs/*/done.json"))
        second = begin(command(preset, out), tmp_path / "b.txt")
        until(lambda: "Waiting for runs that other commands train, such as base" in (tmp_path / "b.txt").read_text())
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert second.wait(300) == 0, (tmp_path / "b.txt").read_text()
    assert models_in(preset, out) == models_in(preset, reference)


def test_torchrun_ends_like_one_command(preset, reference, tmp_path):
    out = with_corpora(reference, tmp_path / "out")
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
    before = path.read_text()
    try:
        path.write_text(before.replace(json.loads(before)["machines"][0]["cpu"], "Another CPU"))
        shown = run_here(["bench", "show", preset, "--out", str(reference)])
    finally:
        path.write_text(before)
    assert "Trained on Another CPU" in shown.stderr
    assert "Trained on" not in run_here(["bench", "show", preset, "--out", str(reference)]).stderr


def test_the_scripts_of_the_documentation_are_valid():
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    scripts = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    assert sum("#SBATCH" in script for script in scripts) == 2
    for script in scripts:
        checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")
