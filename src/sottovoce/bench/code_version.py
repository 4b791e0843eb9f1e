"""The version of the code that computes a run.

Of this package it is the declared `ALGORITHM`, not its source: a change that alters no bit trains nothing again. Of
kinds of options that a user defines outside it (an encoder, optimizer, local rule or noise mechanism) it is the source
of their modules. Modules that those import are not covered, nor are classes without a source file, such as those of an
interactive session: of these only the name counts.

The version of torch and the type of CPU or GPU alter bits, too, but are no part of it: a run may resume on another
machine of a cluster. A run records them instead (`runs/machine.py`), and tables say where they differ.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from sottovoce.version import ALGORITHM

_PACKAGE = "sottovoce"
_LIBRARIES = ("pydantic", "builtins", "abc", "typing", "enum", "pathlib")


def code_version(*options: object) -> str:
    """Return what identifies the code that decides the result of a run with these options."""
    own = sorted({source for option in options for source in _own_sources(option)})
    if not own:
        return str(ALGORITHM)
    hasher = hashlib.sha256()
    for name, text in own:
        hasher.update(f"{name}\0{text}\0".encode())
    return f"{ALGORITHM} {hasher.hexdigest()}"


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
