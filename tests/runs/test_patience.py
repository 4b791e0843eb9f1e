"""Early stopping: when dev no longer improves, central training ends, and federated training where dev is public."""

import json
import signal

import pytest

from sottovoce.privacy.claims import claim_at, open_account, statement
from sottovoce.privacy.ledger import read_ledger
from sottovoce.runs.documents import Result
from sottovoce.runs.progress import TrainingProgress
from sottovoce.runs.verification import verify
from trainings import SMALL_MODEL, command_line, digests, error_line, metrics, run, started

# A model this small, at this rate, never writes a word: the WER on dev is 1 at every evaluation.
_HOPELESS = (*SMALL_MODEL, "batching.seconds=3")
CENTRAL = (
    *_HOPELESS,
    *("central.micro_batch_seconds=4", "central.micro_batches=1", "central.steps=60", "central.evaluate_every=2"),
    *("central.checkpoint_every=1", "central.schedule={lr: 1e-9}"),
)
FEDERATED = (
    *_HOPELESS,
    *("participation.population=6", "participation.cohort_size=4", "federated.local.steps=1"),
    *("privacy.clip_norm=0.1", "privacy.clipping=dim", "privacy.sigma_dp=0.5", "federated.central_steps=20"),
    *("federated.evaluate_every=1", "federated.schedule={lr: 1e-9}", "federated.patience=2"),
)


@pytest.fixture
def data(make_store, tmp_path):
    store = make_store({"a": 4, "b": 3, "c": 2, "d": 2, "e": 1, "f": 4, "g": 3, "h": 2})
    for name, speakers in {"train": "abcdef", "dev": "g"}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(speakers))
    return {name: f"{store.path}@{tmp_path}/{name}.txt" for name in ("train", "dev")}


def test_progress_counts_evaluations_since_the_lowest_wer():
    progress = TrainingProgress(step=1)
    counted = []
    for wer in (0.9, 0.9, 0.95, 0.8, 0.8):
        progress = progress.after_evaluation(wer)
        counted.append(progress.since_best)
    assert counted == [0, 1, 2, 0, 1]
    again = TrainingProgress.at(progress.checkpoint(5, None))
    assert (again.since_best, again.best_wer) == (1, 0.8)
    assert "since_best" not in TrainingProgress(step=1).checkpoint(1, None).content()  # files as they were


def test_central_training_ends_when_dev_no_longer_improves(data, tmp_path):
    def words(name: str, *more: str) -> list[str]:
        return command_line("central", tmp_path / name, data, (*CENTRAL, *more), 1)

    finished = run(words("run", "central.patience=3"))
    assert finished.returncode == 0, finished.stderr
    assert "stopped after step 8 of 60" in finished.stderr
    assert "by central.patience: 3 evaluations on dev brought no lower WER" in finished.stderr
    result = Result.read(tmp_path / "run")
    assert (result.steps, result.dev_wer, result.stopped) == (8, 1.0, "by central.patience")
    assert (result.guarantee, result.epsilon.tightest) == (None, None)
    before = digests(tmp_path / "run")
    assert run(words("run", "central.patience=3")).returncode == 0  # nothing is left to do
    assert digests(tmp_path / "run") == before
    more = run(words("run", "central.steps=10"))  # without patience it goes on
    assert "resuming after step 8 of 10" in more.stderr
    assert Result.read(tmp_path / "run").steps == 10


def test_a_killed_run_keeps_its_patience(data, tmp_path):
    words = command_line("central", tmp_path / "killed", data, (*CENTRAL, "central.patience=3"), 1)
    process = started(words, tmp_path / "killed", 5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run(words).returncode == 0
    whole = command_line("central", tmp_path / "whole", data, (*CENTRAL, "central.patience=3"), 1)
    assert run(whole).returncode == 0
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    assert metrics(tmp_path / "killed")[-1]["step"] == 8


def test_patience_needs_a_dev_set(data, tmp_path):
    train = {"train": data["train"]}
    line = error_line(run(command_line("central", tmp_path / "a", train, (*CENTRAL, "central.patience=1"), 1)))
    assert "central.patience counts evaluations on dev" in line
    assert "--dev" in error_line(run(command_line("federated", tmp_path / "b", train, FEDERATED, 1)))


def test_dev_ends_a_private_run_only_where_it_is_stated_to_be_public(data, tmp_path):
    def words(name: str, *more: str) -> list[str]:
        return command_line("federated", tmp_path / name, data, (*FEDERATED, *more), 1)

    accept = "privacy.accept=[large_delta, public_dev]"
    assert "public_dev" in error_line(run(words("refused", "privacy.accept=[large_delta]")))
    refused = error_line(run(words("refused", "privacy.accept=[large_delta, public_dev, same_audio]")))
    assert "must not decide when the run ends" in refused
    assert not (tmp_path / "refused").exists()
    finished = run(words("run", accept))
    assert finished.returncode == 0, finished.stderr
    result = Result.read(tmp_path / "run")
    assert (result.steps, result.releases, result.stopped) == (3, 3, "by federated.patience")
    verify(tmp_path / "run")
    # The end depends on releases, so epsilon is that of all planned steps, everywhere.
    account = open_account(tmp_path / "run")
    assert account.spent == account.header.spent(20)
    assert result.epsilon_rdp == pytest.approx(account.header.epsilon({1: 20}))
    claim = claim_at(account, cohort_size=4, population=6, accepted=("large_delta",))
    assert claim.releases == 20
    assert "counts all 20 planned steps" in statement(account)
    assert "dev is public speech" in statement(account)
    content = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert content is not None
    assert content.as_earlier().releases == 20
    assert "planned_steps=20, not 30" in error_line(run(words("run", accept, "federated.central_steps=30")))
    no_noise = ("privacy.sigma_dp=0", "privacy.accept=[]")  # nothing to protect, so nothing to state
    assert run(words("open", *no_noise)).returncode == 0
    assert json.loads((tmp_path / "open" / "result.json").read_text())["steps"] == 3


def test_a_run_of_more_than_a_day_says_so_at_its_start(data, tmp_path):
    settings = (*CENTRAL, "central.steps=100000000", "central.evaluate_every=6", "central.patience=1")
    finished = run(command_line("central", tmp_path / "long", data, settings, 1))
    assert finished.returncode == 0, finished.stderr
    (line,) = [line for line in finished.stderr.splitlines() if line.startswith("At this pace the run takes")]
    assert "days" in line
    assert "99,999,995 steps of" in line
    assert "central.max_minutes" in line
