"""A run's folder as a researcher reads it, during a run and after it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pyarrow.compute as pc
import pytest

from report_runs import NOISE, make_data, make_run
from sottovoce.errors import ConfigError, DataError, PrivacyError
from sottovoce.evaluation.model import Model, load
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.run_files import METRICS_FILE
from sottovoce.runs import Run, RunConfig, Stop
from sottovoce.runs.metrics_log import Kept, MetricsLog


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A central and a federated run."""
    folder = tmp_path_factory.mktemp("runs")
    data = make_data(folder)
    make_run("federated", folder / "federated", data, (*NOISE, "privacy.clipping=dim"))
    make_run("central", folder / "central", data)
    make_run("central", folder / "without-dev", {"train": data["train"]}, ("central.steps=2",))
    return folder


def test_a_federated_run_has_typed_documents(folder):
    run = Run(str(folder / "federated"))
    assert run.config.setting("federated.central_steps") == 5
    assert run.config.sources["federated.central_steps"] == "--set federated.central_steps"
    assert run.checkpoint.step == run.result.steps == 5
    assert run.checkpoint.ledger.lines == 9  # header, releases, and the models of three checkpoints
    assert set(run.evaluations) == {"dev", "test"}
    assert run.result.test == run.evaluations["test"].total
    assert run.result.dev_wer == run.evaluations["dev"].wer
    assert set(run.evaluations["dev"].groups["sex"]) == {"f", "m"}


def test_epsilon_is_that_of_the_result_or_so_far_by_rdp(folder, tmp_path):
    run = Run(folder / "federated")
    assert run.epsilon == run.result.epsilon
    assert 0 < run.epsilon.pld <= run.epsilon.rdp
    shutil.copytree(folder / "federated", tmp_path / "run", symlinks=True)
    (tmp_path / "run" / "result.json").unlink()
    assert Run(tmp_path / "run").epsilon == Epsilons(rdp=run.epsilon.rdp)
    assert Run(folder / "central").epsilon == Epsilons()


def test_metrics_are_a_table_with_flat_columns_and_nulls(folder):
    run = Run(folder / "federated")
    lines = list(run.log.lines())
    table = run.metrics()
    assert table.num_rows == len(lines)
    assert table.column("step").to_pylist() == [line["step"] for line in lines]
    assert table.column("dev_wer").to_pylist() == [line.get("dev_wer") for line in lines]
    assert table.column("guarantee")[0].as_py() == lines[0]["guarantee"]
    norms = [line.get("not_private", {}).get("delta_norm") for line in lines]
    assert table.column("not_private.delta_norm").to_pylist() == norms
    ratio = "trust_ratios.conv.weight"
    assert table.column(ratio).to_pylist() == [line.get("trust_ratios", {}).get("conv.weight") for line in lines]
    steps = table.filter(pc.is_valid(table.column("central_lr")))
    assert steps.column("step").to_pylist() == [1, 2, 3, 4, 5]
    central = Run(folder / "central").metrics()
    assert pc.sum(pc.is_valid(central.column("layer_gradient_norms.conv.weight"))).as_py() == 3


def test_metrics_of_a_run_that_is_still_writing(folder, tmp_path):
    shutil.copytree(folder / "central", tmp_path / "run", symlinks=True)
    run = Run(tmp_path / "run")
    count = run.metrics().num_rows
    with (tmp_path / "run" / "private.jsonl").open("a") as file:
        file.write('{"step": 7, "los')
    assert run.metrics().num_rows == count
    for damaged in (
        *('{"loss": 2}', "[" * 200_000, '{"step": 2, "loss": "low"}', '{"step": 2, "not_private": 3}'),
        *('{"step": 2, "trust_ratios": {"conv.weight": "x"}}', '{"step": 2, "guarantee": 3}'),
    ):
        (tmp_path / "run" / "metrics.jsonl").write_text(f'{{"step": 1}}\n{damaged}\n')
        with pytest.raises(DataError, match=r"metrics.jsonl: line 2 is damaged"):
            run.metrics()
    assert Run(tmp_path / "nothing").metrics().num_rows == 0


def test_a_line_that_is_being_written_is_never_taken_for_damage(tmp_path):
    log = MetricsLog(tmp_path)
    writing = """
import itertools, os, sys
for number in itertools.count():
    if number % 20 == 0:
        file = os.open(sys.argv[1] + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.replace(sys.argv[1] + ".new", sys.argv[1])
    line = b'{"line": %d, "step": %d}\\n' % (number + 1, number + 1)
    os.write(file, line[:9])
    os.write(file, line[9:])
    if number % 20 == 19:
        os.close(file)
"""
    with subprocess.Popen([sys.executable, "-c", writing, log.private]) as writer:
        try:
            for _ in range(3000):
                assert all(line["step"] for line in log.lines())
        finally:
            writer.kill()


def test_models_are_the_best_and_the_last(folder):
    run = Run(folder / "central")
    for which in ("best", "last"):
        tensors = run.model(which).recogniser.flat.theta
        assert tensors.numel() > 0
    alone = Run(folder / "without-dev")
    assert not (alone.path / "best").exists()
    assert alone.model().recogniser.flat.theta.equal(alone.model("last").recogniser.flat.theta)
    assert type(alone.model()) is type(load(alone.path)) is Model


def test_the_guarantee_says_that_delta_is_too_large(folder, tmp_path):
    data = {key: value for key, value in make_data(tmp_path).items() if key == "train"}
    settings = (*NOISE, "privacy.clipping=dim", "privacy.target_delta=0.3", "federated.central_steps=1")
    with pytest.raises(PrivacyError, match=r"delta 0.3 is not below 1/K"):
        make_run("federated", tmp_path / "refused", data, settings)
    run = Run(make_run("federated", tmp_path / "run", data, (*settings, "privacy.accept=[large_delta]")))
    assert "caution: delta 0.3 is not below 1/K = 0.25" in run.result.guarantee
    assert "caution" not in Run(folder / "federated").result.guarantee


def test_a_folder_that_is_no_run_says_so(tmp_path):
    run = Run(tmp_path)
    assert run.checkpoint is None
    assert run.result is None
    assert not run.evaluations
    assert run.epsilon == Epsilons()
    with pytest.raises(DataError, match=r"config.json is missing"):
        _ = run.config
    with pytest.raises(DataError, match="There is no model"):
        run.model()


def test_a_run_leaves_signals_as_they_were(tmp_path):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stop = Stop()
    stop.listen()
    stop.listen()  # a benchmark listens, and each of its runs
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.votes() == [1.0, 0.0]
    stop.release()
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_a_training_in_a_thread_leaves_signals_alone():
    before, stop = signal.getsignal(signal.SIGTERM), Stop()
    thread = threading.Thread(target=stop.listen)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("private", [False, True])
def test_the_time_of_a_resumed_run_continues(tmp_path, private):
    times = [{"elapsed_seconds": 10.0 * step} for step in (1, 2, 3)]
    timed = [{"not_private": time} if private else time for time in times]
    lines = [
        {"step": 0, "guarantee": "none"},
        *({"step": step, "lr": 0.1, **time} for step, time in enumerate(timed, 1)),
    ]
    (tmp_path / METRICS_FILE).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert MetricsLog(tmp_path).cut(2, -1) == Kept(elapsed_seconds=20.0, last=3)
    assert list(MetricsLog(tmp_path).lines()) == lines[:3]
    assert MetricsLog(tmp_path).cut(0, -1) == Kept()


@pytest.fixture
def old_run(folder, tmp_path):
    """A federated run whose stored configuration can be changed to that of an older version."""
    run = Run(shutil.copytree(folder / "federated", tmp_path / "run", symlinks=True))
    today = run.config

    def change(change_):
        config = json.loads(json.dumps(today.config))
        change_(config)
        RunConfig(config=config, data=today.data).write(run.path)
        return run, today

    return change


def test_an_option_that_is_newer_than_the_run_does_not_stop_it_from_resuming(old_run):
    def forget(config):
        del config["federated"]["local"]["rule"], config["privacy"]["diagnostics"], config["hardware"]

    run, today = old_run(forget)
    run.begin(today, ())
    assert run.config.config == today.config


def test_a_newer_option_with_another_value_than_the_default_is_a_change(old_run):
    run, today = old_run(lambda config: config["privacy"].pop("sigma_dp"))
    with pytest.raises(ConfigError, match=r"was started with another privacy\.sigma_dp"):
        run.begin(today, ())


def test_a_configuration_that_is_no_longer_valid_names_the_version_that_wrote_it(old_run):
    run, today = old_run(lambda config: config["privacy"].update(old_option=1))
    message = (
        r"run was started by sottovoce [0-9.]+; privacy\.old_option in its config\.json is not valid in this version"
    )
    with pytest.raises(ConfigError, match=message):
        run.begin(today, ())
    (run.path / "ledger.jsonl").unlink()
    with pytest.raises(ConfigError, match="was started by another version; "):
        run.begin(today, ())
    run, today = old_run(lambda config: config["central"].update(old_option=1))
    run.begin(today, ("central",))  # a section that may change anyway


def test_a_stored_kind_that_is_not_known_here_is_named(old_run):
    run, today = old_run(lambda config: config["privacy"].update(noise={"name": "unheard-of"}))
    with pytest.raises(ConfigError, match=r"config\.json: noise 'unheard-of' is not known here: import the module"):
        run.begin(today, ())


def test_a_run_begins_in_no_folder_of_something_else(folder, tmp_path):
    for kind, other in (("central", "federated"), ("federated", "central")):
        with pytest.raises(DataError, match=f"is a {other} run"):
            Run(folder / other).require_own(kind)
        Run(folder / kind).require_own(kind)
    for name, content in (("notes.txt", "mine"), ("config.json", '{"mine": 1}')):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match="Choose a new folder for the run"):
            make_run("central", tmp_path, {"train": "data.train={store: absent}"})
        assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, content)]
        (tmp_path / name).unlink()
