"""Reading what others wrote: JSON, YAML and lists, within bounds on size, depth and number of values.

Files may be damaged or hostile. Guarantees: only regular files are read, so that no device or pipe is read without an
end; a file larger than its bound is not read at all; a document that is nested too deeply, or that grows beyond all
bounds when its aliases are followed, is refused before anything walks over it. Every fault is a `BadDocument` with the
reason, for whoever knows what the file should have been to say so in one line.
"""

import json
import os
import stat
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path
from typing import Any

from sottovoce.errors import DataError

DEEPEST = 64  # lists and sections inside one another; ours have at most a dozen
MOST_VALUES = 1_000_000  # in a YAML document, each alias followed
LARGEST_YAML = 1 << 20
LARGEST_LIST = 1 << 26  # of speakers: millions of names
_LISTS = (list, tuple, set)
LARGEST_JSON = 1 << 28  # of a run or a store; manifests of corpora are read as a stream


class BadDocument(ValueError):  # noqa: N818 - a finding, which the caller turns into an error for the user
    """Why a text is not a document that can be used."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; raise DataError for anything else, such as a pipe that nobody writes to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would block
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(f"{path} is not a regular file. Give the name of a file.")
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, most: int = LARGEST_JSON) -> bytes:
    """Return the content of a regular file of at most this many bytes; raise DataError for anything else.

    A file that does not exist raises FileNotFoundError, or NotADirectoryError, as usual.
    """
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            raise DataError(f"{path} has {size:,} bytes, more than the {most:,} of any such file. Check it.")
        content = file.read(most + 1)
    if len(content) > most:  # it has grown meanwhile
        raise DataError(f"{path} has more than {most:,} bytes. Check it.")
    return content


def parse_json(text: str | bytes) -> Any:
    """Return a JSON document; raise BadDocument where it is not JSON, or nested too deeply."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise BadDocument("nested too deeply") from None
    except ValueError as error:  # not JSON, not UTF-8, or a number of thousands of digits
        raise BadDocument(str(error)) from None
    if (text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")) > DEEPEST:
        _require_shallow(document)
    return document


def parse_yaml(text: str) -> Any:
    """Return a YAML document; raise BadDocument where it is not YAML, too large, or grows by aliases."""
    import yaml  # noqa: PLC0415 - few commands read YAML

    if len(text) > LARGEST_YAML:
        raise BadDocument(f"more than {LARGEST_YAML:,} characters")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is five times as fast
    try:
        _require_shallow_yaml(yaml.parse(text, loader))
        document = yaml.load(text, loader)  # noqa: S506 - both loaders are safe
    except RecursionError:
        raise BadDocument("nested too deeply") from None
    except (yaml.YAMLError, ValueError, OverflowError, AttributeError, TypeError) as error:  # dates that do not exist
        raise BadDocument(" ".join(str(error).split())) from None
    _require_shallow(document, MOST_VALUES)
    return document


def _require_shallow_yaml(events: Iterable[Any]) -> None:
    """Raise BadDocument where a document is nested too deeply, before it is built: libyaml's stack would overflow."""
    import yaml  # noqa: PLC0415 - few commands read YAML

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise BadDocument("nested too deeply")


def _require_shallow(document: Any, most: int | None = None) -> None:
    """Raise BadDocument where a document is nested too deeply, or has more values than `most`."""
    level, seen = [document], 0
    for _ in range(DEEPEST + 1):
        inner: list[Any] = []
        for value in level:
            inner.extend(value.values() if isinstance(value, dict) else value if isinstance(value, _LISTS) else ())
            if most is not None and seen + len(inner) > most:
                raise BadDocument("more values than any such document has")
        seen += len(inner)
        if not inner:
            return
        level = inner
    raise BadDocument(f"more than {DEEPEST} levels inside one another")
