"""The folder of a run: its config, its metrics, its checkpoints; killed at any moment it can be taken up again.

    RUN/config.json                 the resolved configuration, with the source of every value
    RUN/metrics.jsonl               one line per step and one per evaluation
    RUN/checkpoints/STEP/           model.safetensors, state.safetensors (optimizer), checkpoint.json (counters)
    RUN/last, RUN/best              links to the newest checkpoint and to the best on dev

Guarantees: a checkpoint appears whole or not at all; `last` and `best` always name a whole one; a run goes on only with
the configuration it was started with; two processes cannot write into one run.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from sottovoce.errors import ConfigError, DataError
from sottovoce.files import make_folder, sync_folder, write_json, written_whole
from sottovoce.model.recogniser import MODEL_FILE, Recogniser
from sottovoce.optim import State

STATE_FILE = "state.safetensors"
CHECKPOINT_FILE = "checkpoint.json"
CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.jsonl"
LAST, BEST = "last", "best"


class Run:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        """Name the folder; `begin` makes it."""
        self.path = path

    def begin(
        self,
        config: Mapping[str, Any],
        sources: Mapping[str, str],
        data: Mapping[str, str | None],
        may_change: Iterable[str],
    ) -> None:
        """Note the configuration and the data's hashes, or check that the run was started with the same ones.

        Before there is a checkpoint, another configuration simply replaces the one that was tried.
        """
        make_folder(self.path / "checkpoints")
        path = self.path / CONFIG_FILE
        if self.begun:
            if not path.exists():
                raise DataError(f"{path} is missing, but {self.path} holds checkpoints. Restore it.")
            begun = read_json(path)
            changed = {
                key
                for key in _differences(begun.get("config"), config)
                if not any(f"{key}.".startswith(f"{free}.") for free in may_change)
            }
            if changed:
                raise ConfigError(
                    f"{self.path} was started with another {min(changed)} (see {path}). "
                    "Choose another --run or the same settings."
                )
            noted = begun.get("data", {})
            if noted != {**noted, **data}:
                raise DataError(f"{self.path} was started on other data than is there now. Choose another --run.")
            data = noted
            # Where the model came from is not forgotten, whether or not it is named again.
            origin = begun["config"].get("data", {}).get("seed_model")
            config = {**config, "data": {**config["data"], "seed_model": origin}}
        write_json(path, {"config": config, "data": data, "sources": sources})

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return (self.path / LAST).exists()

    def save(self, step: int, recogniser: Recogniser, state: State, counters: Mapping[str, Any], *, best: bool) -> None:
        """Write a checkpoint after `step` steps, make it the last one (and the best), and remove those not needed."""
        name = self._free_name(f"{step:08d}")
        folder, temporary = self.path / "checkpoints" / name, self.path / "checkpoints" / f".{name}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        recogniser.save(temporary / MODEL_FILE)
        with written_whole(temporary / STATE_FILE) as file:
            file.write(save({key: vector.cpu() for key, vector in state.vectors.items()}))
        write_json(temporary / CHECKPOINT_FILE, {"step": step, "optimizer_steps": state.steps, **counters})
        temporary.rename(folder)
        sync_folder(folder.parent)
        if best:  # first: after a kill in between, the steps since the last one are done again, and this too
            self._link(BEST, name)
        self._link(LAST, name)
        self._remove_others()

    def _free_name(self, name: str) -> str:
        """Return the name, or one like it: a step done again after a kill must not touch a folder that is linked."""
        number, free = 1, name
        while (self.path / "checkpoints" / free).exists():
            number += 1
            free = f"{name}-{number}"
        return free

    def _link(self, link: str, name: str) -> None:
        temporary = self.path / f".{link}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(Path("checkpoints") / name)
        temporary.replace(self.path / link)
        sync_folder(self.path)

    def _remove_others(self) -> None:
        kept = {(self.path / link).readlink() for link in (LAST, BEST) if (self.path / link).is_symlink()}
        for folder in (self.path / "checkpoints").iterdir():
            if Path("checkpoints") / folder.name not in kept:
                shutil.rmtree(folder)

    def load(self, recogniser: Recogniser, state: State) -> dict[str, Any] | None:
        """Fill model and optimizer from the last checkpoint and return its counters; None where there is none."""
        folder = self.path / LAST
        if not folder.exists():
            return None
        try:
            counters: dict[str, Any] = json.loads((folder / CHECKPOINT_FILE).read_text(encoding="utf-8"))
            tensors = load_file(folder / MODEL_FILE)
            vectors = load_file(folder / STATE_FILE)
            recogniser.flat.fill_(tensors)
            for key, vector in state.vectors.items():
                vector.copy_(vectors[key])
            state.steps = counters["optimizer_steps"]
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise DataError(f"{folder} cannot be read: {error}. Remove {self.path} to start again.") from None
        return counters

    def cut_metrics(self, step: int, evaluated: int) -> float:
        """Remove the metrics of what will be done again: steps after `step`, evaluations after `evaluated`.

        Return the seconds trained until then.
        """
        path = self.path / METRICS_FILE
        if not path.exists():
            return 0.0
        kept = []
        for text in path.read_bytes().split(b"\n")[:-1]:
            line = _parsed(text, path)
            if line["step"] > step or step == 0:  # a run that starts again also says again what it is
                break
            if "dev_wer" not in line or line["step"] <= evaluated:
                kept.append(line)
        with written_whole(path) as file:
            file.writelines(json.dumps(line).encode() + b"\n" for line in kept)
        return max((line.get("elapsed_seconds", 0.0) for line in kept), default=0.0)


class Metrics:
    """Appends to metrics.jsonl, and to TensorBoard events where tensorboard is installed."""

    def __init__(self, run: Run, done: int, *, events: bool = True) -> None:
        """Open both, or only the first; events of steps after `done` are void."""
        self._file = (run.path / METRICS_FILE).open("a", encoding="utf-8")
        self._events = _tensorboard(run.path / "tensorboard", done) if events else None

    def write(self, line: Mapping[str, Any]) -> None:
        """Add one line; it is readable at once."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        if self._events is not None:
            for key, value in _scalars(line):
                if key != "step":
                    self._events.add_scalar(key, value, line["step"])

    def close(self) -> None:
        """Close both."""
        self._file.close()
        if self._events is not None:
            self._events.close()


def _scalars(line: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a line by name; those of a nested mapping as outer/inner."""
    for key, value in line.items():
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{prefix}{key}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", value


def read_json(path: Path) -> dict[str, Any]:
    """Return a document of a run, or say in one line that it is damaged."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(f"{path} is damaged. Choose another --run, or remove {path.parent}.") from None
    return document


def _parsed(text: bytes, path: Path) -> dict[str, Any]:
    try:
        line: dict[str, Any] = json.loads(text)
    except ValueError:
        raise DataError(f"{path} has a damaged line. Remove that line to go on.") from None
    return line


def _tensorboard(folder: Path, done: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=done + 1)


def _differences(one: Any, other: Any, prefix: str = "") -> set[str]:
    if isinstance(one, dict) and isinstance(other, Mapping):
        keys = {*one, *other}
        return {key for name in keys for key in _differences(one.get(name), other.get(name), f"{prefix}{name}.")}
    return set() if one == other else {prefix.rstrip(".")}
