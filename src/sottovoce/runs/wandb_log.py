"""The metrics of a run as an offline log of Weights & Biases, for people who look at runs there.

Promises: nothing uses a network; only public figures are in the log unless private ones are asked for; the log holds
neither configuration nor names of machine, user, folder or program. It is written when a training ends, from the files
of metrics, and replaces the log of the same run that an earlier call has written.
"""

import hashlib
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from sottovoce.errors import ConfigError
from sottovoce.files import keep_private, make_folder
from sottovoce.runs.metrics_log import MetricsLog, flat_numbers

_PROJECT = "sottovoce"


def require_wandb() -> None:
    """Raise ConfigError where the package wandb is not installed; long commands call this first."""
    if find_spec("wandb") is None:
        raise ConfigError("--wandb needs the package wandb. Install it: pip install 'sottovoce[wandb]'.")


def write_wandb(run: Path, folder: Path, *, private: bool = False) -> int:
    """Write the log of a run into a folder that only its owner can enter; return the number of lines in it.

    Without `private`, a run that has no public figures, such as a central one, has no log.
    """
    log = MetricsLog(run)
    chosen = log.lines() if private else log.public_lines()
    lines = [(line["step"], numbers) for line in chosen if (numbers := flat_numbers(line))]
    if not lines:
        return 0
    require_wandb()
    os.environ["WANDB_ERROR_REPORTING"] = "false"  # it would go to the network
    import wandb  # noqa: PLC0415 - a large package, and only where it is asked for

    make_folder(folder)
    keep_private(folder)
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
    return len(lines)
