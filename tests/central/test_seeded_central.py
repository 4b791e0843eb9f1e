"""Central training from a seed model, and the evaluation that every run keeps."""

import json

import pytest

from sottovoce.runs.folder import Run
from trainings import PYTHON, SMALL_MODEL, command_line, digests, error_line, metrics, run

SHORT = (
    *SMALL_MODEL,
    *("central.micro_batch_seconds=4", "central.micro_batches=2", "central.steps=4", "central.evaluate_every=4"),
    *("central.schedule.lr=0.01", "central.schedule.warmup=0"),
)


@pytest.fixture
def command(make_store, tmp_path):
    store = make_store({"a": 6, "b": 6, "c": 4, "d": 3})
    for name, speakers in {"train": "ab", "dev": "c", "test": "d"}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(speakers) + "\n")
    data = {name: f"{store.path}@{tmp_path}/{name}.txt" for name in ("train", "dev", "test")}

    def make(name: str, *settings: str) -> list[str]:
        return command_line("central", tmp_path / name, data, (*SHORT, *settings), 1, PYTHON)

    return make


def test_a_run_starts_from_its_seed_model_of_the_same_shape_and_goes_on_without_it(command, tmp_path):
    assert run(command("seed")).returncode == 0
    from_seed = [*command("next", "central.steps=8"), "--seed-model", str(tmp_path / "seed" / "last")]
    finished = run(from_seed)
    assert finished.returncode == 0, finished.stderr
    first = next(line["loss"] for line in metrics(tmp_path / "next") if "loss" in line)
    assert first < 0.9 * next(line["loss"] for line in metrics(tmp_path / "seed") if "loss" in line)
    assert digests(tmp_path / "next") != digests(tmp_path / "seed")
    other = [*command("other", "model.width=32"), "--seed-model", str(tmp_path / "seed")]
    assert "another shape" in error_line(run(other))
    assert not (tmp_path / "other" / "last").exists()
    again = run(command("next", "central.steps=9"))  # where it came from is known
    assert again.returncode == 0, again.stderr
    begun = json.loads((tmp_path / "next" / "config.json").read_text())
    assert begun["config"]["data"]["seed_model"].endswith("seed/last")


def test_every_run_keeps_its_evaluation_per_speaker(command, tmp_path):
    finished = run([*command("one"), "--json"])
    assert finished.returncode == 0, finished.stderr
    found = Run(tmp_path / "one").evaluations
    assert set(found) == {"dev", "test"}
    assert set(found["dev"].speakers.wer) == {"c"}
    assert found["test"].utterances == 3
    assert found["dev"].wer == [line["dev_wer"] for line in metrics(tmp_path / "one") if "dev_wer" in line][-1]
    assert json.loads(finished.stdout)["test"]["wer"] == found["test"].wer
    assert run(command("one", "central.steps=5")).returncode == 0  # another model
    assert Run(tmp_path / "one").evaluations["test"].steps == 5
