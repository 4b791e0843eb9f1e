"""Packages whose names are loaded on first use have every name that they list, whatever was loaded before."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

ROOMS = (
    *("auditing", "bench", "central", "data", "estimate", "evaluation", "federated", "model", "privacy", "reports"),
    "runs",
)
PACKAGES = ("sottovoce", *(f"sottovoce.{room}" for room in ROOMS))


@pytest.mark.parametrize("name", PACKAGES)
def test_every_listed_name_exists_and_no_module_hides_it(name):
    package = importlib.import_module(name)
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__)
    for listed in package.__all__:
        assert not inspect.ismodule(getattr(package, listed))
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = package.nothing


def test_importing_the_packages_does_not_load_torch():
    code = f"import sys, {', '.join(PACKAGES)}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
