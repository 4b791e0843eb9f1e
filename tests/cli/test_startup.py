"""What a command loads before it has something to do, and Ctrl-C while it loads. Nothing here measures time."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainings import SMALL_MODEL

HEAVY = {"numpy", "torch", "pyarrow", "scipy", "matplotlib", "soundfile", "yaml", "sottovoce.config"}
GROUPS = ("config", "train", "privacy", "bench")

# Runs a command and prints the names of the modules that it has loaded.
LOADED = """
import json, sys
from sottovoce.cli.main import run
try:
    run()
finally:
    sys.stderr.write("\\n" + json.dumps(sorted(sys.modules)))
"""
# Runs a command that is interrupted when it imports the module named first.
INTERRUPTED = """
import sys
module = sys.argv.pop(1)
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from sottovoce.cli.main import run
run()
"""
# A local rule that notes, at the first local step, the modules of its process and the state of the garbage collector.
NOTING = """
import gc
import sys
from pathlib import Path
from typing import Literal
from sottovoce.federated.local_rules.base import LocalRule, LocalState

class Noting(LocalRule):
    name: Literal["noting"] = "noting"

    def start(self, theta, user, t):
        if t == 0 and not Path("modules.txt").exists():
            Path("modules.txt").write_text("\\n".join(sys.modules))
            Path("collector.txt").write_text(f"{gc.isenabled()} {gc.get_freeze_count() > 10_000}")
        return LocalState()
"""


def modules_of(*words: object, cwd: Path | None = None) -> set[str]:
    """Run a command and return the modules that are loaded in its own process at the end."""
    command = [sys.executable, "-c", LOADED, *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stderr.splitlines()[-1]))


def test_the_version_loads_nothing_heavy():
    assert modules_of("--version") & (HEAVY | {"pydantic", "rich.markdown"}) == set()


@pytest.mark.parametrize("words", [[], *([name] for name in GROUPS), ["train", "federated"], ["demo"]])
def test_help_loads_nothing_heavy(words):
    assert modules_of(*words, "--help") & HEAVY == set()


@pytest.mark.parametrize("words", [["epsilon"], ["plan", "--epsilon", 2]])
def test_accounting_does_not_load_torch(words):
    if words[0] == "epsilon":
        words = [*words, "--sigma-dp", 1e-2]
    sizes = ["--cohort-size", 500, "--population", 10_000, "--central-steps", 10]
    assert "torch" not in modules_of("privacy", *words, *sizes)


def settings() -> Iterator[str]:
    yield from SMALL_MODEL
    yield from ("batching.seconds=3", "participation.population=3", "participation.cohort_size=3")
    yield from ("privacy.clip_norm=0.1", "privacy.clipping=dim", "privacy.sigma_dp=1", "participation.sampling=poisson")
    yield from ("federated.local.steps=1", "federated.central_steps=1", "federated.local.rule.name=noting")


def test_training_loads_what_its_first_step_needs_and_torch_only_in_workers(make_store, tmp_path):
    (tmp_path / "noting.py").write_text(NOTING)
    store = make_store({"a": 2, "b": 2, "c": 1}).path
    words = ["train", "federated", "tiny", "--run", "run", "--train", store, "--workers", 2]
    words += [word for setting in settings() for word in ("--set", setting)]
    starting = modules_of("--import", "noting.py", *words, cwd=tmp_path)
    late = {"matplotlib", "pandas", "dp_accounting", "tensorboard", "torch._dynamo", "sympy"}
    assert starting & (late | {"torch"}) == set()
    first_step = set((tmp_path / "modules.txt").read_text().splitlines())
    assert "torch" in first_step
    assert first_step & (late | {"scipy", "typer"}) == set()
    assert (tmp_path / "collector.txt").read_text() == "True True"  # it works, and leaves the loaded modules alone


@pytest.mark.parametrize("module", ["typer", "rich.console", "sottovoce.cli.config", "sottovoce.config", "numpy"])
def test_an_interrupt_while_modules_are_loaded_is_one_line(module):
    command = [sys.executable, "-c", INTERRUPTED, module, "config", "show", "quick"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.stderr == "Interrupted. Run the same command again to resume.\n"
    assert ran.returncode == 130
