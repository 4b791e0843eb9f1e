"""Following a run by its own files: `sotto watch` and `sotto report --follow`."""

import json
import threading
import time

import pytest

from sottovoce.errors import DataError
from sottovoce.files import is_being_written, lock_of, only_writer
from sottovoce.runs.following import FollowedRun, RunStatus

CENTRAL = {"config": {"central": {"steps": 10, "max_minutes": None}, "seed": 0}, "data": {}}
FEDERATED = {"config": {"federated": {"central_steps": 40}, "seed": 0}, "data": {"users": "a"}}


def write_lines(run, lines, name="private.jsonl"):
    text = "".join(json.dumps({"line": place, **line}) + "\n" for place, line in enumerate(lines, 1))
    (run / name).write_text(text)


def central_line(step):
    return {"step": step, "lr": 0.1, "loss": 5.0 - step / 4, "elapsed_seconds": 3.0 * step}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CENTRAL))
    return folder


def test_a_run_that_has_not_started_is_waited_for_and_anything_else_is_refused(tmp_path):
    followed = FollowedRun(tmp_path / "run")
    assert followed.look() == RunStatus("not started")
    (tmp_path / "run" / "corpus.partial").mkdir(parents=True)  # it makes its own corpus first
    assert followed.look().state == "not started"
    with only_writer(tmp_path / "run"):
        assert followed.look().state == "starting"
    (tmp_path / "run" / "notes.txt").write_text("")
    with pytest.raises(DataError, match="is not a run"):
        followed.look()
    with pytest.raises(DataError, match="is not a run"):
        FollowedRun(tmp_path / "run" / "notes.txt").look()


def test_progress_pace_and_time_left_are_those_of_the_files(run):
    write_lines(run, [*map(central_line, range(1, 5)), {"step": 4, "dev_wer": 0.5}])
    followed = FollowedRun(run)
    with only_writer(run):
        status = followed.look()
        assert (status.state, status.kind, status.step, status.steps) == ("running", "central", 4, 10)
        assert (status.loss, status.dev_wer, status.best_dev_wer) == (4.0, 0.5, 0.5)
        assert (status.seconds_per_step, status.seconds_left, status.elapsed_seconds) == (3.0, 18.0, 12.0)
        assert followed.look() is status  # nothing has changed, so nothing is read
        write_lines(run, [*map(central_line, range(1, 6)), {"step": 5, "dev_wer": 0.75}])
        assert (followed.look().step, followed.look().best_dev_wer) == (5, 0.75)
    (run / "config.json").write_text(json.dumps(CENTRAL).replace('"max_minutes": null', '"max_minutes": 0.3'))
    with only_writer(run):
        assert followed.look().seconds_left == pytest.approx(3.0)  # at 18 s the time is up


def test_stopped_killed_and_finished_are_told_apart(run, sotto):
    write_lines(run, [central_line(4)])
    assert FollowedRun(run).look().state == "stopped"
    lock_of(run).write_text("")  # a killed process leaves the file, without its lock
    assert not is_being_written(run)
    assert FollowedRun(run).look().state == "killed"
    outcome = sotto("watch", run)
    assert outcome.code == 1
    assert "was killed, or its machine went down after 4 of 10 steps." in outcome.stderr
    lock_of(run).unlink()
    outcome = sotto("watch", run)
    assert (outcome.code, outcome.stderr.count("\n")) == (1, 1)
    assert "was stopped after 4 of 10 steps" in outcome.stderr
    write_lines(run, [central_line(10), {"step": 10, "dev_wer": 0.25}])
    outcome = sotto("watch", run)
    assert outcome.code == 0
    assert "has finished: 10 of 10 steps. loss 2.500  WER on dev 25.00 %" in outcome.stderr
    assert lock_of(run).exists() is False  # looking leaves nothing behind


@pytest.mark.parametrize("secure", [True, False])
def test_private_figures_are_shown_as_on_the_terminal_of_the_training(run, secure):
    document = json.loads(json.dumps(FEDERATED))
    document["config"]["randomness"] = {"source": "secure" if secure else "seeded"}
    (run / "config.json").write_text(json.dumps(document))
    private = [{"step": step, "not_private": {"loss": 3.0, "elapsed_seconds": step}} for step in (1, 2)]
    write_lines(run, [*private, {"step": 2, "dev_wer": 0.5}])
    write_lines(run, [{"step": step, "central_lr": 0.1, "epsilon": 1.5 * step} for step in (1, 2)], "metrics.jsonl")
    status = FollowedRun(run).look()
    assert (status.kind, status.step, status.epsilon, status.dev_wer) == ("federated", 2, 3.0, 0.5)
    figures = (status.loss, status.seconds_per_step, status.elapsed_seconds)
    assert figures == ((None, None, None) if secure else (3.0, 1.0, 2.0))


def test_watching_goes_on_until_the_run_ends(run, sotto):
    begun = threading.Event()

    def train():
        with only_writer(run):
            begun.set()
            for last in range(1, 11):
                write_lines(run, map(central_line, range(1, last + 1)))
                time.sleep(0.1)

    training = threading.Thread(target=train)
    training.start()
    assert begun.wait(30)  # before it, the run looks like one that was stopped
    outcome = sotto("watch", run, "--json", "--every", "0.1")
    training.join()
    lines = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert outcome.code == 0
    assert lines[-1]["state"] == "finished"
    assert lines[-1]["step"] == 10
    steps = [line["step"] for line in lines]
    assert steps == sorted(steps)


def test_damage_is_one_line(run, sotto):
    (run / "private.jsonl").write_text("null\n")
    assert "line 1 is damaged" in sotto("watch", run).error
    (run / "config.json").write_text("null")
    assert "config.json is damaged" in sotto("watch", run).error
