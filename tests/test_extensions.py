"""A user's own module through the command line: named by --import, installed, known to workers, missing, broken."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sottovoce
from sottovoce.errors import ConfigError
from sottovoce.extensions import import_extension
from trainings import SMALL_MODEL

MODULE = """
from typing import Literal

import sottovoce as sv
from sottovoce.model.model_options import TransformerOptions
from sottovoce.privacy.noise import Gaussian


class {prefix}Noise(Gaussian):
    name: Literal["{prefix}-noise"] = "{prefix}-noise"


class {prefix}Rule(sv.LocalRule):
    name: Literal["{prefix}-rule"] = "{prefix}-rule"


class {prefix}Sgd(sv.Sgd):
    name: Literal["{prefix}-sgd"] = "{prefix}-sgd"


class {prefix}Transformer(TransformerOptions):
    kind: Literal["{prefix}-transformer"] = "{prefix}-transformer"
"""
SETTINGS = (
    *("batching.seconds=3", "participation.population=3", "participation.cohort_size=2", "privacy.clip_norm=0.1"),
    *("privacy.clipping=dim", "privacy.sigma_dp=1", "federated.local.steps=1", "federated.central_steps=2"),
    *("model.kind=own-transformer", *SMALL_MODEL, "federated.optimizer.name=own-sgd"),
    *("federated.local.rule.name=own-rule", "privacy.noise.name=own-noise"),
)


RUN = """
import json, sys
from sottovoce.cli.main import run
for words in json.loads(sys.argv[1]):
    sys.argv = ["sotto", *words]
    try:
        run()
    except SystemExit as leaving:
        print(json.dumps({"code": leaving.code or 0}))
"""


def commands(*each, cwd, path=()):
    """Run `sotto` commands in one process of their own: a module that one test imports must not be known to another.

    Return the exit code of each, and what they printed on stderr.
    """
    places = [str(Path(sottovoce.__file__).parents[1]), *map(str, path)]
    ran = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps([list(map(str, words)) for words in each])],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONSAFEPATH": "1"},
    )
    assert "Traceback" not in ran.stderr
    codes = [json.loads(line)["code"] for line in ran.stdout.splitlines() if line.startswith('{"code"')]
    return codes, ran.stderr


def succeeded(*each, **options):
    codes, errors = commands(*each, **options)
    assert codes == [0] * len(each), errors


def errors_of(*each, **options):
    codes, errors = commands(*each, **options)
    assert codes == [1] * len(each), errors
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == len(each)
    return lines


@pytest.fixture
def store(make_store):
    return make_store({"a": 2, "b": 2, "c": 1}).path


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "modules" / "own_kinds.py"
    path.parent.mkdir()
    path.write_text(MODULE.format(prefix="own"))
    return path


def training(run, store, workers=1):
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["train", "federated", "tiny", "--run", run, "--train", store, "--workers", workers, *settings]


def test_a_run_with_kinds_of_ones_own_needs_their_module(store, module, tmp_path):
    run = tmp_path / "run"
    succeeded(["--import", module, *training("run", store, workers=2)], cwd=tmp_path)
    header = json.loads((run / "ledger.jsonl").read_text().splitlines()[0])
    assert header["noise_mechanism"] == {"name": "own-noise"}
    by_name = ("--import", "own_kinds")  # found in the current folder
    succeeded(
        [*by_name, "privacy", "verify", run],
        [*by_name, "eval", run, store, "--workers", 1],
        [*by_name, "report", run, "--out", tmp_path / "report.html"],
        cwd=module.parent,
    )
    verifying, evaluating, resuming = errors_of(
        ["privacy", "verify", run], ["eval", run, store], training("run", store), cwd=tmp_path
    )
    assert "ledger.jsonl: the header: noise 'own-noise' is not known here: import the module" in verifying
    assert "encoder 'own-transformer' is not known here: import the" in evaluating
    assert "model.kind='own-transformer'" in resuming
    assert "import the module that defines it (sotto --import MODULE ...)" in resuming


def test_an_installed_extension_needs_no_option(store, module, tmp_path):
    about = module.parent / "own_kinds-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-kinds\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[sottovoce.extensions]\nown = own_kinds\n")
    installed = {"path": [module.parent], "cwd": tmp_path}
    succeeded(training("run", store), ["privacy", "verify", "run"], **installed)
    header = json.loads((tmp_path / "run" / "ledger.jsonl").read_text().splitlines()[0])
    assert header["noise_mechanism"] == {"name": "own-noise"}
    module.write_text("1 / 0\n")
    succeeded(["config", "show", "tiny"], **installed)  # asks for no unknown kind
    (broken,) = errors_of(["config", "show", "tiny", "--set", "privacy.noise.name=own-noise"], **installed)
    assert "The installed extension 'own' fails with ZeroDivisionError: division by zero" in broken
    assert "own_kinds.py, line 1" in broken


def test_two_modules_with_one_name_matter_only_to_whoever_asks_for_it(module):
    (module.parent / "other.py").write_text(MODULE.format(prefix="own"))
    both = ("--import", "own_kinds", "--import", "other")
    succeeded([*both, "config", "show", "tiny"], cwd=module.parent)
    asking = [*both, "config", "show", "tiny", "--set", "privacy.noise.name=own-noise"]
    clash = ["error: own_kinds.ownNoise and other.ownNoise both have name='own-noise'. Rename one."]
    assert errors_of(asking, cwd=module.parent) == clash


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nowhere.py", None, "There is no file .*nowhere.py. Check --import."),
        ("nowhere", None, "there is no module 'nowhere'"),
        ("json.py", "", "json.py has the name of another module, json. Rename the file."),
        ("failing_module.py", "\nraise ValueError('no\\n luck')", "fails with ValueError: no luck .*line 2"),
        ("needy_module.py", "import not_installed_at_all", "ModuleNotFoundError: No module named 'not_installed_at"),
        ("unfinished_module.py", "def (", "fails with SyntaxError: invalid syntax"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_line(name, content, message, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    place = str(tmp_path / name) if name.endswith(".py") else name
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message) as error:
        import_extension(place)
    assert "\n" not in str(error.value)
