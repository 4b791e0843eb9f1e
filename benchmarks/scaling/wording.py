"""Numbers and tables for the page."""

import textwrap
from collections.abc import Iterable, Sequence

from validation import Spread

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def duration(seconds: float) -> str:
    """Return a time with a unit that suits it: 142 s, 3.4 s, 21 ms, 0.7 ns."""
    for size, unit in _UNITS:
        if abs(seconds) >= size or unit == "ns":
            return f"{digits(seconds / size)} {unit}"
    raise AssertionError


def line(fixed: float, slope: float, per: str) -> str:
    """Return a law of seconds: 33 ms + 12 ms per user. A part of zero is left out."""
    if slope == 0:
        return f"{duration(fixed)}, no growth"
    start = f"{duration(fixed)} + " if fixed > 0 else ""
    return f"{start}{duration(slope)} per {per}"


def digits(value: float) -> str:
    """Return a number with two or three digits that count and separators: 0.071, 3.4, 142, 12,345."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.3g}"
    return f"{value:.2g}"


def percent(share: float) -> str:
    """Return a share in percent: 0.3 %, 12 %."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.1f} %"


def signed_percent(share: float) -> str:
    """Return a difference in percent, with its sign."""
    return f"{100 * share:+.1f} %"


def spread(values: Spread) -> str:
    """Return a median of differences with its range."""
    return f"{signed_percent(values.median)} ({signed_percent(values.least)} to {signed_percent(values.most)})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def wrapped(text: str) -> str:
    """Wrap the paragraphs and lists of a page; headings, tables, pictures and formulas stay as they are."""
    return "\n\n".join(map(_wrapped_block, text.split("\n\n")))


def _wrapped_block(block: str) -> str:
    if block.startswith(("#", "|", "!", "    ")):
        return block
    if not block.startswith("- "):
        return _filled(block, "")
    return "\n".join(_filled(item, "  ") for item in block.split("\n- "))


def _filled(text: str, indent: str) -> str:
    marked = f"- {text.removeprefix('- ')}" if indent else text
    words = " ".join(marked.split())
    return textwrap.fill(words, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
