"""The page of trainings that go on: drawn anew whenever the runs have changed, until all of them have ended."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sottovoce.errors import DataError, PrivacyError
from sottovoce.privacy.ledger import LEDGER_FILE
from sottovoce.reports.page import AnyPath, DrawnPage, Report, draw_page, places_of, require_page, write_page
from sottovoce.runs.folder import Run
from sottovoce.runs.following import FollowedRun

_SHARE = 4  # the page waits this many times as long as drawing it took: the training needs the processor, too
_TRIES = 3  # a run that is writing may look damaged for a moment


def follow(
    runs: AnyPath | Sequence[AnyPath],
    out: AnyPath | None = None,
    *,
    title: str | None = None,
    every: float = 5.0,
    say: Callable[[str], None] = lambda _message: None,
) -> Report:
    """Write the page of runs again and again, about `every` seconds, until all of them have ended; then return it.

    Until then, the page reloads itself. The last one does not, and has its figures and tables beside it. Runs that have
    not started yet, and the first checkpoint of a run with a ledger, are waited for. Interrupted, it leaves the page as
    it is then, and raises KeyboardInterrupt.
    """
    folders, page = places_of(runs, out)
    require_page(page)
    following = _Following([FollowedRun(folder) for folder in folders], page, title, every, say)
    try:
        while not following.look():
            time.sleep(following.pause)
    except KeyboardInterrupt:
        if following.drawn is not None:
            write_page(following.drawn, page)
        raise
    return write_page(draw_page(folders, page, title=title), page)


def _can_be_verified(run: Path) -> bool:
    """Return whether a ledger can be compared with a checkpoint, without which no page shows an epsilon."""
    return Run(run).begun or not (run / LEDGER_FILE).exists()


class _Following:
    def __init__(
        self, runs: Sequence[FollowedRun], page: Path, title: str | None, every: float, say: Callable[[str], None]
    ) -> None:
        self._runs, self._page, self._title, self._every, self._say = runs, page, title, every, say
        self._seen: object = None
        self._failed = 0
        self._waiting: list[Path] = []
        self.drawn: DrawnPage | None = None
        self.pause = every

    def look(self) -> bool:
        """Write the page where a run has changed; return whether all runs have ended."""
        try:
            return self._look()
        except (DataError, PrivacyError):
            self._failed += 1
            if self._failed >= _TRIES:
                raise
            return False

    def _look(self) -> bool:
        states = {run.path: run.look() for run in self._runs}
        if all(status.ended for status in states.values()):
            return True
        started = [path for path, status in states.items() if status.state not in ("not started", "starting")]
        begun = [path for path in started if _can_be_verified(path)]
        waiting = [path for path in states if path not in begun]
        if waiting and waiting != self._waiting:
            what = "the first checkpoint of" if all(path in started for path in waiting) else "the start of"
            self._say(f"Waiting for {what} {', '.join(map(str, waiting))}. Ctrl-C ends this.")
        self._waiting = waiting
        version = [run.version for run in self._runs]
        if begun and version != self._seen:
            began = time.monotonic()
            self.drawn = draw_page(begun, self._page, title=self._title)
            write_page(self.drawn, self._page, reload_seconds=self._every)
            if self._seen is None:  # once
                self._say(f"{self._page} follows the training: open it in a browser. Ctrl-C ends this.")
            self._seen, self._failed = version, 0
            self.pause = max(self._every, _SHARE * (time.monotonic() - began))
        return False
