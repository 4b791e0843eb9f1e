"""The version of the code of a run: which sources it covers."""

import importlib
import linecache
import sys

from sottovoce.bench.code_version import code_version
from sottovoce.config import resolve
from sottovoce.optim import Adam

SOURCE = """
from typing import Literal

from sottovoce.optim import Adam


class Own(Adam):
    name: Literal["own-of-{name}"] = "own-of-{name}"
    b1: float = {b1}
"""


def own_optimizer(folder, monkeypatch, name, b1):
    """Write a module with an optimizer, import it and return an instance."""
    (folder / f"{name}.py").write_text(SOURCE.format(name=name, b1=b1))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    linecache.checkcache()
    return importlib.import_module(name).Own()


def test_kinds_of_the_package_are_covered_by_the_package_alone():
    config = resolve("tiny").config
    assert code_version(config.federated, config.privacy, config.seed) == code_version() == code_version(Adam())


def test_the_source_of_an_own_kind_counts_at_any_depth(tmp_path, monkeypatch):
    own = own_optimizer(tmp_path, monkeypatch, "own_code_a", 0.5)
    federated = resolve("tiny", {"federated": {"optimizer": own}}).config.federated
    first = code_version(federated)
    assert first == code_version(own) != code_version()
    (tmp_path / "own_code_a.py").write_text((tmp_path / "own_code_a.py").read_text() + "# changed\n")
    linecache.checkcache()
    assert code_version(federated) != first


def test_a_kind_without_a_source_counts_by_its_name():
    own = type("Nowhere", (Adam,), {"__module__": "no_such_module"})()
    assert code_version(own) != code_version()
