"""The version of the code that computes a run, as a hash of its source.

It covers this package, without the rooms that change no result, and the modules outside it that define the kinds of
options that a configuration uses: a user's own encoder, optimizer, local rule or noise mechanism. Modules that those
import are not covered, nor are classes without a source file, such as those of an interactive session: of these only
the name counts.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from pydantic import BaseModel

# Rooms whose code does not change the result of a run.
_NO_PART = {"cli", "reports", "bench", "estimate", "presets", "__pycache__"}
_PACKAGE = "sottovoce"
_LIBRARIES = ("pydantic", "builtins", "abc", "typing", "enum", "pathlib")


def code_version(*options: object) -> str:
    """Return a hash of the source code that decides the result of a run with these options."""
    own = sorted({source for option in options for source in _own_sources(option)})
    return _hash([("", _package_version()), *own]) if own else _package_version()


@cache
def _package_version() -> str:
    return _hash(_sources(resources.files(_PACKAGE), ""))


def _hash(sources: Iterable[tuple[str, str]]) -> str:
    hasher = hashlib.sha256()
    for path, text in sources:
        hasher.update(f"{path}\0{text}\0".encode())
    return hasher.hexdigest()


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name not in _NO_PART:
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield f"{prefix}{entry.name}", entry.read_text(encoding="utf-8")


def _own_sources(value: object) -> Iterator[tuple[str, str]]:
    """Yield the name and the source of every class outside the package that options, at any depth, are made of."""
    if isinstance(value, BaseModel):
        for kind in type(value).__mro__:
            if kind.__module__.split(".")[0] not in (_PACKAGE, *_LIBRARIES):
                yield f"{kind.__module__}.{kind.__qualname__}", _module_source(kind)
        for name in type(value).model_fields:
            yield from _own_sources(getattr(value, name))
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _own_sources(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _own_sources(part)


def _module_source(kind: type) -> str:
    """Return the source of the module that defines a class; empty where there is none."""
    module = sys.modules.get(kind.__module__)
    try:
        return "" if module is None else inspect.getsource(module)
    except (OSError, TypeError):
        return ""
