"""The errors a user can meet. Each message is one line: the fact first, then what to do."""

import difflib
from collections.abc import Iterable


class SottoError(Exception):
    """Base of every error that is shown as one line instead of a traceback."""


class ConfigError(SottoError):
    """A preset, an option or a value that cannot be used."""


class DataError(SottoError):
    """A corpus, a store or a folder that is not what it should be."""


class PrivacyError(SottoError):
    """Something that would void the privacy guarantee. Never a warning."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" where a known name is near, and nothing otherwise: the end of a message."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
