"""Errors for the user. Each message is one line: the fact first, then what to do."""

import difflib
from collections.abc import Iterable


class SottoError(Exception):
    """The base of all errors that are shown as one line instead of a traceback."""


class ConfigError(SottoError):
    """An invalid preset, option or value."""


class DataError(SottoError):
    """A missing, damaged or unsuitable corpus, store or folder."""


class PrivacyError(SottoError):
    """A violation of the privacy guarantee. It is always raised and never a warning."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" for the end of a message if a known name is similar, else an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
