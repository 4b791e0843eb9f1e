"""Errors for the user. Each message is one line: the fact first, then what to do."""

import difflib
import re
import signal
from collections.abc import Iterable


class SottoError(Exception):
    """The base of all errors that are shown as one line instead of a traceback."""

    exit_code = 1


class ConfigError(SottoError):
    """An invalid preset, option or value."""


class DataError(SottoError):
    """A missing, damaged or unsuitable corpus, store or folder."""


class PrivacyError(SottoError):
    """A violation of the privacy guarantee. It is always raised and never a warning."""


class StoppedError(SottoError):
    """Work that SIGTERM has ended before its time. What was done is saved."""

    exit_code = 128 + signal.SIGTERM


_NO_MEMORY = re.compile(
    r"cannot allocate|can't allocate|bad_alloc|failed to map segment|start new thread|out of memory", re.I
)


def out_of_memory(error: BaseException) -> SottoError | None:
    """Return the error for the user where memory, or a place for a thread, could not be had; None for other errors."""
    if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
        return SottoError("There is not enough memory. Free some, allow more (ulimit -v), or use fewer --workers.")
    if isinstance(error, ImportError):
        reason = " ".join(str(error).split())[:300]
        return SottoError(f"A library cannot be loaded ({reason}). Allow more memory (ulimit -v), or install again.")
    return None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" for the end of a message if a known name is similar, else an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def with_full_stop(message: str) -> str:
    """Return a message that ends a sentence exactly once: a question or a full stop stays as it is."""
    message = message.rstrip()
    return message if message.endswith("?") else f"{message.rstrip('.')}."


# How pydantic describes a wrong value, and how we do. The first pattern that fits is used.
_EXPECTED = (
    (r"a valid integer.*", "a whole number"),
    (r"a valid number.*", "a number"),
    (r"a valid boolean.*", "true or false"),
    (r"a valid string.*", "text"),
    (r"a valid (?:list|tuple).*", "a list"),
    (r"a valid dictionary.*", "keys and values"),
    (r"greater than or equal to (.*)", r"at least \1"),
    (r"greater than (.*)", r"more than \1"),
    (r"less than or equal to (.*)", r"at most \1"),
)


def expectation(message: str) -> str:
    """Return pydantic's message about a wrong value in our words, such as "expected a whole number"."""
    message = message.removeprefix("Value error, ")
    wrong, start, expected = message.partition("Input should be ")
    if wrong or not start:
        return re.sub(r"^Expected\b", "expected", message)
    for pattern, words in _EXPECTED:
        if re.fullmatch(pattern, expected):
            expected = re.sub(pattern, words, expected)
            break
    return "expected " + re.sub(r"\b0\.0{4,}\d+", lambda number: f"{float(number[0]):g}", expected)
