"""Federated runs as a user starts them: any number of workers, killed, resumed, stopped, with bad input."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors import safe_open

SETTINGS = [
    *("model.blocks=2", "model.width=16", "model.heads=2", "model.mlp_width=32", "model.dropout=0.2"),
    *("model.layer_drop=0.3", "batching.seconds=3", "participation.population=6", "participation.cohort_size=4"),
    *("privacy.clip_norm=0.1", "privacy.clipping=dim", "privacy.sigma_dp=0.001"),
    *("federated.local.steps=2", "federated.central_steps=8", "federated.evaluate_every=4"),
    *("federated.checkpoint_every=2", "federated.schedule.lr=0.01"),
]


@pytest.fixture
def command(make_store, tmp_path):
    """Return the command line of a small federated run; further settings win."""
    store = make_store({"a": 6, "b": 3, "c": 2, "d": 5, "e": 1, "f": 4, "g": 3, "h": 2})
    for name, speakers in (("train", "abcdef"), ("dev", "g"), ("test", "h")):
        (tmp_path / f"{name}.txt").write_text("\n".join(speakers))

    def make(run: str, *settings: str, workers: int = 1, python: tuple[str, ...] = (sys.executable, "-m")) -> list[str]:
        words = ["train", "federated", "tiny", "--run", str(tmp_path / run), "--workers", str(workers)]
        for name in ("train", "dev", "test"):
            words += [f"--{name}", f"{store.path}@{tmp_path}/{name}.txt"]
        if "torch.distributed.run" in python:
            words = ["--", *words]
        return [*python, "sottovoce", *words, *(w for s in (*SETTINGS, *settings) for w in ("--set", s))]

    return make


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


def digests(folder: Path) -> dict[str, str]:
    files = [path for link in ("last", "best") for path in sorted((folder / link).iterdir())]
    return {f"{path.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_one_two_and_three_workers_and_torchrun_give_the_same_bits(command, tmp_path):
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    for name, words in {
        "1": command("1"),
        "2": command("2", workers=2),
        "3": command("3", workers=3),
        "t": command("t", python=torchrun),
    }.items():
        finished = run(words)
        assert finished.returncode == 0, (name, finished.stderr)
    expected = digests(tmp_path / "1")
    assert all(digests(tmp_path / name) == expected for name in "23t")
    assert (tmp_path / "1" / "result.json").read_bytes() == (tmp_path / "3" / "result.json").read_bytes()
    with safe_open(tmp_path / "1" / "last" / "model.safetensors", "pt") as file:
        assert list(file.metadata()) == ["sottovoce"]


def test_the_log_says_what_is_not_private(command, tmp_path):
    assert run(command("run", "federated.central_steps=2")).returncode == 0
    steps = [line for line in lines(tmp_path / "run") if "central_lr" in line]
    for line in steps:
        assert set(line) == {
            *(
                "step",
                "central_lr",
                "epsilon",
                "server_norm",
                "trust_ratios",
                "not_private",
                "elapsed_seconds",
            )
        }
        inside = line["not_private"]
        assert 0 <= inside["share_clipped"] <= 1
        assert inside["delta_norm_clipped"] <= 0.1
        assert set(inside["signal_to_noise"]) == set(line["trust_ratios"]) == set(inside["layers"]["delta_norm"])
        assert set(inside["seconds"]) == {"cohort", "noise", "users", "sum", "server"}
    assert run(command("quiet", "federated.central_steps=2", "privacy.diagnostics=false")).returncode == 0
    quiet = [line for line in lines(tmp_path / "quiet") if "central_lr" in line]
    assert all(set(line) == {"step", "central_lr", "epsilon", "server_norm", "trust_ratios"} for line in quiet)
    assert digests(tmp_path / "quiet") == digests(tmp_path / "run")


def test_a_run_without_a_guarantee_says_so(command, tmp_path):
    analysis = "privacy.noise_analysis={group: mlp, inside: 1, outside: 0}"
    finished = run(command("run", "federated.central_steps=1", analysis))
    assert finished.returncode == 0
    assert "No privacy guarantee: noise differs between parameter groups" in finished.stderr
    assert lines(tmp_path / "run")[0]["guarantee"].startswith("none: noise differs")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["guarantee"].startswith("none: noise differs")


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they started."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return [one for child in children for one in (child, *descendants(child))]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_at_random(words: list[str], kills: int, seed: int, *, group: bool) -> int:
    """Start the command and kill it, its whole group or only the parent, again and again; return how often it lived."""
    moments = random.Random(seed)  # noqa: S311 - only to choose when to kill
    killed = 0
    for _ in range(kills):
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 1.0 + 6.0 * moments.random()
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        children = descendants(process.pid) if process.poll() is None else []
        if process.poll() is None:
            killed += 1
            if group:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
        deadline = time.monotonic() + 5
        while any(map(is_alive, children)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(is_alive, children))
    return killed


@pytest.mark.parametrize(("kills", "group"), [(3, True), (2, False)])
def test_killed_at_random_moments_it_ends_with_the_same_bits(command, tmp_path, kills, group):
    more = ("federated.central_steps=12",)
    assert run(command("whole", *more)).returncode == 0
    assert kill_at_random(command("killed", *more, workers=2), kills, 5, group=group) >= 1
    finished = run(command("killed", *more, workers=2))
    assert finished.returncode == 0, finished.stderr
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    assert [line["step"] for line in lines(tmp_path / "killed") if "central_lr" in line] == list(range(1, 13))


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "group"), [(20, True), (5, False)])
def test_killed_very_often_it_ends_with_the_same_bits(command, tmp_path, kills, group):
    more = ("federated.central_steps=400", "federated.evaluate_every=100", "federated.checkpoint_every=5")
    assert run(command("whole", *more)).returncode == 0
    assert kill_at_random(command("killed", *more, workers=2), kills, 7, group=group) >= kills // 2
    assert run(command("killed", *more, workers=2)).returncode == 0
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")


def test_sigterm_finishes_the_step_and_saves(command, tmp_path):
    words = command("run", "federated.central_steps=100000", "federated.checkpoint_every=100000", workers=2)
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not metrics.exists() or metrics.stat().st_size == 0:
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert process.wait(timeout=60) == 0
    step = json.loads((tmp_path / "run" / "last" / "checkpoint.json").read_text())["step"]
    assert step == len([line for line in lines(tmp_path / "run") if "central_lr" in line]) > 0


def test_a_run_starts_from_a_seed_model(command, tmp_path):
    assert run(command("seed", "federated.central_steps=2")).returncode == 0
    words = command("next", "federated.central_steps=1", "privacy.sigma_dp=0", "federated.schedule.lr=1e-30")
    assert run([*words, "--seed-model", str(tmp_path / "seed")]).returncode == 0
    models = [tmp_path / name / link / "model.safetensors" for name, link in (("seed", "best"), ("next", "last"))]
    assert models[0].read_bytes() == models[1].read_bytes()
    failed = run([*command("other", "model.width=24"), "--seed-model", str(tmp_path / "seed")])
    assert "has another shape than model.* of the preset" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["participation.population=null"], "participation.population is required"),
        (["participation.cohort_size=7"], "cohort_size=7"),
        (["privacy.clip_norm=null"], "clip_norm: clipping and noise are measured in it"),
        (["federated.local.epochs=1"], "steps or epochs, not both"),
        (["federated.locl.lr=1"], "Did you mean 'federated.local.lr'?"),
        (
            ["participation.sampling=fixed", "participation.population=9", "participation.cohort_size=8"],
            "cannot be drawn",
        ),
    ],
)
def test_bad_settings_are_one_line(command, tmp_path, settings, message):
    failed = run(command("run", *settings))
    assert failed.returncode == 1
    (line,) = [line for line in failed.stderr.splitlines() if line.startswith("error: ")]
    assert message in line
    assert "Traceback" not in failed.stderr


def test_two_runs_cannot_write_into_one_folder(command, tmp_path):
    first = subprocess.Popen(command("run", "federated.central_steps=100000"), stderr=subprocess.DEVNULL)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not metrics.exists():
        assert first.poll() is None
        time.sleep(0.02)
    second = run(command("run", "federated.central_steps=100000"))
    first.kill()
    first.wait()
    assert second.returncode == 1
    assert "Another process is writing" in second.stderr
