"""The metrics of a run as an offline log of Weights & Biases, for people who look at runs there.

Promises: nothing uses a network; only public figures are in the log unless private ones are asked for; the log holds
neither configuration nor names of machine, user, folder or program. It is written when a training ends, from the files
of metrics, and replaces the log of the same run that an earlier call has written.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from sottovoce.errors import ConfigError
from sottovoce.files import folder_if_used, keep_private, make_folder
from sottovoce.runs.metrics_log import MetricsLog, flat_numbers

_PROJECT = "sottovoce"


def require_wandb(folder: Path) -> None:
    """Raise where no log can be written into a folder; long commands call this first. Nothing is made."""
    if find_spec("wandb") is None:
        raise ConfigError("--wandb needs the package wandb. Install it: pip install 'sottovoce[wandb]'.")
    for place in (folder, folder / "wandb"):
        with folder_if_used(place):  # not left behind: a training without public figures has no log
            pass


def write_wandb(run: Path, folder: Path, *, private: bool = False) -> int:
    """Write the log of a run into FOLDER/wandb, which only its owner can enter; return the number of lines in it.

    Without `private`, a run that has no public figures, such as a central one, has no log.
    """
    log = MetricsLog(run)
    chosen = log.lines() if private else log.public_lines()
    lines = [(line["step"], numbers) for line in chosen if (numbers := flat_numbers(line))]
    if not lines:
        return 0
    require_wandb(folder)
    make_folder(folder / "wandb")
    keep_private(folder / "wandb")
    with _own_environment():
        _write(lines, run, folder)
    return len(lines)


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """Hide the settings of wandb that the user has for other programs: tags, notes, a mode with a network."""
    theirs = {name: value for name, value in os.environ.items() if name.startswith("WANDB_")}
    with tempfile.TemporaryDirectory() as nothing:
        for name in theirs:
            del os.environ[name]
        os.environ["WANDB_ERROR_REPORTING"] = "false"  # it would go to the network
        os.environ["WANDB_CONFIG_DIR"] = nothing
        try:
            yield
        finally:
            for name in [name for name in os.environ if name.startswith("WANDB_")]:
                del os.environ[name]
            os.environ.update(theirs)


def _write(lines: Sequence[tuple[int, Mapping[str, float]]], run: Path, folder: Path) -> None:
    import wandb  # noqa: PLC0415 - a large package, and only where it is asked for

    identity = hashlib.sha256(str(run.absolute()).encode()).hexdigest()[:12]
    for old in folder.glob(f"wandb/offline-run-*-{identity}"):
        shutil.rmtree(old)
    settings = wandb.Settings(
        mode="offline",
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        disable_job_creation=True,
        save_code=False,
        host="",
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )
    logged = wandb.init(project=_PROJECT, id=identity, name=identity, dir=str(folder), config={}, settings=settings)
    for step, numbers in lines:
        logged.log({"step": step, **numbers})
    logged.finish()
    wandb.teardown()  # its own process, which writes the log
    for written in folder.glob(f"wandb/offline-run-*-{identity}"):
        for more in ("logs", "tmp"):  # its diary, with names of folders and of the machine
            shutil.rmtree(written / more, ignore_errors=True)
    for link in folder.glob("wandb/debug*.log"):
        link.unlink()
