"""Central training as a user runs it: killed, resumed, on several processes, with bad input."""

import json
import math
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from sottovoce.central.batches import epoch_of_steps, steps_from
from sottovoce.randomness import stream
from trainings import PYTHON, SMALL_MODEL, TORCHRUN, command_line, digests, error_line, metrics, run, started

TINY = (
    *SMALL_MODEL,
    *("central.micro_batch_seconds=4", "central.micro_batches=3", "central.steps=40", "central.evaluate_every=20"),
    *("central.checkpoint_every=2", "central.schedule.lr=0.01", "central.schedule.warmup=0"),
)


@pytest.fixture
def command(make_store, tmp_path):
    """Return the command line of a small training; further settings win."""
    store = make_store({"a": 10, "b": 8, "c": 6})
    (tmp_path / "train.txt").write_text("a\nb\n")
    (tmp_path / "dev.txt").write_text("c\n")
    data = {name: f"{store.path}@{tmp_path}/{name}.txt" for name in ("train", "dev")}

    def make(name: str, *settings: str, workers: int = 1, python: tuple[str, ...] = PYTHON) -> list[str]:
        return command_line("central", tmp_path / name, data, (*TINY, *settings), workers, python)

    return make


def losses(folder: Path) -> list[float]:
    lines = [line for line in metrics(folder) if "loss" in line]
    assert [line["step"] for line in lines] == list(range(1, 1 + len(lines)))
    return [line["loss"] for line in lines]


def test_killed_at_random_moments_it_ends_with_the_same_bits(command, tmp_path):
    assert run(command("whole")).returncode == 0
    moments = random.Random(4)  # noqa: S311 - only to choose when to kill
    for _ in range(3):
        process = started(command("killed"), tmp_path / "killed")
        time.sleep(0.05 * moments.random())
        process.kill()
        assert process.wait() == -signal.SIGKILL
    finished = run(command("killed"))
    assert finished.returncode == 0, finished.stderr
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")


def test_stopped_and_going_on_it_ends_with_the_same_bits(command, tmp_path):
    assert run(command("whole")).returncode == 0
    process = started(command("stopped"), tmp_path / "stopped")
    process.terminate()
    assert process.wait(timeout=60) == 143
    assert run(command("stopped")).returncode == 0
    assert digests(tmp_path / "stopped") == digests(tmp_path / "whole")


def test_two_processes_give_the_loss_curve_of_one(command, tmp_path):
    assert run(command("one")).returncode == 0
    assert run(command("two", workers=2)).returncode == 0
    finished = run(command("torchrun", python=TORCHRUN))
    assert finished.returncode == 0, finished.stderr
    one = losses(tmp_path / "one")
    assert len(one) == 40
    assert losses(tmp_path / "two") == pytest.approx(one, rel=1e-4)
    assert losses(tmp_path / "torchrun") == losses(tmp_path / "two")


def test_a_loss_that_is_not_a_number_stops_with_the_batch_named(command, tmp_path):
    sgd = ("central.optimizer={name: sgd}", "central.gradient_clip=null", "central.checkpoint_every=1")
    assert run(command("run", *sgd, "central.steps=2", "central.schedule={lr: 1e-6}")).returncode == 0
    config = tmp_path / "run" / "config.json"
    document = json.loads(config.read_text())
    document["config"]["central"]["schedule"]["lr"] = 1e30  # go on with a rate that diverges
    config.write_text(json.dumps(document))
    line = error_line(run(command("run", *sgd, "central.schedule={lr: 1e30}")))
    assert "is not finite" in line or ("The loss of step" in line and ("a/a0" in line or "b/b0" in line))
    with safe_open(tmp_path / "run" / "last" / "model.safetensors", "pt") as file:
        assert all(torch.isfinite(file.get_tensor(name)).all() for name in file.keys())  # noqa: SIM118 - not a dictionary


def test_metrics_are_also_tensorboard_events_with_norms_per_layer(command, tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert run(command("run", "central.steps=4", "central.layer_norms_every=2")).returncode == 0
    found = events.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    lines = metrics(tmp_path / "run")
    assert [event.step for event in found.Scalars("loss")] == [1, 2, 3, 4]
    assert [event.value for event in found.Scalars("loss")] == pytest.approx(losses(tmp_path / "run"))
    assert [event.step for event in found.Scalars("dev_wer")] == [4]
    norms = [line["layer_gradient_norms"] for line in lines if "layer_gradient_norms" in line]
    assert [line["step"] for line in lines if "layer_gradient_norms" in line] == [1, 3]
    whole = [line["gradient_norm"] for line in lines if "layer_gradient_norms" in line]
    assert [math.hypot(*layers.values()) for layers in norms] == pytest.approx(whole, rel=1e-6)
    assert [event.value for event in found.Scalars("layer_gradient_norms/conv.weight")] == pytest.approx(
        [layers["conv.weight"] for layers in norms]
    )


def test_training_stops_when_its_minutes_are_over(command, tmp_path):
    limited = run(command("run", "central.steps=1000000", "central.max_minutes=0.02"))
    assert limited.returncode == 0
    assert "The time limit central.max_minutes=0.02 is reached: raise it to train on." in limited.stderr
    steps = len(losses(tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "last" / "checkpoint.json").read_text())["step"] == steps
    assert 0 < steps < 1000


def test_a_run_goes_on_only_with_its_own_settings(command, tmp_path):
    assert run(command("run", "central.steps=2")).returncode == 0
    failed = run(command("run", "seed=5"))
    assert failed.returncode == 1
    assert "was started with another seed" in failed.stderr
    longer = run(command("run", "central.steps=4"))
    assert longer.returncode == 0
    assert len(losses(tmp_path / "run")) == 4


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_finishes_the_step_and_saves(command, tmp_path, workers):
    rarely = ("central.steps=100000", "central.checkpoint_every=100000", "central.evaluate_every=100000")
    process = started(command("run", *rarely, workers=workers), tmp_path / "run")
    process.terminate()
    assert process.wait(timeout=60) == 143
    step = json.loads((tmp_path / "run" / "last" / "checkpoint.json").read_text())["step"]
    assert step == len(losses(tmp_path / "run")) > 0
    assert not any("dev_wer" in line for line in metrics(tmp_path / "run"))  # it goes on as if nothing had happened


def test_a_run_goes_on_only_with_its_own_data(command, tmp_path):
    assert run(command("run", "central.steps=2")).returncode == 0
    (tmp_path / "train.txt").write_text("a\n")
    assert "was started on other data" in error_line(run(command("run", "central.steps=4")))


@pytest.mark.parametrize("file", ["last/model.safetensors", "last/state.safetensors", "last/checkpoint.json"])
def test_a_damaged_checkpoint_is_one_line(command, tmp_path, file):
    assert run(command("run", "central.steps=2")).returncode == 0
    (tmp_path / "run" / file).write_bytes(b"{}")
    workers = 2 if file == "last/model.safetensors" else 1
    assert "is damaged" in error_line(run(command("run", "central.steps=4", workers=workers)))


def test_bad_input_is_one_line(sotto, make_store, tmp_path):
    store = make_store({"a": 3, "b": 2})
    (tmp_path / "a.txt").write_text("a\n")
    words = ["train", "central", "tiny", "--workers", 1]
    assert "data.train is required" in sotto(*words, "--run", tmp_path / "r").error
    same = ["--train", store.path, "--dev", f"{store.path}@{tmp_path}/a.txt"]
    assert "train and dev share speaker 'a'" in sotto(*words, *same, "--run", tmp_path / "r").error
    assert (
        "no CUDA device"
        in sotto(*words, "--train", store.path, "--run", tmp_path / "r", "--set", "hardware.device=cuda").error
    )
    (tmp_path / "none.txt").write_text("")
    for option in ("--train", "--dev"):
        data = {"--train": store.path, option: f"{store.path}@{tmp_path}/none.txt"}
        chosen = [word for pair in data.items() for word in pair]
        assert "selects no utterance" in sotto(*words, *chosen, "--run", tmp_path / "r").error
    bfloat = ["--set", "hardware.precision=bfloat16"]
    assert (
        "hardware.precision=bfloat16 needs a CUDA device"
        in sotto(*words, "--train", store.path, "--run", tmp_path / "r", *bfloat).error
    )


def test_every_utterance_comes_once_in_an_epoch():
    frames = np.random.default_rng(0).integers(50, 900, size=137)
    rows = np.arange(1000, 1137)
    steps = epoch_of_steps(rows, frames, 20.0, 3, stream(0, "order"))
    micro = [part for step in steps for part in step]
    assert sorted(np.concatenate(micro).tolist()) == rows.tolist()
    for part in micro:
        assert len(part) * frames[part - 1000].max() <= 2000 or len(part) == 1
    assert all(len(step) == 3 for step in steps[:-1])


def test_a_resumed_order_is_the_order_it_would_have_had():
    frames = np.random.default_rng(0).integers(50, 900, size=40)
    rows = np.arange(40)

    def first(start, count):
        steps = steps_from(start, rows, frames, 20.0, 2, seed=1)
        return [[part.tolist() for part in micro] for _, micro in (next(steps) for _ in range(count))]

    assert first(0, 30)[13:] == first(13, 17)
