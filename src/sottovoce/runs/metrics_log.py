"""The metrics of a run, a JSON object per line for every step and every evaluation, in two files.

    RUN/metrics.jsonl    what the guarantee covers: functions of the releases and of public numbers
    RUN/private.jsonl    everything else: diagnostics, times, error rates on dev; only its owner can read it

`run_files.PUBLIC_METRICS` lists the public keys; a key that is not listed is private. Every line has `step`, the number
of steps done, and `line`, its number. **Lines of the same number are one line**, and are read as one. A central run has
no guarantee, so it has no public lines. Runs of earlier versions have everything in metrics.jsonl, without numbers.

A line is readable as soon as it is written. A run that resumes first removes the lines of the steps that it will
repeat, from both files.
"""

import heapq
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeGuard

import pyarrow as pa

from sottovoce.errors import DataError
from sottovoce.files import keep_private, make_folder, naming, open_private, open_shared, written_whole
from sottovoce.limits import LARGEST_WHOLE
from sottovoce.privacy.run_files import METRICS_FILE, PRIVATE_METRICS_FILE, PUBLIC_METRICS
from sottovoce.reading import BadDocument, open_regular, parse_json

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_NUMBERS = ("lr", "central_lr", "dev_wer")  # where a line has them
_NUMBER = "line"
_TEXTS = ("guarantee",)  # everything else is numbers
_SECTIONS = ("trust_ratios", "clip_norms", "layer_gradient_norms", "not_private")  # numbers by name
Line = Mapping[str, Any]  # a value is a number, null, or such a mapping; or one of the texts


class Kept(NamedTuple):
    """What is left of the metrics when a run resumes."""

    elapsed_seconds: float = 0.0  # trained until then
    last: int = 0  # the number of the last line


class MetricsLog:
    """The metrics on disk: reading them, and removing the lines that will be written again."""

    def __init__(self, run: Path) -> None:
        """Name the folder of the run."""
        self.public, self.private = run / METRICS_FILE, run / PRIVATE_METRICS_FILE

    def lines(self) -> Iterator[Line]:
        """Yield every whole line, public and private keys together.

        Raise DataError with the number of a line that is damaged. An incomplete last line is left out: the run is still
        writing it, or was killed.
        """
        return (line for _, line in self._numbered())

    def public_lines(self) -> Iterator[Line]:
        """Yield the public keys of every line that has some."""
        parts = (_part(line, number, public=True) for number, line in _read(self.public))
        return (part for part in parts if part is not None)

    def _numbered(self) -> Iterator[tuple[int, Line]]:
        """Yield every line with its number."""
        parts = heapq.merge(_read(self.public), _read(self.private), key=itemgetter(0))
        for number, same in groupby(parts, key=itemgetter(0)):
            yield number, {key: value for _, part in same for key, value in part.items()}

    def cut(self, step: int, evaluated: int) -> Kept:
        """Remove the lines that will be written again: steps after `step`, evaluations after `evaluated`.

        The metrics of an earlier version are taken apart, into public and private ones.
        """
        kept: dict[int, Line] = {}
        for number, line in self._numbered():
            if line["step"] > step or step == 0:  # a run that starts from the beginning states its guarantee again
                break
            if "dev_wer" not in line or line["step"] <= evaluated:
                kept[number] = line
        # Killed in between, the run reads the same lines: those of an earlier version are in both files then.
        _rewrite(self.private, (_part(line, number, public=False) for number, line in kept.items()), private=True)
        _rewrite(self.public, (_part(line, number, public=True) for number, line in kept.items()))
        return Kept(max(map(_elapsed_seconds, kept.values()), default=0.0), max(kept, default=0))

    def elapsed_seconds(self) -> float:
        """Return the seconds trained so far; 0 where no line tells."""
        return max(map(_elapsed_seconds, self.lines()), default=0.0)

    def table(self) -> pa.Table:
        """Return the lines as a table with flat columns; see `Run.metrics`."""
        rows = [dict(_flat(line, ".")) for line in self.lines()]
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: self._column(name, [row.get(name) for row in rows]) for name in names})

    def _column(self, name: str, values: list[Any]) -> pa.Array:
        """Return the values of one name, which are of one type, or null."""
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError):
            raise DataError(f"{self.public.parent}: {name!r} of the metrics has values of several types.") from None


def _read(path: Path) -> Iterator[tuple[int, Line]]:
    """Yield the whole lines of a file, each with its number; in earlier versions that is its place."""
    if not path.exists():
        return
    before = 0
    with open_regular(path) as file:
        # Nothing after an incomplete line: it would be the rest of that line, written meanwhile.
        for place, text in enumerate(takewhile(lambda text: text.endswith(b"\n"), file), 1):
            line = _parsed(text)
            number = None if line is None else line.pop(_NUMBER, place)
            if line is None or not _is_count(number) or number <= before:
                raise DataError(f"{path}: line {place} is damaged. Remove that line, and try again.")
            before = number
            yield number, line


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return a line; None where it is damaged."""
    try:
        line = parse_json(text)
    except BadDocument:
        return None
    if not isinstance(line, dict) or not _is_count(line.get("step")):
        return None
    sound = (
        all(_is_number(line.get(key, 0.0)) for key in _NUMBERS)
        and all(isinstance(line.get(key, {}), Mapping) for key in _SECTIONS)
        and all(isinstance(value, str) if key in _TEXTS else _holds_numbers(value) for key, value in line.items())
    )
    return line if sound else None


def _holds_numbers(value: object) -> bool:
    """Return whether a value is a number, null, or a section of such values."""
    if isinstance(value, Mapping):
        return all(map(_holds_numbers, value.values()))
    return value is None or (_is_number(value) and (isinstance(value, float) or abs(value) <= LARGEST_WHOLE))


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_WHOLE


def _part(line: Line, number: int, *, public: bool) -> Line | None:
    """Return the public or the private part of a line as it is written; None where there is nothing in it."""
    part = {key: value for key, value in line.items() if key != "step" and (key in PUBLIC_METRICS) == public}
    return {_NUMBER: number, "step": line["step"], **part} if part else None


def _rewrite(path: Path, lines: Iterable[Line | None], *, private: bool = False) -> None:
    """Replace a file of metrics; without a line there is no file."""
    texts = [_text(line) for line in lines if line is not None]
    if not texts:
        path.unlink(missing_ok=True)
        return
    with written_whole(path, private=private) as file:
        file.writelines(texts)


def _text(line: Line) -> bytes:
    return json.dumps(line).encode() + b"\n"


class MetricsWriter:
    """Appends lines to the metrics, and to TensorBoard events where tensorboard is installed."""

    def __init__(self, run: Path, done: int, last: int, *, events: bool = True) -> None:
        """Write after the line of the number `last`.

        With `events`, the first number opens the events, whose steps after `done` are void.
        """
        self._log, self._last = MetricsLog(run), last
        self._files: dict[bool, IO[bytes]] = {}  # by whether it is public; each is opened by its first line
        self._place, self._done = run / "tensorboard", done
        self._events_wanted = events  # and not open yet: loading tensorboard takes a while
        self._events: SummaryWriter | None = None

    def write(self, line: Line) -> None:
        """Add one line; it is readable at once."""
        self._last += 1
        for public in (False, True):
            part = _part(line, self._last, public=public)
            if part is not None:
                file = self._open(public=public)
                with naming(self._log.public if public else self._log.private):
                    file.write(_text(part))
                    file.flush()
        numbers = flat_numbers(line)
        with naming(self._place):
            if numbers and self._events_wanted:
                self._events, self._events_wanted = _tensorboard(self._place, self._done), False
            if self._events is not None:
                for key, value in numbers.items():
                    self._events.add_scalar(key, value, line["step"])

    def _open(self, *, public: bool) -> IO[bytes]:
        if public not in self._files:
            log = self._log
            self._files[public] = open_shared(log.public, "ab") if public else open_private(log.private, "ab")
        return self._files[public]

    def close(self) -> None:
        """Close everything."""
        with naming(self._place):
            for file in self._files.values():
                file.close()
            if self._events is not None:
                self._events.close()


def _elapsed_seconds(line: Line) -> float:
    """Return the seconds trained until a line was written; federated runs keep them under `not_private`."""
    for place in (line, line.get("not_private")):
        if isinstance(place, Mapping) and "elapsed_seconds" in place:
            return float(place["elapsed_seconds"])
    return 0.0


def flat_numbers(line: Line) -> dict[str, float]:
    """Return the numbers of a line, without those that count steps and lines, by name; a nested one is outer/inner."""
    counts = ("step", _NUMBER)
    return {key: value for key, value in _flat(line, "/") if key not in counts and isinstance(value, int | float)}


def _flat(line: Line, between: str, prefix: str = "") -> Iterator[tuple[str, float | str | None]]:
    """Yield the values of a line by name; those of a nested mapping as outer, separator, inner."""
    for key, value in line.items():
        if isinstance(value, Mapping):
            yield from _flat(value, between, f"{prefix}{key}{between}")
        else:
            yield f"{prefix}{key}", value


class _Quiet:
    """Says nothing of errors in TensorBoard's thread: they are raised where the next number is written."""

    def __init__(self, others: Callable[[threading.ExceptHookArgs], object]) -> None:
        self._others: Callable[[threading.ExceptHookArgs], object] = (
            others._others if isinstance(others, _Quiet) else others
        )

    def __call__(self, arguments: threading.ExceptHookArgs) -> None:
        if not type(arguments.thread).__module__.startswith("tensorboard."):
            self._others(arguments)


def _tensorboard(folder: Path, done: int) -> "SummaryWriter | None":
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return None
    make_folder(folder)
    keep_private(folder)
    threading.excepthook = _Quiet(threading.excepthook)
    return SummaryWriter(str(folder), purge_step=done + 1)
