"""Output of the command line: results on stdout, everything else on stderr."""

import json
import math
import os
import re
import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

stderr = Console(stderr=True, highlight=False, emoji=False)
# Without a terminal, tables get a fixed width.
_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
stdout = Console(highlight=False, emoji=False, width=_WIDTH)

_LOG_SECONDS = 10.0
# What a terminal takes as commands, or draws in another order than it stands there: control characters but for tab and
# line end, marks of direction, halves of characters.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def safe(text: str) -> str:
    """Return a text without anything that a terminal would obey: such characters become visible, as in \\x1b.

    Names, labels, columns and ledgers come from files of others. Every text is printed through this.
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def note(message: str) -> None:
    """Print a message on stderr."""
    stderr.print(safe(message), soft_wrap=True, markup=False)


def say(text: str) -> None:
    """Print a text on stdout."""
    stdout.print(safe(text), soft_wrap=True, markup=False)


def counted(number: int, name: str, plural: str | None = None) -> str:
    """Return a number with the name of its things: 1 checkpoint, 2 checkpoints."""
    return f"{number:,} {name if number == 1 else plural or f'{name}s'}"


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    text = json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def _finite(document: Any) -> Any:
    """Return a document for JSON, which has no word for numbers that are not finite: they become null."""
    if isinstance(document, float):
        return document if math.isfinite(document) else None
    if isinstance(document, dict):
        return {key: _finite(value) for key, value in document.items()}
    return [_finite(value) for value in document] if isinstance(document, list | tuple) else document


def print_table(title: str, header: list[str], rows: list[list[str]], text_columns: int = 1) -> None:
    """Print a table; the first `text_columns` columns are aligned left, the others, with numbers, right."""
    if title:
        say(title)
    table = Table(show_header=any(header))
    for place, name in enumerate(header):
        table.add_column(escape(safe(name)), justify="left" if place < text_columns else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(safe(value)) for value in row))
    stdout.print(table)


class ProgressDisplay:
    """A progress bar with the remaining time on a terminal, and a line every few seconds elsewhere.

    Example:
        with ProgressDisplay() as progress:
            progress("features", done, total)
    """

    def __init__(self, hidden: bool = False) -> None:
        """Create the bar, which appears with __enter__; a hidden one never appears (another process shows it)."""
        self._hidden = hidden
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=stderr,
            disable=hidden or not stderr.is_terminal,
            redirect_stdout=False,  # results go where the user sends them, not to the terminal of the bar
        )
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, tuple[float, int]] = {}
        self._last_line = time.monotonic()

    def __enter__(self) -> "ProgressDisplay":
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; the last state stays on the screen."""
        self._bar.stop()

    def __call__(self, work: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of the work are done; a total of 0 is unknown."""
        if work not in self._tasks:
            self._tasks[work] = self._bar.add_task(escape(safe(work)), total=total or None, completed=done)
            self._started[work] = (time.monotonic(), done)
        self._bar.update(self._tasks[work], completed=done, total=total or None)
        if self._hidden or stderr.is_terminal:
            return
        if time.monotonic() - self._last_line > _LOG_SECONDS:
            self._last_line = time.monotonic()
            since, first = self._started[work]
            rate = (done - first) / (self._last_line - since)
            left = f", {(total - done) / rate:.0f} s left" if total and rate > 0 else ""
            note(f"{work}: {done:,} of {total:,}{left}" if total else f"{work}: {done:,}")
