"""The metrics of a run: RUN/metrics.jsonl, a JSON object per line, for every step and every evaluation.

Every line has `step`, the number of steps done. A line is readable as soon as it is written. A run that resumes first
removes the lines of the steps that it will repeat.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sottovoce.errors import DataError
from sottovoce.files import written_whole

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

METRICS_FILE = "metrics.jsonl"
_NUMBERS = ("lr", "central_lr", "dev_wer")  # where a line has them
Line = Mapping[str, Any]  # a value is a number, a text, null, or such a mapping


class MetricsLog:
    """The metrics on disk: reading them, and removing the lines that will be written again."""

    def __init__(self, run: Path) -> None:
        """Name the folder of the run."""
        self.path = run / METRICS_FILE

    def lines(self) -> Iterator[Line]:
        """Yield every whole line; raise DataError with the number of a line that is damaged.

        An incomplete last line is left out: the run is still writing it, or was killed.
        """
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text.endswith(b"\n"):
                    yield self._parsed(text, number)

    def _parsed(self, text: bytes, number: int) -> Line:
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise self._damaged(number)
        if not all(isinstance(line.get(key, 0.0), int | float) for key in _NUMBERS):
            raise self._damaged(number)
        return line

    def _damaged(self, number: int) -> DataError:
        return DataError(f"{self.path}: line {number} is damaged. Remove that line, and try again.")

    def cut(self, step: int, evaluated: int) -> float:
        """Remove the lines that will be written again: steps after `step`, evaluations after `evaluated`.

        Return the seconds trained until then.
        """
        if not self.path.exists():
            return 0.0
        kept: list[Line] = []
        for line in self.lines():
            if line["step"] > step or step == 0:  # a run that starts from the beginning states its guarantee again
                break
            if "dev_wer" not in line or line["step"] <= evaluated:
                kept.append(line)
        with written_whole(self.path) as file:
            file.writelines(json.dumps(line).encode() + b"\n" for line in kept)
        return max(map(_elapsed_seconds, kept), default=0.0)

    def table(self) -> pa.Table:
        """Return the lines as a table with flat columns; see `Run.metrics`."""
        rows = [dict(_flat(line, ".")) for line in self.lines()]
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: [row.get(name) for row in rows] for name in names})


class MetricsWriter:
    """Appends lines to the metrics, and to TensorBoard events where tensorboard is installed."""

    def __init__(self, run: Path, done: int, *, events: bool = True) -> None:
        """Open the metrics; with `events`, the first number opens the events, whose steps after `done` are void."""
        self._file = (run / METRICS_FILE).open("a", encoding="utf-8")
        self._place, self._done = run / "tensorboard", done
        self._events_wanted = events  # and not open yet: loading tensorboard takes a while
        self._events: SummaryWriter | None = None

    def write(self, line: Line) -> None:
        """Add one line; it is readable at once."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        numbers = {key: value for key, value in _flat(line, "/") if key != "step" and isinstance(value, int | float)}
        if numbers and self._events_wanted:
            self._events, self._events_wanted = _tensorboard(self._place, self._done), False
        if self._events is not None:
            for key, value in numbers.items():
                self._events.add_scalar(key, value, line["step"])

    def close(self) -> None:
        """Close both."""
        self._file.close()
        if self._events is not None:
            self._events.close()


def _elapsed_seconds(line: Line) -> float:
    """Return the seconds trained until a line was written; federated runs keep them under `not_private`."""
    for place in (line, line.get("not_private")):
        if isinstance(place, Mapping) and "elapsed_seconds" in place:
            return float(place["elapsed_seconds"])
    return 0.0


def _flat(line: Line, between: str, prefix: str = "") -> Iterator[tuple[str, float | str | None]]:
    """Yield the values of a line by name; those of a nested mapping as outer, separator, inner."""
    for key, value in line.items():
        if isinstance(value, Mapping):
            yield from _flat(value, between, f"{prefix}{key}{between}")
        else:
            yield f"{prefix}{key}", value


def _tensorboard(folder: Path, done: int) -> "SummaryWriter | None":
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=done + 1)
