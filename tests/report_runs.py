"""Real runs for the tests of the report: trained here, in seconds, on audio made on the spot."""

import atexit
import contextlib
import functools
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from conftest import write_audio
from sottovoce.central.central_training import train_central
from sottovoce.config import parse_setting, resolve
from sottovoce.data.corpora import Table
from sottovoce.data.preparation import prepare
from sottovoce.distributed import Group
from sottovoce.federated.federated_training import train_federated
from sottovoce.privacy.run_files import RUN_FILES, RunFile
from sottovoce.reports import Report, report
from sottovoce.runs.display import MakeDisplay, NoDisplay
from trainings import SMALL_MODEL

NOISE = ("privacy.clip_norm=0.5", "privacy.sigma_dp=1.0")
FEDERATED = (
    *("participation.population=4", "participation.cohort_size=2", "batching.seconds=4", "specaugment=null"),
    *("federated.local.steps=2", "federated.local.lr=0.5", "federated.schedule={lr: 0.01}"),
    *("federated.central_steps=5", "federated.evaluate_every=2"),
)
_CENTRAL = (
    *("central.steps=6", "central.evaluate_every=3", "central.micro_batch_seconds=4", "central.layer_norms_every=2"),
    "specaugment=null",
)
COUNTS = {"ann": 4, "bob": 3, "cem": 3, "dee": 2, "eve": 3, "fay": 2, "gus": 3, "hal": 2}


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Leave the signals as they were: a training takes them for itself."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_data(folder: Path) -> dict[str, str]:
    """Prepare a store with a column of groups, and return settings that name train, dev and test."""
    lines = ["path\tspeaker\ttext\tsex"]
    for place, (speaker, count) in enumerate(COUNTS.items()):
        for number in range(count):
            name = f"{speaker}{number}.flac"
            write_audio(folder / name, 1.0 + 0.1 * number, 10 * place + number)
            lines.append(f"{name}\t{speaker}\thello {'again ' * number}{speaker}\t{'fm'[place % 2]}")
    (folder / "index.tsv").write_text("\n".join(lines) + "\n")
    store = prepare(Table(file=folder / "index.tsv"), folder / "store", workers=1)
    settings = {}
    for name, speakers in (("train", "ann bob cem dee"), ("dev", "eve fay"), ("test", "gus hal")):
        (folder / f"{name}.txt").write_text("\n".join(speakers.split()) + "\n")
        selection = {"store": str(store.path), "speakers": str(folder / f"{name}.txt")}
        settings[name] = f"data.{name}={json.dumps(selection)}"
    return settings


def make_run(
    kind: str,
    folder: Path,
    data: dict[str, str],
    settings: Sequence[str] = (),
    display: MakeDisplay = NoDisplay,
) -> Path:
    """Train a run in this process and return its folder."""
    own, train = (FEDERATED, train_federated) if kind == "federated" else (_CENTRAL, train_central)
    resolved = resolve("tiny", *map(parse_setting, [*SMALL_MODEL, *own, *data.values(), *settings]))
    with _own_signals():
        train(Group(), resolved, folder, display)
    return folder


def listed(path: Path) -> RunFile | None:
    """Return the entry of a path below a run's folder in the list of a run's files: the file, or a folder it is in."""
    places = [Path(*path.parts[:depth]) for depth in range(1, len(path.parts) + 1)]
    matching = (file for file in RUN_FILES for place in places if _is(place, file))
    return next(matching, None)


def _is(place: Path, file: RunFile) -> bool:
    return len(place.parts) == len(Path(file.pattern).parts) and place.match(file.pattern)


HOSTILE = 'dim <script>alert("1")</script> & $x_1$ with-a-name-that-is-long-and-has-no-place-to-break-it-at-all'
CLAIM = {"cohort_size": 2000, "population": 1_000_000, "central_steps": 5, "epsilon_rdp": 1.2341, "epsilon_pld": 0.9871}


@functools.cache
def four_runs() -> Report:
    """Train two seeds of a row with claims and the paper's numbers, a run without noise and a central one; and report.

    Once for all tests of a process; the folder is removed when it ends.
    """
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    data = make_data(folder)
    for seed in (0, 1):
        run = make_run("federated", folder / f"dim{seed}", data, (*NOISE, "privacy.clipping=dim", f"seed={seed}"))
        row = {"bench": "b", "size": "mini", "row": HOSTILE, "seed": seed, "label": f"{HOSTILE}, seed {seed}"}
        row |= {
            "kind": "federated",
            "dev": "dev",
            "test": "test",
            "claims": [CLAIM],
            "paper": {"dev": 17.9, "test": 21.2},
        }
        (run / "row.json").write_text(json.dumps(row))
    make_run("federated", folder / "free", data, ("federated.local.steps=4",))
    make_run("central", folder / "central", data)
    runs = [folder / name for name in ("dim0", "dim1", "free", "central")]
    return report([*runs, runs[0]], folder / "report.html", title="Four <runs>", lead=["A sentence & more."])
