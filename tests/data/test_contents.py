"""The packages as tables of contents."""

import importlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["sottovoce.data", "sottovoce.data.corpora", "sottovoce.features"])
def test_every_listed_name_exists_and_torch_is_not_loaded(package):
    module = importlib.import_module(package)
    assert module.__doc__
    assert all(hasattr(module, name) for name in module.__all__)
    script = f"import sys, {package}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
