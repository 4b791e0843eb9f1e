"""The page in a real browser: narrow and wide, light and dark, on paper, pointed at, and while a training goes on."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from report_runs import four_runs
from sottovoce.privacy.accounting import rounded_up
from sottovoce.reports.page import draw_page, write_page
from sottovoce.runs.folder import Run

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs a browser: install Debian's chromium")
WIDTHS, SCHEMES = (390, 1280), ("light", "dark")


class ReloadedError(Exception):
    """The page was loaded again while it was asked for something."""


class Browser:
    """Chromium without a window, told what to do through a pair of pipes (its DevTools protocol, no library needed)."""

    def __init__(self, profile: Path) -> None:
        """Start it with an empty profile."""
        (commands, self._write), (self._read, answers) = os.pipe(), os.pipe()
        # Out of the way of 3 and 4, where the browser looks for them.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 64) for end in (commands, answers)]
        words = [
            *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *(f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"),
        ]
        actions = [
            *((os.POSIX_SPAWN_DUP2, mine, wanted) for mine, wanted in zip(theirs, (3, 4), strict=True)),
            *((os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)),
        ]
        self._pid = os.posix_spawn(words[0], words, os.environ, file_actions=actions)
        for end in (commands, answers, *theirs):
            os.close(end)
        self._numbers, self._rest = itertools.count(1), b""
        self._session: str | None = None
        self._loaded = False
        self.complaints: list[str] = []
        self.asked_for: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Inspector"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; what the page says meanwhile is kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        for answer in self._answers():
            if answer.get("id") == number:
                if "navigated" in answer.get("error", {}).get("message", ""):
                    raise ReloadedError
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)
        raise AssertionError("The browser ended.")

    def wait_for_loading(self) -> None:
        """Wait until the page is there: that may be told before or after the answer to opening it."""
        while not self._loaded:
            self._note(next(self._answers()))

    def _answers(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" not in self._rest:
                assert select.select([self._read], [], [], 60)[0], "The browser does not answer."
                more = os.read(self._read, 1 << 20)
                if not more:
                    return
                self._rest += more
            message, _, self._rest = self._rest.partition(b"\0")
            yield json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        assert method != "Inspector.targetCrashed", "The page's process has ended."
        if method == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.asked_for.append(parameters["request"]["url"])

    def show(self, page: Path, width: int, scheme: str) -> None:
        """Open a page on a screen of this width, in this colour scheme."""
        phone = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=phone)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._loaded = False
        self.ask("Page.navigate", url=page.absolute().as_uri())
        self.wait_for_loading()

    def measure(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def settled(self, script: str, seconds: float = 30.0) -> Any:
        """Return the first value of an expression that is neither null nor false; the page may reload meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(ReloadedError):
                value = self.measure(f"document.readyState == 'complete' ? ({script}) : null")
                if value is not None and value is not False:
                    return value
            time.sleep(0.05)
        raise AssertionError(f"This did not become true: {script}")

    def picture(self, path: Path) -> bytes:
        """Save the whole page as a PNG."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True, format="png")["data"]
        path.write_bytes(base64.b64decode(data))
        return path.read_bytes()

    def close(self) -> None:
        """End it."""
        self._session = None
        self.ask("Browser.close")
        os.close(self._write)
        os.close(self._read)
        os.waitpid(self._pid, 0)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def page() -> Path:
    return four_runs().page


OPEN_ALL = "document.querySelectorAll('details').forEach(one => { one.open = true })"
# What sticks out of the page although nothing it lies in scrolls.
STICKING_OUT = """
[...document.querySelectorAll('body *')]
  .filter(one => !one.closest('.scroll') && !one.closest('svg'))
  .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map(one => one.outerHTML.slice(0, 80))
"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
INK = "getComputedStyle(document.querySelector('svg text')).fill"


def brightness(colour: str) -> float:
    """Return how bright a colour such as rgb(1, 2, 3) is, from 0 to 255."""
    return sum(map(float, colour[colour.index("(") + 1 : -1].split(",")[:3])) / 3


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_on_a_screen(browser: Browser, page: Path, tmp_path: Path, width: int, scheme: str) -> None:
    browser.show(page, width, scheme)
    assert browser.measure("innerWidth") == width
    for script in ("", OPEN_ALL):
        browser.measure(script)
        widths = browser.measure("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert widths[0] <= widths[1] == width
        assert browser.measure(STICKING_OUT) == []
    table = browser.measure("(one => [one.scrollWidth, one.clientWidth])(document.querySelector('#results .scroll'))")
    assert width > 600 or table[0] <= table[1]  # the headline table needs no scrolling
    background, ink = brightness(browser.measure(BACKGROUND)), brightness(browser.measure(INK))
    assert (background > 200 and ink < 80) if scheme == "light" else (background < 60 and ink > 180)
    sizes = browser.measure("[...document.querySelectorAll('svg text')].map(one => one.getBoundingClientRect().height)")
    assert min(size for size in sizes if size) >= 9  # letters of figures stay readable
    panels = browser.measure(
        "[...document.querySelectorAll('.panel svg')].map(one => one.getBoundingClientRect().width).filter(Boolean)"
    )
    assert all(250 < panel <= width for panel in panels)
    wide = browser.measure(
        "[...document.querySelectorAll('.panels.wide')].map(one => [...one.children]"
        ".map(panel => panel.getBoundingClientRect().width).filter(Boolean))"
    )
    assert all(len(shown) == 1 and shown[0] > 0.85 * min(width, 1184) for shown in wide)  # one drawing, all the width
    top = browser.measure("document.querySelector('#results figure').getBoundingClientRect().top + scrollY")
    assert top < 844  # the page opens with its figure

    picture = browser.picture(tmp_path / f"{width}-{scheme}.png")
    assert struct.unpack(">I", picture[16:20])[0] == width
    assert len(picture) > 100_000
    assert browser.complaints == []
    assert set(browser.asked_for) == {page.as_uri()}  # nothing is fetched, from this machine or any other


def pointed_at(browser: Browser, selector: str) -> tuple[float, float]:
    """Scroll to a point of the first curve of a panel and return where it is on the screen."""
    script = f"""(() => {{
      const panel = [...document.querySelectorAll({selector!r})].find(one => one.getBoundingClientRect().width > 0);
      panel.scrollIntoView({{block: "center", behavior: "instant"}});
      const values = JSON.parse(panel.dataset.values), curve = values.curves[0], box = values.box;
      const along = (axis, value) => {{
        const scaled = one => axis.log ? Math.log(one) : one;
        return (scaled(value) - scaled(axis.ends[0])) / (scaled(axis.ends[1]) - scaled(axis.ends[0]));
      }};
      const x = box[0] + along(values.x, curve.x[0]) * (box[2] - box[0]);
      const y = box[3] + along(values.y, curve.y[0]) * (box[1] - box[3]);
      const at = new DOMPoint(x, y).matrixTransform(panel.querySelector("svg").getScreenCTM());
      return [at.x, at.y];
    }})()"""
    x, y = browser.measure(script)
    return x, y


TIP = "(tip => tip.hidden ? '' : tip.innerText)(document.querySelector('.tip'))"
STEPS = "#steps [data-values]"
# A circle of the drawing lies where the script believes the first point to be.
DRAWN_THERE = """(() => {
  const middle = box => [box.x + box.width / 2, box.y + box.height / 2];
  const mark = document.querySelector('.at'), [x, y] = middle(mark.getBoundingClientRect());
  return [...mark.closest('.panel').querySelectorAll('use')].map(one => middle(one.getBoundingClientRect()))
    .some(at => Math.hypot(at[0] - x, at[1] - y) < 1);
})()"""


def test_pointing_at_a_figure_shows_its_values(browser: Browser, page: Path) -> None:
    wers = [line["dev_wer"] for line in Run(page.parent / "free").log.lines() if "dev_wer" in line]
    for width in WIDTHS:
        browser.show(page, width, "light")
        x, y = pointed_at(browser, STEPS)
        if width < 600:  # a tap
            for kind, touches in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
                browser.ask("Input.dispatchTouchEvent", type=kind, touchPoints=touches)
        else:
            browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        text = browser.measure(TIP)
        assert "central step: 2" in text
        assert any(f"free: {float(f'{100 * wer:.4g}'):g}" in text for wer in wers), text
        assert browser.measure(DRAWN_THERE)
        outside = browser.measure(
            "(r => r.left < 0 || r.right > innerWidth)(document.querySelector('.tip').getBoundingClientRect())"
        )
        assert not outside
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    assert browser.measure(TIP) == ""
    assert browser.complaints == []


def test_arrow_keys_move_along_a_curve_and_escape_ends_it(browser: Browser, page: Path) -> None:
    browser.show(page, 1280, "dark")
    browser.measure(f"[...document.querySelectorAll('{STEPS}')].find(one => one.offsetWidth).focus()")
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Home"):
        browser.ask("Input.dispatchKeyEvent", type="keyDown", key=key)
        said.append(browser.measure(TIP))
    assert "central step: 2" in said[0]
    assert "central step: 4" in said[1]
    assert all(said)
    browser.ask("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    assert browser.measure(TIP) == ""


def test_an_epsilon_is_shown_rounded_up(browser: Browser, page: Path) -> None:
    browser.show(page, 1280, "light")
    shown = browser.measure(
        "[...document.querySelectorAll('#privacy-utility [data-values]')].flatMap(one => "
        "JSON.parse(one.dataset.values).curves.filter(one => one.shows == 'xy').flatMap(one => one.x))"
    )
    spent = [Run(page.parent / name).epsilon.tightest for name in ("dim0", "dim1")]
    assert {float(rounded_up(value)) for value in spent if value is not None} <= set(shown)


def test_paper_has_no_folds_and_no_clipped_tables(browser: Browser, page: Path) -> None:
    browser.show(page, 700, "dark")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    assert brightness(browser.measure(BACKGROUND)) > 200  # whatever the screen prefers
    browser.measure("dispatchEvent(new Event('beforeprint'))")
    assert browser.measure("[...document.querySelectorAll('details')].every(one => one.open)")
    too_wide = (
        "[...document.querySelectorAll('table')].filter(one => one.getBoundingClientRect().right > "
        "document.documentElement.clientWidth + 1).map(one => one.innerText.slice(0, 60))"
    )
    assert browser.measure(too_wide) == []
    assert browser.measure(
        "[...document.querySelectorAll('figure, .panels')].every(one => getComputedStyle(one).breakInside == 'avoid')"
    )
    browser.measure("dispatchEvent(new Event('afterprint'))")
    assert not browser.measure("document.querySelector('details').open")
    browser.ask("Emulation.setEmulatedMedia", media="")
    data = browser.ask("Page.printToPDF")["data"]
    assert base64.b64decode(data).startswith(b"%PDF")


def test_without_its_script_the_page_is_whole(browser: Browser, page: Path) -> None:
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.show(page, 1280, "light")
        assert browser.measure("document.querySelectorAll('figure').length") > 5
        assert browser.measure("document.querySelectorAll('.tip, [data-values][tabindex]').length") == 0
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)


PLACE = "document.getElementById('speakers').getBoundingClientRect().top"


def test_the_page_of_a_training_reloads_itself_and_keeps_its_place(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    live = tmp_path / "live.html"
    drawn = draw_page([page.parent / "free"], live, title="first")
    write_page(drawn, live, reload_seconds=1)
    assert not (tmp_path / "live_files").exists()
    browser.show(live, 1280, "light")
    browser.settled(
        "(document.querySelectorAll('#privacy details').forEach(one => { one.open = true }),"
        "scrollBy(0, document.getElementById('speakers').getBoundingClientRect().top + 40), true)"
    )
    before = browser.settled(PLACE)
    write_page(replace(drawn, title="second"), live, reload_seconds=1)
    for title in ("second", "last"):
        assert browser.settled(f"document.title == '{title}'")
        assert browser.settled("document.querySelector('#privacy details').open")
        assert browser.settled("!document.querySelector('#provenance details').open")
        assert abs(browser.settled(PLACE) - before) < 2
        write_page(replace(drawn, title="last"), live)
    assert (tmp_path / "live_files" / "results.csv").is_file()
    assert browser.measure("document.body.dataset.reload === undefined && history.state === null")


def test_the_measurements_would_find_something(browser: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<p style='width: 3000px'>wide</p><script>console.error('no'); missing()</script><img src='no.png'>")
    before = len(browser.asked_for)
    browser.show(bad, 390, "light")
    assert browser.measure("document.documentElement.scrollWidth") > 390
    assert browser.measure(STICKING_OUT)
    assert len(browser.complaints) >= 2
    assert len(browser.asked_for) == before + 2
