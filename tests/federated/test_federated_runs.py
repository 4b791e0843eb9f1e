"""Federated runs as a user starts them: any number of workers, killed, resumed, stopped, with bad input."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import sottovoce as sv
from conftest import is_alive
from sottovoce.errors import PrivacyError
from sottovoce.privacy.bounds_state import BOUNDS
from sottovoce.privacy.claims import composed, open_account, statement
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.runs.metrics_log import MetricsLog
from sottovoce.runs.verification import _verify_header, verify
from trainings import PYTHON, SMALL_MODEL, TORCHRUN, command_line, digests, error_line, metrics, run, run_here, started

SETTINGS = (
    *SMALL_MODEL,
    *("batching.seconds=3", "participation.population=6", "participation.cohort_size=4"),
    *("privacy.clip_norm=0.1", "privacy.clipping=dim", "privacy.sigma_dp=0.001"),
    *("federated.local.steps=2", "federated.central_steps=8", "federated.evaluate_every=4"),
    *("federated.checkpoint_every=2", "federated.schedule.lr=0.01"),
)


@pytest.fixture
def command(make_store, tmp_path):
    """Return the command line of a small federated run; further settings win."""
    store = make_store({"a": 6, "b": 3, "c": 2, "d": 5, "e": 1, "f": 4, "g": 3, "h": 2})
    lists = {"train": "abcdef", "dev": "g", "test": "h"}
    for name, speakers in lists.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(speakers))
    data = {name: f"{store.path}@{tmp_path}/{name}.txt" for name in lists}

    def make(name: str, *settings: str, workers: int = 1, python: tuple[str, ...] = PYTHON) -> list[str]:
        return command_line("federated", tmp_path / name, data, (*SETTINGS, *settings), workers, python)

    return make


def steps_of(folder: Path) -> list[dict]:
    return [line for line in metrics(folder) if "central_lr" in line]


def test_one_and_five_workers_and_torchrun_give_the_same_bits(command, tmp_path):
    for name, words in {
        "1": command("1"),
        "5": command("5", workers=5),
        "t": command("t", python=TORCHRUN),
    }.items():
        finished = run(words)
        assert finished.returncode == 0, (name, finished.stderr)
    expected = digests(tmp_path / "1")
    assert all(digests(tmp_path / name) == expected for name in "5t")
    assert (tmp_path / "1" / "result.json").read_bytes() == (tmp_path / "5" / "result.json").read_bytes()
    with safe_open(tmp_path / "1" / "last" / "model.safetensors", "pt") as file:
        assert list(file.metadata()) == ["sottovoce"]


def test_weights_and_q_min_give_the_same_bits_on_two_workers(command, tmp_path):
    more = (
        *("participation.weight=seconds", "participation.weight_bound=5", "participation.weight_total=20"),
        *("participation.q_min=0.1", "federated.central_steps=4"),
    )
    for workers in (1, 2):
        finished = run(command(str(workers), *more, workers=workers))
        assert finished.returncode == 0, finished.stderr
    assert digests(tmp_path / "1") == digests(tmp_path / "2")


def test_an_averaged_model_has_the_same_bits_on_two_workers_and_after_a_stop(command, tmp_path):
    more = (
        *("federated.averaging={begin: 1, window: 2}", "federated.optimizer.noise_correction=true"),
        *("privacy.sigma_dp=0.5", "federated.central_steps=5", "federated.evaluate_every=5"),
    )
    for words in (
        command("whole", *more),
        command("halves", *more, "federated.central_steps=3"),
        command("halves", *more, workers=2),
    ):
        finished = run(words)
        assert finished.returncode == 0, finished.stderr
    whole, halves = (tmp_path / name / "last" for name in ("whole", "halves"))
    for file in ("model.safetensors", "state.safetensors"):
        assert (whole / file).read_bytes() == (halves / file).read_bytes()
    verify(tmp_path / "halves")
    differing = run(command("whole", *more, "federated.averaging={begin: 3}"))
    assert "was started with another federated.averaging" in error_line(differing)


def test_bounds_that_adapt_go_on_with_the_same_bits_and_are_in_the_ledger(command, tmp_path):
    more = ("privacy.clipping=adaptive", "federated.central_steps=5", "federated.evaluate_every=5")
    assert run(command("whole", *more)).returncode == 0
    assert run(command("parts", *more, "federated.central_steps=2")).returncode == 0
    state = tmp_path / "parts" / "last" / "state.safetensors"
    kept, tensors = state.read_bytes(), load_file(state)
    save_file({**tensors, BOUNDS: tensors[BOUNDS] * 2}, state)
    assert "is not the state of the optimizer that" in error_line(run(command("parts", *more)))
    state.write_bytes(kept)
    finished = run(command("parts", *more, workers=2))
    assert finished.returncode == 0, finished.stderr
    parts, whole = (digests(tmp_path / name) for name in ("parts", "whole"))
    assert all(parts[f"last/{name}.safetensors"] == whole[f"last/{name}.safetensors"] for name in ("model", "state"))

    header = ledger_of(tmp_path / "whole")[0]
    bounds = [line["clip_norms"] for line in steps_of(tmp_path / "parts")]
    assert list(bounds[0].values()) == header["clip_norms"]
    assert len(bounds) == 5
    assert all(bounds[0][layer] != bounds[4][layer] for layer in bounds[0])
    assert bounds == [line["clip_norms"] for line in MetricsLog(tmp_path / "whole").public_lines() if "epsilon" in line]
    assert verify(tmp_path / "parts").guaranteed
    dim = run(command("dim", *more, "privacy.clipping=dim", "federated.central_steps=1"))
    assert dim.returncode == 0
    assert ledger_of(tmp_path / "dim")[0]["z"] == header["z"]  # counts cost accuracy, not epsilon

    changed = {**header, "adaptive": {**header["adaptive"], "sigma_b": 2 * header["adaptive"]["sigma_b"]}}
    with pytest.raises(PrivacyError, match="the noise of deltas and counts gives"):
        _verify_header(tmp_path, LedgerHeader.model_validate(changed))


def two_nodes(words: list[str], port: int) -> list[list[str]]:
    """Turn a command under torchrun into those of two machines: here both are this one."""
    place = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    alone = ["--standalone", "--nproc-per-node", "2"]
    start = words.index(alone[0])
    return [
        [*words[:start], *place, "--node-rank", str(rank), "--nproc-per-node", "1", *words[start + len(alone) :]]
        for rank in (0, 1)
    ]


@pytest.mark.slow
def test_two_machines_give_the_bits_of_one(command, tmp_path):
    assert run(command("one")).returncode == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    machines = [
        subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        for words in two_nodes(command("two", python=TORCHRUN), port)
    ]
    for machine in machines:
        _, complaints = machine.communicate(timeout=200)
        assert machine.returncode == 0, complaints
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


def test_the_log_says_what_is_not_private(command, tmp_path):
    assert run(command("run", "federated.central_steps=2")).returncode == 0
    steps = steps_of(tmp_path / "run")
    for line in steps:
        assert set(line) == {"step", "central_lr", "epsilon", "server_norm", "trust_ratios", "not_private"}
        inside = line["not_private"]
        assert 0 <= inside["share_clipped"] <= 1
        assert inside["delta_norm_clipped"] <= 0.1
        assert set(inside["signal_to_noise"]) == set(line["trust_ratios"]) == set(inside["layers"]["delta_norm"])
        assert set(inside["seconds"]) == {"cohort", "users", "sum", "noise", "release", "server"}
    assert run(command("quiet", "federated.central_steps=2", "privacy.diagnostics=false")).returncode == 0
    quiet = steps_of(tmp_path / "quiet")
    assert all(set(line) == {"step", "central_lr", "epsilon", "server_norm", "trust_ratios"} for line in quiet)
    assert not (tmp_path / "quiet" / "tensorboard").exists()
    models = [(tmp_path / name / "last" / "model.safetensors").read_bytes() for name in ("run", "quiet")]
    assert models[0] == models[1]


def test_a_run_without_a_guarantee_says_so(command, tmp_path):
    analysis = "privacy.noise_analysis={group: mlp, inside: 1, outside: 0}"
    finished = run(command("run", "federated.central_steps=1", analysis))
    assert finished.returncode == 0
    assert "No privacy guarantee: noise differs between parameter groups" in finished.stderr
    assert metrics(tmp_path / "run")[0]["guarantee"].startswith("none: noise differs")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["guarantee"].startswith("none: noise differs")


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they started."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return [one for child in children for one in (child, *descendants(child))]


def kill_at_random(words: list[str], folder: Path, kills: int, steps: int, *, group: bool) -> None:
    """Start the command and kill it, its whole group or only the parent, again and again, all over the run.

    Every fourth kill falls into the start, the others after a step, or in the middle of the next one, of an evaluation
    or of saving.
    """
    moments = random.Random(kills)  # noqa: S311 - only to choose when to kill
    reached = []
    for number, target in enumerate(sorted(moments.sample(range(1, steps * 7 // 10), kills))):
        if number % 4 == 3:
            process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
            time.sleep(4 * moments.random())
        else:
            process = started(words, folder, target, start_new_session=True)
            time.sleep(0.1 * moments.random())
        children = descendants(process.pid)
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        assert process.wait() == -signal.SIGKILL
        deadline = time.monotonic() + 20
        while any(map(is_alive, children)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(is_alive, children))
        last = folder / "last" / "checkpoint.json"
        reached.append(json.loads(last.read_text())["step"] if last.exists() else 0)
    assert 0 < reached[-1] < steps
    assert len(set(reached)) >= kills // 2


@pytest.mark.parametrize(("kills", "group"), [(2, False), pytest.param(2, True, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_ends_with_the_same_bits(command, tmp_path, kills, group):
    more = ("federated.central_steps=30", "federated.evaluate_every=15")
    assert run(command("whole", *more)).returncode == 0
    kill_at_random(command("killed", *more, workers=2), tmp_path / "killed", kills, 30, group=group)
    finished = run(command("killed", *more, workers=2))
    assert finished.returncode == 0, finished.stderr
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    assert [line["step"] for line in steps_of(tmp_path / "killed")] == list(range(1, 31))
    # What was done again gave the same noised sums: nothing was charged twice, and the ledgers are the same.
    ledgers = [(tmp_path / name / "ledger.jsonl").read_bytes() for name in ("whole", "killed")]
    assert ledgers[0] == ledgers[1]


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "group"), [(20, True), (5, False)])
def test_killed_very_often_it_ends_with_the_same_bits(command, tmp_path, kills, group):
    more = ("federated.central_steps=1000", "federated.evaluate_every=50", "federated.checkpoint_every=5")
    assert run(command("whole", *more)).returncode == 0
    kill_at_random(command("killed", *more, workers=2), tmp_path / "killed", kills, 1000, group=group)
    assert run(command("killed", *more, workers=2)).returncode == 0
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")


def test_stopped_and_going_on_it_ends_with_the_same_bits(command, tmp_path):
    more = ("federated.central_steps=24", "federated.evaluate_every=12")
    assert run(command("whole", *more)).returncode == 0
    process = started(command("stopped", *more, workers=2), tmp_path / "stopped")
    process.terminate()
    assert process.wait(timeout=60) == 143
    step = json.loads((tmp_path / "stopped" / "last" / "checkpoint.json").read_text())["step"]
    assert step == len(steps_of(tmp_path / "stopped")) < 24
    assert run(command("stopped", *more)).returncode == 0
    # The ledger names the model that the stop has saved, so its end, which a checkpoint holds, is another.
    stopped, whole = ({key: one for key, one in digests(tmp_path / name).items() if "checkpoint.json" not in key}
                      for name in ("stopped", "whole"))  # fmt: skip
    assert stopped == whole


def test_ctrl_c_finishes_the_step_and_saves(command, tmp_path):
    words = command("run", "federated.central_steps=100000", "federated.checkpoint_every=100000", workers=2)
    process = started(words, tmp_path / "run", start_new_session=True)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 130
    saved = json.loads((tmp_path / "run" / "last" / "checkpoint.json").read_text())["step"]
    assert saved == len(steps_of(tmp_path / "run")) > 0


def test_a_run_goes_on_where_it_was_moved_to(command, tmp_path):
    assert run(command("whole")).returncode == 0
    assert run(command("before", "federated.central_steps=3")).returncode == 0
    (tmp_path / "before").rename(tmp_path / "after")
    (tmp_path / "train.txt").rename(tmp_path / "users.txt")
    words = [word.replace("train.txt", "users.txt") for word in command("after")]
    assert run(words).returncode == 0
    after, whole = digests(tmp_path / "after"), digests(tmp_path / "whole")
    assert after["last/model.safetensors"] == whole["last/model.safetensors"]


def test_when_one_worker_fails_only_its_error_is_shown(command, tmp_path):
    assert run(command("run", "federated.central_steps=2")).returncode == 0
    failed = run(command("run", "federated.central_steps=2", "seed=1", workers=3))
    assert "was started with another seed" in error_line(failed)
    assert failed.stderr.count("\n") == 1


def test_a_worker_that_is_killed_ends_the_others(command, tmp_path):
    process = started(command("run", "federated.central_steps=100000", workers=3), tmp_path / "run")
    workers = descendants(process.pid)[-3:]  # in the order of their start: process numbers begin again at some time
    os.kill(workers[1], signal.SIGKILL)
    assert process.wait(timeout=30) == 1
    assert not any(map(is_alive, workers))


def ledger_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def test_secure_randomness_does_not_repeat_and_what_is_done_again_is_charged_again(command, tmp_path):
    secure = ("randomness.source=secure", "federated.central_steps=12", "federated.evaluate_every=12")
    for name, workers in (("one", 1), ("two", 2)):
        process = started(command(name, *secure, workers=workers), tmp_path / name)
        process.kill()
        process.wait()
        time.sleep(0.5)
        charged = [line["step"] for line in ledger_of(tmp_path / name) if "release" in line]
        assert len(charged) >= len(steps_of(tmp_path / name)) > 0  # charged before it is told
        last = tmp_path / name / "last" / "checkpoint.json"
        saved = json.loads(last.read_text())["step"] if last.exists() else 0
        finished = run(command(name, *secure, workers=workers))
        assert finished.returncode == 0, finished.stderr
        assert "simulation" not in metrics(tmp_path / name)[0]["guarantee"]
        again = [line["step"] for line in ledger_of(tmp_path / name) if "release" in line]
        assert again == [*charged, *range(saved, 12)]
        assert json.loads((tmp_path / name / "result.json").read_text())["releases"] == len(again)
    assert digests(tmp_path / "one") != digests(tmp_path / "two")


CORRELATED = (
    *("privacy.noise.name=correlated", "privacy.noise.bands=3", "privacy.noise.steps=9"),
    *("participation.sampling=cyclic", "participation.cohort_size=1.5", "federated.evaluate_every=100"),
)


@pytest.mark.parametrize("strategy", ["toeplitz", pytest.param("blocks", marks=pytest.mark.slow)])
def test_correlated_noise_survives_kills_to_the_bit_on_any_number_of_workers(command, tmp_path, strategy):
    more = (*CORRELATED, f"privacy.noise.strategy={strategy}", "federated.central_steps=16")
    assert run(command("whole", *more)).returncode == 0
    kill_at_random(command("killed", *more, workers=2), tmp_path / "killed", 1, 16, group=False)
    finished = run(command("killed", *more, workers=2))
    assert finished.returncode == 0, finished.stderr
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    ledgers = [(tmp_path / name / "ledger.jsonl").read_bytes() for name in ("whole", "killed")]
    assert ledgers[0] == ledgers[1]
    assert verify(tmp_path / "killed").releases == 16
    account = open_account(tmp_path / "killed")
    assert {(event.sampling_prob, count) for event, count in account.spent.events.items()} == {(0.75, 6)}
    secret = tmp_path / "killed" / "last" / "noise.safetensors"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.stat().st_size < 2000  # keys, no vectors
    mismatch = run(command("wrong", *more, "participation.sampling=poisson"))
    assert mismatch.returncode != 0
    assert "participation.sampling=cyclic" in error_line(mismatch)
    changed = run(command("killed", *more, "privacy.noise.bands=2", "federated.central_steps=17"))
    assert changed.returncode != 0


def test_correlated_noise_of_a_killed_secure_run_starts_afresh(command, tmp_path):
    secure = (*CORRELATED, "randomness.source=secure", "federated.central_steps=12")
    process = started(command("run", *secure), tmp_path / "run", 4)
    process.kill()
    process.wait()
    finished = run(command("run", *secure))
    assert finished.returncode == 0, finished.stderr
    charges = open_account(tmp_path / "run").content.charges
    again = len(charges) - 12
    assert 0 <= again <= 1
    (count,) = open_account(tmp_path / "run").spent.events.values()
    assert count == 4 + again
    assert verify(tmp_path / "run").releases == 12 + again
    assert "noise.safetensors" not in sv.publish(tmp_path / "run", tmp_path / "public").files


def test_a_run_starts_from_a_seed_model(command, tmp_path, make_store):
    other = make_store({"x": 6}, name="other")
    settings = (*SMALL_MODEL, "central.steps=2", "central.evaluate_every=2")
    assert run(command_line("central", tmp_path / "seed", {"train": str(other.path)}, settings, 1)).returncode == 0
    words = command("next", "federated.central_steps=1", "privacy.sigma_dp=0", "federated.schedule.lr=1e-30")
    assert run([*words, "--seed-model", str(tmp_path / "seed")]).returncode == 0
    models = [tmp_path / name / "last" / "model.safetensors" for name in ("seed", "next")]
    one, other = map(load_file, models)  # what the seed model has heard is not in the other's description
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "trained on other speakers" in ledger_of(tmp_path / "next")[0]["seed_model"]
    failed = run([*command("wider", "model.width=24"), "--seed-model", str(tmp_path / "seed")])
    assert "has another shape than model.* of the preset" in error_line(failed)


def test_a_seed_model_that_was_trained_on_users_without_noise_is_refused(command, tmp_path):
    assert run(command("seed", "federated.central_steps=1", "privacy.sigma_dp=0")).returncode == 0
    failed = run([*command("next"), "--seed-model", str(tmp_path / "seed" / "last")])
    assert "was made with 6 of the users (train): their audio is in it without noise" in error_line(failed)
    assert not (tmp_path / "next" / "ledger.jsonl").exists()


def test_a_seed_model_that_was_trained_on_users_privately_adds_its_epsilon(command, tmp_path):
    assert run(command("seed", "federated.central_steps=2", "federated.evaluate_every=2")).returncode == 0
    words = [*command("next", "federated.central_steps=2"), "--seed-model", str(tmp_path / "seed" / "last")]
    assert run(words).returncode == 0
    header, *lines = ledger_of(tmp_path / "next")
    assert header["earlier"][0]["repetitions"] == {"1": 2}
    alone = [line["epsilon"] for line in ledger_of(tmp_path / "seed") if "release" in line]
    together = [line["epsilon"] for line in lines if "release" in line]
    assert alone[0] < alone[1] < together[0] < together[1]
    assert verify(tmp_path / "next").releases == 2
    both = composed([open_account(tmp_path / name) for name in ("seed", "next")])
    assert both == open_account(tmp_path / "next").spent  # the seed's releases count once
    charges = population_charges(tmp_path)
    assert len(charges) == 4
    secure = [*command("secure", "randomness.source=secure"), "--seed-model", str(tmp_path / "seed")]
    assert "was made with 6 of the users" in error_line(run(secure))  # seeded noise can be subtracted
    again = [*command("next", "federated.central_steps=3"), "--seed-model", str(tmp_path / "seed" / "last")]
    assert run(again).returncode == 0  # resumed
    planned = [line["guarantee"] for line in metrics(tmp_path / "next") if "guarantee" in line]
    assert all("with what the seed model has spent" in line for line in planned)
    assert verify(tmp_path / "next").epsilon > together[1]
    assert len(population_charges(tmp_path)) == 5


def test_a_private_seed_model_is_added_whoever_its_users_were(command, tmp_path):
    assert run(command("first", "federated.central_steps=1", "federated.evaluate_every=1")).returncode == 0
    settings = ("federated.central_steps=1", "participation.population=9", "participation.cohort_size=2")

    def after_first(name: str, users: str, *more: str) -> dict:
        (tmp_path / f"{name}.txt").write_text("\n".join(users))
        words = [word.replace("train.txt", f"{name}.txt") for word in command(name, *settings, *more)]
        without_test = [word for word in words if word != "--test" and "test.txt" not in word]
        assert run([*without_test, "--seed-model", str(tmp_path / "first")]).returncode == 0
        return ledger_of(tmp_path / name)[0]

    some, none = after_first("some", "ef"), after_first("none", "h")
    assert some["earlier"] == none["earlier"]
    assert some["seed_model"] == none["seed_model"]
    assert "earlier" not in after_first("stated", "h", "privacy.accept=[other_users]")
    # A model that only lies in the folder of a private run is not one of its models.
    (tmp_path / "first" / "evil").mkdir()
    shutil.copy(tmp_path / "none" / "last" / "model.safetensors", tmp_path / "first" / "evil")
    failed = run([*command("evil", *settings), "--seed-model", str(tmp_path / "first" / "evil")])
    assert "does not name the model" in error_line(failed)


def test_users_are_found_behind_a_private_run(command, tmp_path):
    settings = (*SMALL_MODEL, "central.steps=2", "central.evaluate_every=2")
    (tmp_path / "x.txt").write_text("a\nb")
    speech = {"train": f"{tmp_path}/corpus-store@{tmp_path}/x.txt"}
    assert run(command_line("central", tmp_path / "central", speech, settings, 1)).returncode == 0
    (tmp_path / "train.txt").write_text("c\nd")
    between = command("between", "federated.central_steps=1")
    assert run([*between, "--seed-model", str(tmp_path / "central")]).returncode == 0
    (tmp_path / "train.txt").write_text("a\nb\nc\nd")
    failed = run([*command("next"), "--seed-model", str(tmp_path / "between")])
    assert "was made with 2 of the users (train)" in error_line(failed)


def test_a_resumed_run_starts_from_the_model_that_its_ledger_names(command, tmp_path):
    assert run(command("run", "federated.central_steps=2")).returncode == 0
    assert run(command("other", "federated.central_steps=2", "seed=1")).returncode == 0
    kept = tmp_path / "run" / "last" / "model.safetensors"
    shutil.copy(tmp_path / "other" / "last" / "model.safetensors", kept)
    failed = run(command("run", "federated.central_steps=3"))
    assert "is not the model that" in error_line(failed)


def population_charges(folder: Path) -> list[dict]:
    lines = (folder / "corpus-store.privacy" / "ledger.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if "charge" in line]


def test_a_run_whose_checkpoint_names_no_ledger_is_refused(command, tmp_path):
    assert run(command("run", "federated.central_steps=2", "privacy.sigma_dp=0.0001")).returncode == 0
    path = tmp_path / "run" / "last" / "checkpoint.json"
    document = json.loads(path.read_text())
    del document["ledger"]
    path.write_text(json.dumps(document))
    (tmp_path / "run" / "ledger.jsonl").unlink()  # a new ledger would know nothing of the first two steps
    failed = run(command("run", "federated.central_steps=3", "privacy.sigma_dp=0.0001"))
    assert "does not say where its ledger ended" in error_line(failed)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


@pytest.mark.parametrize("noise", [pytest.param("1e-10", marks=pytest.mark.slow), "3e-6"])
def test_a_run_with_next_to_no_noise_ends_with_an_epsilon_by_rdp(command, tmp_path, noise):
    assert run(command("run", "federated.central_steps=2", f"privacy.sigma_dp={noise}")).returncode == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["epsilon_rdp"] > 1e9
    assert result["epsilon_pld"] is None
    assert "PLD refused" in result["guarantee"]
    for words in (("privacy", "verify"), ("privacy", "explain"), ("report",)):
        finished = run_here([*words, str(tmp_path / "run")])
        assert finished.returncode == 0, finished.stderr
    assert "There is no epsilon by privacy loss distributions: " in statement(open_account(tmp_path / "run"))
    claimed = run_here(
        ["privacy", "claim", str(tmp_path / "run"), "--cohort-size", "8", "--population", "90", "--json"]
    )
    assert json.loads(claimed.stdout)["pld"]["reason"]


def test_a_longer_run_never_shows_an_older_guarantee(command, tmp_path):
    assert run(command("run", "federated.central_steps=3")).returncode == 0
    before = json.loads((tmp_path / "run" / "result.json").read_text())
    assert before["releases"] == 3
    process = started(command("run", "federated.central_steps=5000"), tmp_path / "run")
    process.terminate()
    process.wait()
    assert not (tmp_path / "run" / "result.json").exists()
    last = json.loads((tmp_path / "run" / "last" / "checkpoint.json").read_text())["step"]
    assert last > 3
    assert run(command("run", f"federated.central_steps={last + 1}")).returncode == 0
    after = json.loads((tmp_path / "run" / "result.json").read_text())
    assert after["epsilon_rdp"] > before["epsilon_rdp"] > after["epsilon_rdp"] * 3 / (last + 1) / 2


def test_a_budget_stops_the_run_before_it_is_exceeded(command, tmp_path):
    assert run(command("free", "federated.central_steps=5")).returncode == 0
    spent = [line["epsilon"] for line in steps_of(tmp_path / "free")]
    shutil.rmtree(tmp_path / "corpus-store.privacy")  # as if they had never been used
    (tmp_path / "corpus-store" / "privacy.json").unlink()
    budget = f"privacy.budget={{epsilon: {(spent[2] + spent[3]) / 2}}}"
    finished = run(command("run", "federated.central_steps=5", budget, workers=2))
    assert finished.returncode == 0, finished.stderr
    assert "stopped after step 3 of 5" in finished.stderr
    assert "It was stopped by privacy.budget: the next step would spend more." in finished.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["releases"] == 3
    assert len(steps_of(tmp_path / "run")) == 3
    more = run(command("more", "seed=1", budget))  # the same users: nothing is left for another run
    assert "stopped after step 0 of 8" in more.stderr
    failed = run(command("none", "privacy.sigma_dp=0", "privacy.budget={epsilon: 5}"))
    assert "There is no epsilon: there is no noise" in error_line(failed)


def test_a_refused_run_leaves_nothing_that_stands_in_its_own_way(command, tmp_path):
    assert run(command("void", "federated.central_steps=1", "privacy.sigma_dp=0")).returncode == 0
    budget = ("federated.central_steps=1", "privacy.budget={epsilon: 1000000}")
    failed = run(command("run", *budget))
    assert "do not add up with this one" in error_line(failed)
    assert not (tmp_path / "run").exists()
    assert run(command("run", *budget, "privacy.accept=[unprotected_runs]")).returncode == 0


def test_a_run_keeps_its_mechanism(command, tmp_path):
    assert run(command("run", "federated.central_steps=1")).returncode == 0
    assert "a run keeps its mechanism" in error_line(run(command("run", "privacy.clip_norm=0.2")))
    (tmp_path / "run" / "config.json").unlink()
    assert "a run keeps its mechanism" in error_line(run(command("run", "privacy.sigma_dp=1")))
    assert "config.json is missing" in error_line(run(command("run")))
    assert len(ledger_of(tmp_path / "run")) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["participation.population=null"], "participation.population is required"),
        (["participation.cohort_size=7"], "cohort_size=7"),
        (["privacy.clip_norm=null"], "clip_norm: clipping and noise are measured in it"),
        (["privacy.target_delta=0.9"], "delta 0.9 is not below 1/K"),
        (["federated.local.epochs=1"], "steps or epochs, not both"),
        (["federated.locl.lr=1"], "Did you mean 'federated.local.lr'?"),
        (
            ["participation.sampling=fixed", "participation.population=9", "participation.cohort_size=8"],
            "a larger share than",
        ),
        (["participation.cap=6", "privacy.sigma_dp=1"], "With 7 it is at most 1 % of delta"),
        (["participation.population=5", "participation.cap=6"], "more users than participation.population=5"),
    ],
)
def test_bad_settings_are_one_line(command, sotto, settings, message):
    outcome = sotto(*command("run", *settings)[len(PYTHON) + 1 :])
    assert outcome.code == 1
    assert message in outcome.error


def test_two_runs_cannot_write_into_one_folder(command, tmp_path):
    first = started(command("run", "federated.central_steps=100000"), tmp_path / "run")
    second = run(command("run", "federated.central_steps=100000"))
    first.kill()
    first.wait()
    assert "Another process is writing" in error_line(second)
