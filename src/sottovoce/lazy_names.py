"""Packages whose names are loaded on first use, so that importing them is fast and does not load torch.

if TYPE_CHECKING:
    from sottovoce.runs.folder import Run

__all__ = ["Run"]
__getattr__ = lazy_names(__name__, {"folder": "Run"})
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package; `modules` has the names of each of its modules, with spaces between.

    A name must not be that of a module of the package: once the module is loaded, it would hide the name.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return get
