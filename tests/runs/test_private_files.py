"""What a run computes from people's data lies in files of its own, which only their owner can read."""

import json
import os
import shutil
from typing import ClassVar

import pytest

from report_runs import NOISE, listed, make_data, make_run
from sottovoce.cli import training_display
from sottovoce.files import keep_private, open_private, written_whole
from sottovoce.privacy.privacy_options import Privacy
from sottovoce.privacy.run_files import PUBLIC_METRICS, private_paths
from sottovoce.reports.page import _write_files
from sottovoce.runs import Run, Status
from sottovoce.runs.metrics_log import Kept, MetricsLog, MetricsWriter

DIM = (*NOISE, "privacy.clipping=dim")
SECURE = (*DIM, "randomness.source=secure")


class Recording:
    """A display that keeps what it is shown."""

    shown: ClassVar[list] = []

    def __call__(self, status):
        self.shown.append(status)

    def say(self, message):
        self.shown.append(message)

    def close(self):
        pass


@pytest.fixture
def everyone_may_read():
    """The umask of a careless account."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A seeded, a secure and a central run, made by an account whose files everyone may read."""
    folder = tmp_path_factory.mktemp("runs")
    before = os.umask(0)
    data = make_data(folder)
    make_run("federated", folder / "seeded", data, (*DIM, "participation.population=5"))
    make_run("federated", folder / "secure", data, (*SECURE, "participation.population=5"), Recording)
    make_run("central", folder / "central", data)
    os.umask(before)
    return folder


def mode_of(path):
    return oct(path.stat().st_mode & 0o777)


def raw_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ["seeded", "secure", "central"])
def test_only_the_owner_can_read_what_is_private(folder, name):
    run = folder / name
    for path in run.rglob("*"):
        if path.is_file() and not path.is_symlink() and "last" not in path.parts and "best" not in path.parts:
            file = listed(path.relative_to(run))
            assert file is not None, f"{path} is not in the list of a run's files"
            in_folder = path.parent.name == "tensorboard"  # which only its owner can enter; tensorboard writes the file
            assert in_folder or mode_of(path) == ("0o600" if file.side == "private" else "0o644"), path
        elif path.is_dir() and not path.is_symlink():
            assert mode_of(path) == ("0o700" if path.name == "tensorboard" else "0o755"), path
    assert mode_of(run) == "0o755"
    assert mode_of(run / "config.json") == mode_of(run / "private.jsonl" if name != "secure" else run / "result.json")
    if (run / "tensorboard").exists():
        assert mode_of(run / "tensorboard") == "0o700"


def test_the_public_keys_are_functions_of_releases_and_public_numbers():
    assert set(PUBLIC_METRICS) == {
        "step",
        "guarantee",
        "central_lr",
        "epsilon",
        "server_norm",
        "trust_ratios",
        "clip_norms",
    }


@pytest.mark.parametrize("name", ["seeded", "secure"])
def test_public_lines_hold_public_keys_only(folder, name):
    lines = raw_lines(folder / name / "metrics.jsonl")
    assert len(lines) == 6
    assert all(set(line) <= {"line", *PUBLIC_METRICS} for line in lines)
    private = raw_lines(folder / name / "private.jsonl")
    assert not any(set(line) & (set(PUBLIC_METRICS) - {"step"}) for line in private)
    assert sum("dev_wer" in line for line in private) == 3


def test_lines_of_one_number_are_read_as_one(folder):
    lines = list(MetricsLog(folder / "seeded").lines())
    assert [line["step"] for line in lines] == [0, 1, 2, 2, 3, 4, 4, 5, 5]
    assert lines[0].keys() == {"step", "guarantee", "not_private"}
    assert lines[0]["not_private"] == {"users": 4}
    keys = ["step", "central_lr", "epsilon", "server_norm", "trust_ratios", "not_private"]
    assert all(list(lines[number]) == keys for number in (1, 2, 4, 5, 7))
    assert list(lines[3]) == ["step", "dev_loss", "dev_wer", "dev_cer"]
    assert not (folder / "central" / "metrics.jsonl").exists()


def test_a_secure_run_logs_and_shows_no_private_figure_unless_asked(folder, tmp_path):
    assert all("not_private" not in line for line in MetricsLog(folder / "secure").lines())
    assert not (folder / "secure" / "tensorboard").exists()
    statuses = [one for one in Recording.shown if isinstance(one, Status)]
    assert [one.step for one in statuses] == [1, 2, 3, 4, 5]
    assert all(one.loss is None and one.speed == "" and not one.timed for one in statuses)
    assert not any(isinstance(one, str) for one in Recording.shown)  # K is 5, and the store has 4 users
    asked = ("privacy.diagnostics=true", "federated.central_steps=1")
    data = {name: Run(folder / "secure").config.setting(f"data.{name}") for name in ("train",)}
    made = make_run("federated", tmp_path / "run", {"train": f"data.train={json.dumps(data['train'])}"}, SECURE + asked)
    assert any("not_private" in line for line in MetricsLog(made).lines())
    for given, of_seeded, of_secure in ((None, True, False), (True, True, True), (False, False, False)):
        privacy = Privacy(diagnostics=given)
        assert (privacy.diagnosed("seeded"), privacy.diagnosed("secure")) == (of_seeded, of_secure)


def test_a_display_without_times_prints_at_fixed_steps(monkeypatch):
    lines = []
    monkeypatch.setattr(training_display, "note", lines.append)
    for seconds in (0.0, 100.0):  # per step
        lines.append("")
        clock = iter(range(10_000))
        monkeypatch.setattr(training_display.time, "monotonic", lambda s=seconds, c=clock: s * next(c))
        shown = training_display.TrainingDisplay()
        for step in range(1, 101):
            shown(Status(step, 100, None, 0.5, "", 1.0, wer_step=4, timed=False))
        shown.close()
    half = len(lines) // 2
    assert lines[:half] == lines[half:]
    assert half == 21
    assert lines[1] == "step 5 of 100: WER on dev 50.00 % at step 4  epsilon 1"


def test_metrics_of_an_earlier_version_are_taken_apart_when_the_run_resumes(folder, tmp_path):
    run = shutil.copytree(folder / "seeded", tmp_path / "run", symlinks=True)
    lines = list(MetricsLog(run).lines())
    (run / "private.jsonl").unlink()
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for path in private_paths(run):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert list(MetricsLog(run).lines()) == lines
    assert all(set(line) <= {"line", *PUBLIC_METRICS} for line in MetricsLog(run).public_lines())
    Run(run).begin(Run(run).config, ())
    assert all(mode_of(path) == ("0o700" if path.is_dir() else "0o600") for path in private_paths(run))
    kept = MetricsLog(run).cut(4, 4)
    assert kept.last == 7
    assert list(MetricsLog(run).lines()) == lines[:7]
    assert raw_lines(run / "metrics.jsonl") == raw_lines(folder / "seeded" / "metrics.jsonl")[:5]
    assert raw_lines(run / "private.jsonl") == raw_lines(folder / "seeded" / "private.jsonl")[:7]
    assert mode_of(run / "private.jsonl") == "0o600"


@pytest.mark.parametrize("killed", ["between the parts of a line", "between the two files", "in a line"])
def test_killed_anywhere_both_files_are_consistent(tmp_path, killed):
    def step(number):
        return {"step": number, "central_lr": 0.1, "epsilon": 1.0 * number, "not_private": {"loss": 2.0 * number}}

    whole = [{"step": 0, "guarantee": "none"}, step(1), {"step": 1, "dev_wer": 0.5}, step(2), step(3)]
    writer = MetricsWriter(tmp_path, 0, 0, events=False)
    for line in whole:
        writer.write(line)
    writer.close()
    public, private = tmp_path / "metrics.jsonl", tmp_path / "private.jsonl"
    if killed == "between the parts of a line":
        public.write_bytes(b"".join(public.read_bytes().splitlines(keepends=True)[:-1]))
        assert list(MetricsLog(tmp_path).lines())[-1] == {"step": 3, "not_private": {"loss": 6.0}}
    elif killed == "in a line":
        private.write_bytes(private.read_bytes()[:-5])
    else:
        before = public.read_bytes()
        assert MetricsLog(tmp_path).cut(2, 1).last == 4
        public.write_bytes(before)
    assert MetricsLog(tmp_path).cut(2, 1) == Kept(last=4)
    assert list(MetricsLog(tmp_path).lines()) == whole[:4]
    writer = MetricsWriter(tmp_path, 2, 4, events=False)
    writer.write(whole[4])
    writer.close()
    assert list(MetricsLog(tmp_path).lines()) == whole


def test_only_the_owner_can_enter_the_folder_of_a_report(tmp_path, everyone_may_read):
    _write_files([], tmp_path / "report_files")
    assert mode_of(tmp_path / "report_files") == "0o700"


def test_a_private_file_is_private_from_its_first_byte(tmp_path, everyone_may_read):
    path = tmp_path / "file"
    with written_whole(path, private=True) as file:
        assert mode_of(next(tmp_path.iterdir())) == "0o600"
        file.write(b"x")
    assert mode_of(path) == "0o600"
    path.chmod(0o644)
    with open_private(path, "ab"):
        assert mode_of(path) == "0o600"
    path.chmod(0o644)
    with written_whole(path):
        pass
    assert mode_of(path) == "0o644"  # only its owner can write any file
    os.umask(0o777)
    with written_whole(path, private=True) as file:
        file.write(b"x")
    assert mode_of(path) == "0o600"
    (tmp_path / "link").symlink_to(path)
    path.chmod(0o644)
    keep_private(tmp_path / "link")
    keep_private(tmp_path / "nothing")
    assert mode_of(path) == "0o644"
