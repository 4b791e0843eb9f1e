"""The neighbour test: the same secure run with and without one user, and a comparison of all that is public of both.

Each side is trained several times with fresh randomness. Of every run, exactly what `publish` would export is kept,
and what training showed on the terminal. `comparison.py` then looks for fields that tell the sides apart.

Where a leak seems certain, more runs are made before it is reported: chance alone can look like one.

The user leaves the store, which is written again without them, or only the list of users. All places have the same
names on both sides, because a run may write down the names of places. The runs and their stores are made in a folder
that is removed: nothing of them may be published, and none of them is charged to anybody's budget.
"""

import json
import shutil
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from sottovoce.boundary.comparison import Comparison, compare
from sottovoce.boundary.publish import Source, write_public_files
from sottovoce.config import Config, Layer, Resolved, Tree
from sottovoce.data.leaving_out import leave_out
from sottovoce.data.population import Population
from sottovoce.data.selection import Selection
from sottovoce.data.store import Store
from sottovoce.errors import ConfigError, DataError, PrivacyError
from sottovoce.files import make_folder, open_private, written_whole
from sottovoce.privacy.claims import open_account
from sottovoce.privacy.population_ledger import WITNESS_FILE
from sottovoce.processes import Progress, no_progress, under_torchrun
from sottovoce.runs.display import MakeDisplay, Status
from sottovoce.runs.folder import Run
from sottovoce.runs.own_corpus import with_own_corpus
from sottovoce.workers import run_workers

if TYPE_CHECKING:
    from sottovoce.distributed import Group

Leaving = Literal["store", "list"]
_LEAST_REPEAT = 3
_SURE_REPEAT = 8  # chance parts a random field of two values like a leak in one of 6,435 cases
TERMINAL_FILE = "terminal.jsonl"


@dataclass(frozen=True)
class Neighbours:
    """What the neighbour test has shown."""

    user: str  # who was left out
    leaving: Leaving
    repeat: int  # runs of each side
    steps: int
    comparison: Comparison


def neighbours(
    settings: Resolved,
    *,
    without: str | None = None,
    leaving: Leaving = "store",
    repeat: int = 5,
    steps: int = 2,
    workers: int = 1,
    work: Path | None = None,
    progress: Progress = no_progress,
) -> Neighbours:
    """Train `repeat` short secure runs with and without one user, and compare everything that is public of them.

    By default the user with the most audio leaves the store; with `leaving="list"` the store stays as it is, and only
    the list of users changes. The runs are made below `work`, by default in the system's folder for temporary files.
    """
    if repeat < _LEAST_REPEAT:
        raise ConfigError(f"Expected repeat={repeat} >= {_LEAST_REPEAT}: fewer runs cannot tell noise from a leak.")
    if under_torchrun():
        raise ConfigError("The neighbour test starts its own processes. Start it without torchrun, with --workers.")
    with tempfile.TemporaryDirectory(prefix="neighbours-", dir=work) as name:
        folder = Path(name)
        resolved = with_own_corpus(settings, folder / "own", workers, progress).over(_secure(steps))
        users = _users_of(resolved.config)
        user = _longest(users) if without is None else without
        if user not in users.speakers:
            raise DataError(f"{user!r} is not among the users. Give --without the name of a speaker of --train.")
        data = _Data(resolved.config, folder / "side", leaving)
        resolved = resolved.over(Layer({"data": data.selections}, "the neighbour test"))
        exports: tuple[list[Path], list[Path]] = ([], [])
        make_runs = partial(_make_runs, resolved, data, exports, workers=workers, progress=progress)
        make_runs(user, repeat)
        comparison = compare(*exports)
        if repeat < _SURE_REPEAT and any(finding.kind == "certain" for finding in comparison.findings):
            make_runs(user, _SURE_REPEAT)
            comparison = compare(*exports)
        return Neighbours(user, leaving, len(exports[0]), steps, comparison)


def _make_runs(
    resolved: Resolved,
    data: "_Data",
    exports: tuple[list[Path], list[Path]],
    user: str,
    repeat: int,
    *,
    workers: int,
    progress: Progress,
) -> None:
    """Make more runs, until each side has `repeat` of them, and add what is public of them."""
    for side, left_out in zip(exports, (None, user), strict=True):
        while len(side) < repeat:
            progress("runs", sum(map(len, exports)), 2 * repeat)
            export = data.place.parent / f"{'with' if left_out is None else 'without'}-{len(side)}"
            data.make(left_out, progress)
            _run(resolved, data.place / "run", export, workers)
            shutil.rmtree(data.place)
            side.append(export)
    progress("runs", 2 * repeat, 2 * repeat)


def _secure(steps: int) -> Layer:
    """Return the settings of all runs: secure randomness, few steps; the runs are not of one budget."""
    tree: Tree = {
        "randomness": {"source": "secure"},
        "federated": {"central_steps": steps},
        "privacy": {"budget": None, "ledger": None},
    }
    return Layer(tree, "the neighbour test")


def _users_of(config: Config) -> Population:
    """Return the users; raise where leaving one out is not what the guarantee is about."""
    if config.data.train is None:
        raise ConfigError("data.train is required. Give a store with --train.")
    if config.privacy.void is not None:
        raise PrivacyError(f"There is no guarantee to test: {config.privacy.void}.")
    if config.participation.sampling == "fixed":
        raise PrivacyError(
            "Cohorts of fixed size hide that a user was replaced, not that one left. Use Poisson cohorts."
        )
    if config.users.iid:
        raise PrivacyError(
            "Users of the IID control are not speakers, so that no speaker can leave. Set users.iid=false."
        )
    return config.data.train.open()


def _longest(users: Population) -> str:
    return users.key_of(int(np.argmax(users.seconds_by_user())))


class _Data:
    """The data of one run, at places whose names are the same on both sides.

    Every run gets new places: what a run leaves beside a store must not be seen by the next one.
    """

    def __init__(self, config: Config, place: Path, leaving: Leaving) -> None:
        given = {role: getattr(config.data, role) for role in ("train", "dev", "test")}
        self._given: dict[str, Selection] = {role: one for role, one in given.items() if one is not None}
        self._stores = list(dict.fromkeys(one.store.resolve() for one in self._given.values()))
        self.place, self._leaving = place, leaving
        self.selections = {role: self._selection(role) for role in self._given}

    def _selection(self, role: str) -> Selection:
        given = self._given[role]
        listed = given.speakers is not None or (role == "train" and self._leaving == "list")
        store = self.place / f"store{self._stores.index(given.store.resolve())}"
        return Selection(store=store, speakers=self.place / f"{role}.txt" if listed else None)

    def make(self, left_out: str | None, progress: Progress) -> None:
        """Make stores and lists, without a user where one is given. The store without them is written once."""
        make_folder(self.place)
        train = self._given["train"].store.resolve()
        for original in self._stores:
            store = self.place / f"store{self._stores.index(original)}"
            if left_out is not None and self._leaving == "store" and original == train:
                written = self.place.parent / "store"
                if not written.exists():
                    leave_out(Store.open(original), [left_out], written, progress)
                _link(written, store)
            else:
                _link(original, store)
        for role, selection in self.selections.items():
            if selection.speakers is not None:
                names = [name for name in self._given[role].open().speakers if role != "train" or name != left_out]
                with written_whole(selection.speakers, private=True) as file:
                    file.writelines(f"{name}\n".encode() for name in names)


def _link(original: Path, store: Path) -> None:
    """Make a folder with links to the files of a store, so that a store of any size needs no space.

    The copy was never trained on: what the store knows of the ledger of its users stays behind.
    """
    store.mkdir()
    for file in original.iterdir():
        if file.name != WITNESS_FILE:
            (store / file.name).symlink_to(file)


def _run(resolved: Resolved, folder: Path, export: Path, workers: int) -> None:
    """Train a run, and keep what is public of it."""
    make_folder(export)
    hardware = resolved.config.hardware
    display = partial(_TerminalRecord, export / TERMINAL_FILE)
    run_workers(_train, (resolved, folder, display), workers, hardware.threads_per_worker, limit=hardware.processes)
    run = Run(folder)
    if run.result is None:
        raise KeyboardInterrupt  # it was asked to stop
    write_public_files(Source(run, replace(open_account(folder), run=Path("neighbours")), "best"), export)
    shutil.rmtree(folder)


def _train(group: "Group", resolved: Resolved, folder: Path, display: MakeDisplay) -> None:
    from sottovoce.federated.federated_training import train_federated  # noqa: PLC0415 - loads torch

    train_federated(group, resolved, folder, display)


class _TerminalRecord:
    """A display that writes down all that training shows."""

    def __init__(self, path: Path) -> None:
        self._file = open_private(path, "a")

    def __call__(self, status: Status) -> None:
        """Write down the status."""
        self._file.write(json.dumps(asdict(status)) + "\n")

    def say(self, message: str) -> None:
        """Write down the message."""
        self._file.write(json.dumps({"message": message}) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
