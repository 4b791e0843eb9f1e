"""sotto train ... --dry-run: what a run would do, measured on its own data, without writing anything."""

import pytest

from conftest import store_content
from sottovoce.data.population import Population
from sottovoce.estimate import step_time
from sottovoce.privacy.claims import claim_for
from sottovoce.runs.documents import Result
from trainings import SMALL_MODEL, command_line, error_line, run

SETTINGS = (
    *SMALL_MODEL,
    *("batching.seconds=3", "participation.population=6", "participation.cohort_size=4"),
    *("privacy.clip_norm=0.1", "privacy.clipping=dim", "privacy.sigma_dp=0.5", "privacy.accept=[large_delta]"),
    *("federated.local.steps=2", "federated.central_steps=8", "federated.evaluate_every=4"),
)


@pytest.fixture
def store(make_store):
    return make_store({"a": 6, "b": 3, "c": 2, "d": 5, "e": 1, "f": 4, "g": 3})


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(step_time, "MEASURED_SECONDS", 0.3)


@pytest.fixture
def dry(store, tmp_path, sotto):
    """Run a training with --dry-run and return its figures; nothing may appear or change."""
    for name, speakers in {"train": "abcdef", "dev": "g"}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(speakers))
    data = {name: f"{store.path}@{tmp_path}/{name}.txt" for name in ("train", "dev")}

    def plan(kind, *settings, given=data):
        words = command_line(kind, tmp_path / "run", given, (*SETTINGS, *settings), 1)[3:]
        files, content = sorted(tmp_path.rglob("*")), store_content(store.path)
        outcome = sotto(*words, "--dry-run", "--json")
        assert (sorted(tmp_path.rglob("*")), store_content(store.path)) == (files, content)
        return outcome

    plan.data = data
    return plan


def test_a_federated_run_is_planned_from_its_own_users(dry):
    planned = dry("federated").document
    step = planned["step"]
    assert (planned["steps"], planned["steps_done"], planned["evaluations"]) == (8, 0, 2)
    assert step["users"] == pytest.approx(4)
    assert (step["local"]["steps"], step["local"]["most_steps"]) == (2, 2)
    assert planned["local_work"] == "2 local steps"
    assert step["seconds"] > 0
    assert planned["seconds_left"] == pytest.approx(8 * step["seconds"], abs=5 * planned["seconds_per_evaluation"] + 1)
    sizes = {"sigma_dp": 0.5, "cohort_size": 4, "population": 6, "central_steps": 8, "accepted": ("large_delta",)}
    expected = claim_for(**sizes, target_delta=1e-9, sampling="poisson").accounted.epsilons
    assert planned["privacy"]["epsilon_rdp"] == pytest.approx(expected.rdp)
    assert planned["privacy"]["epsilon_pld"] == pytest.approx(expected.pld)


def test_what_it_plans_is_what_the_run_does(dry, store, tmp_path):
    planned = dry("federated").document
    words = command_line("federated", tmp_path / "run", dry.data, SETTINGS, 1)
    assert run(words).returncode == 0
    result = Result.read(tmp_path / "run")
    assert result.epsilon_rdp == pytest.approx(planned["privacy"]["epsilon_rdp"])
    assert result.epsilon_pld == pytest.approx(planned["privacy"]["epsilon_pld"])
    used = sum(path.stat().st_size for path in (tmp_path / "run" / "checkpoints").rglob("*") if path.is_file())
    assert planned["disk_bytes"] == pytest.approx(used, rel=0.7)
    more = dry("federated", "federated.central_steps=12").document
    assert (more["steps_done"], more["steps"], more["evaluations"]) == (8, 12, 1)


def test_without_steps_or_epochs_users_train_ten_epochs_and_the_plan_says_so(dry):
    settings = ("federated.local.steps=null", "federated.central_steps=2000000", "privacy.sigma_dp=0")
    planned = dry("federated", *settings).document
    assert planned["privacy"]["no_guarantee"] == "there is no noise (privacy.sigma_dp=0)"
    assert planned["local_work"].startswith("10 local epochs (passes over all their audio, the default")
    assert planned["step"]["local"]["audio_seconds"] == pytest.approx(10 * planned["step"]["local"]["own_seconds"])
    assert planned["more_than_a_day"]
    assert "federated.local.steps" in planned["shorter"]


def test_a_budget_ends_the_plan(dry):
    whole = dry("federated").document["privacy"]
    budget = f"privacy.budget.epsilon={whole['epsilon_rdp'] / 2}"
    part = dry("federated", budget).document["privacy"]
    assert 0 < part["budget_steps"] < 8
    assert part["epsilon_rdp"] <= whole["epsilon_rdp"] / 2


def test_a_central_run_is_planned_from_its_batches(dry, store):
    settings = ("central.steps=50", "central.micro_batch_seconds=4", "central.micro_batches=2")
    planned = dry("central", *settings, "central.evaluate_every=10").document
    step = planned["step"]
    assert (planned["evaluations"], planned["privacy"], step["users"]) == (5, None, None)
    assert step["utterances"] * step["steps_per_epoch"] == pytest.approx(21)
    seconds = Population.of(store, "abcdef").seconds_by_user().sum()
    assert step["audio_seconds"] * step["steps_per_epoch"] == pytest.approx(seconds, rel=0.03)  # edges of frames
    assert planned["minutes_end_at"] is None
    short = dry("central", *settings, "central.steps=1000000", "central.max_minutes=1").document
    assert short["seconds_left"] == 60
    assert short["minutes_end_at"] == pytest.approx(60 / short["step"]["seconds"], rel=0.2)


def test_a_dry_run_fails_as_the_run_would(dry, tmp_path):
    fixed = ("participation.sampling=fixed", "participation.population=7")
    assert "fewer users than participation.population=7" in dry("federated", *fixed).error
    assert "data.train is required" in dry("central", given={}).error
    train = {"train": dry.data["train"]}
    assert "counts evaluations on dev" in dry("central", "central.patience=2", given=train).error
    own = command_line("federated", tmp_path / "run", {}, ("users.dev_speakers=2", "users.test_speakers=2"), 1)
    assert "sotto data prepare preset tiny" in error_line(run([*own, "--dry-run"]))


def test_people_read_a_table(dry, sotto, tmp_path):
    words = command_line("federated", tmp_path / "run", dry.data, SETTINGS, 1)[3:]
    outcome = sotto(*words, "--dry-run")
    assert "epsilon at the end" in outcome.stdout
    assert "Measured now on this machine" in outcome.stderr
    assert "keep these figures to yourself" in outcome.stderr
    assert "Nothing was written" in outcome.stderr
