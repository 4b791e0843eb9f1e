"""The folder of a run, for training and for reading: configuration, metrics, checkpoints, result.

    RUN/config.json                 the resolved configuration, with the source of every value
    RUN/machines.json               the types of machine it was trained on
    RUN/metrics.jsonl               the public figures of every step
    RUN/private.jsonl               the private ones, and a line for every evaluation
    RUN/checkpoints/STEP/           model.safetensors, state.safetensors (the optimizer, and adapters before they were
                                    merged into the model), checkpoint.json (counters), and noise.safetensors (secret),
                                    where a noise mechanism has a state
    RUN/last, RUN/best              links to the newest checkpoint and to the best on dev
    RUN/evaluation.json             error rates of the last model, once the run has ended
    RUN/best_evaluation.json        those of the best model on dev, in benchmarks
    RUN/result.json                 how the run ended
    RUN/ledger.jsonl                of federated runs: every release

Guarantees: a checkpoint appears whole or not at all; `last` and `best` always name a whole checkpoint; a run resumes
only with the configuration it was started with; killed at any moment, it can be resumed. Only what needs a model's
tensors loads torch. Only their owner can read the private files (`run_files.PRIVATE_FILES`); a run of an earlier
version that resumes is brought to that.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pydantic import ValidationError
from safetensors import SafetensorError

from sottovoce.errors import ConfigError, DataError
from sottovoce.files import OWNER_WRITES_FOLDER, flush_to_disk, keep_private, make_folder, sha256_of, written_whole
from sottovoce.model.model_file import MODEL_FILE
from sottovoce.open_union import unknown_kind
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.ledger import LEDGER_FILE, read_ledger
from sottovoce.privacy.run_files import RUN_FILES, private_paths
from sottovoce.runs.documents import Checkpoint, Evaluation, Evaluations, Result, RunConfig, TrainingKind
from sottovoce.runs.metrics_log import MetricsLog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from torch import Tensor

    from sottovoce.evaluation.model import Model
    from sottovoce.model.recogniser import Recogniser
    from sottovoce.optim import State

STATE_FILE = "state.safetensors"
NOISE_FILE = "noise.safetensors"
CHECKPOINTS = "checkpoints"
LAST, BEST = "last", "best"
_OWN_NAMES = {LAST, BEST, "wandb", *(file.pattern.partition("/")[0] for file in RUN_FILES)}


class Run:
    """The folder of one run, which need not exist yet.

    run = Run(Path("runs/quick"))
    run.epsilon.tightest, run.evaluations["test"].wer, run.metrics().column("dev_wer"), run.model("best")
    """

    def __init__(self, path: Path | str) -> None:
        """Name the folder; `begin` makes it."""
        self.path = Path(path)

    @property
    def config(self) -> RunConfig:
        """The configuration that the run was started with; raises DataError where the folder holds no run."""
        return RunConfig.read(self.path)

    @property
    def result(self) -> Result | None:
        """How the run ended; None before that."""
        return Result.find(self.path)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The counters of the last checkpoint; None before the first."""
        return Checkpoint.find(self.path / LAST)

    @property
    def evaluations(self) -> Mapping[str, Evaluation]:
        """The evaluations of the last model by population (dev, test, ...); empty until the run has ended."""
        evaluations = Evaluations.find(self.path)
        return {} if evaluations is None else evaluations.root

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The counters of the best checkpoint on dev; None where it is the last one, or there is none."""
        best, last = self.path / BEST, self.path / LAST
        return None if best.resolve() == last.resolve() else Checkpoint.find(best)

    @property
    def epsilon(self) -> Epsilons:
        """The privacy spent: of the result, or so far by RDP, from the ledger; unknown without a guarantee."""
        result, path = self.result, self.path / LEDGER_FILE
        if result is not None or not path.exists():
            return Epsilons() if result is None else result.epsilon
        content = read_ledger(path)
        return Epsilons(content.releases[-1].epsilon if content is not None and content.releases else None)

    @property
    def log(self) -> MetricsLog:
        """The metrics as they are on disk."""
        return MetricsLog(self.path)

    def metrics(self) -> pa.Table:
        """Return the metrics with a row for every line and flat columns: a nested number is outer.inner.

        Values that a line does not have are null. Half a line at the end, of a run that is still writing, is left out.
        """
        return self.log.table()

    def model(self, which: Literal["best", "last"] = "best") -> Model:
        """Return the model that was best on dev, or the last one; without a dev set the last one is the best."""
        from sottovoce.evaluation.model import load  # noqa: PLC0415 - loads torch

        folder = self.path / which
        return load(folder if folder.exists() else self.path / LAST)

    @property
    def begun(self) -> bool:
        """Whether the run has a checkpoint to resume from."""
        return (self.path / LAST).exists()

    def require_own(self, kind: TrainingKind) -> None:
        """Raise DataError where the folder is no run of this kind: training would replace files or mix with them.

        A new run begins in a new or empty folder, or in one that holds only what belongs to runs.
        """
        if self.begun:
            begun = RunConfig.find(self.path)
            own = kind if begun is None or not begun.data else "federated" if "users" in begun.data else "central"
            if own != kind:
                raise DataError(f"{self.path} is a {own} run. Choose another folder for the run.")
            return
        if not self.path.is_dir():
            return
        config = self.path / RunConfig.FILE
        if config.exists():
            try:
                RunConfig.read(self.path)
            except DataError:
                raise DataError(
                    f"{config} is not the configuration of a run, or is damaged, and training would replace it. Choose "
                    "a new folder for the run."
                ) from None
            return
        others = [path.name for path in sorted(self.path.iterdir()) if not _is_of_a_run(path.name)]
        if others:
            raise DataError(
                f"{self.path} is no run, but holds other files, such as {others[0]}. Choose a new folder for the run."
            )

    def begin(self, config: RunConfig, may_change: Collection[str]) -> None:
        """Write the configuration and the hashes of the data, or check that the run was started with the same ones.

        Before the first checkpoint, another configuration simply replaces the one that was tried.
        """
        make_folder(self.path / CHECKPOINTS)
        for path in private_paths(self.path):  # a run of an earlier version left them to everyone
            keep_private(path)
        (self._resumed(config, may_change) if self.begun else config).write(self.path)

    def _resumed(self, config: RunConfig, may_change: Collection[str]) -> RunConfig:
        path = self.path / RunConfig.FILE
        if not path.exists():
            raise DataError(f"{path} is missing, but {self.path} holds checkpoints. Restore it.")
        begun = self.config
        changed = begun.changes(config, may_change) and self._completed(begun, may_change).changes(config, may_change)
        if changed:
            raise ConfigError(
                f"{self.path} was started with another {min(changed)} (see {path}). "
                "Choose another --run or the same settings."
            )
        if begun.data != {**begun.data, **config.data}:
            raise DataError(f"{self.path} was started on other data. Choose another --run, or restore its data.")
        # The seed model is kept, whether or not it is given again.
        resumed = config.with_seed_model(begun.setting("data.seed_model"))
        return resumed.model_copy(update={"data": begun.data})

    def _completed(self, begun: RunConfig, may_change: Collection[str]) -> RunConfig:
        """Return the run's configuration with defaults for newer options; raise ConfigError where it is too old."""
        try:
            return begun.completed(without=may_change)
        except ValidationError as error:
            first, ledger = error.errors()[0], self.path / LEDGER_FILE
            unknown = unknown_kind(error)
            if unknown is not None:
                raise ConfigError(f"{self.path / RunConfig.FILE}: {unknown}.") from None
            content = read_ledger(ledger) if ledger.is_file() else None
            code = "another version" if content is None else content.header.code
            raise ConfigError(
                f"{self.path} was started by {code}; {'.'.join(map(str, first['loc']))} in its {RunConfig.FILE} is not "
                "valid in this version. Resume it with the version that started it, or choose another --run."
            ) from None

    def save(
        self,
        checkpoint_of: Callable[[str, str], Checkpoint],
        step: int,
        recogniser: Recogniser,
        state: State,
        *,
        best: bool,
        noise: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write a checkpoint, make it the last one (and the best), and remove those that are not needed.

        `checkpoint_of` is called with the SHA-256 of the model's file and of the optimizer's, and returns the
        checkpoint's counters. `noise` is the secret state of a noise mechanism: it goes into a file that only its owner
        can read.
        """
        from safetensors.torch import save  # noqa: PLC0415 - loads torch

        name = self._free_name(f"{step:08d}")
        folder = self.path / CHECKPOINTS / name
        temporary = folder.with_name(f".{name}.{secrets.token_hex(16)}.tmp")
        temporary.mkdir(OWNER_WRITES_FOLDER)
        recogniser.save(temporary / MODEL_FILE)
        with written_whole(temporary / STATE_FILE) as file:
            kept = {**state.vectors, **recogniser.flat.unmerged()}
            file.write(save({key: vector.cpu().contiguous() for key, vector in kept.items()}))
        if noise:
            with written_whole(temporary / NOISE_FILE, private=True) as file:
                file.write(save({key: vector.cpu() for key, vector in noise.items()}))
        checkpoint_of(sha256_of(temporary / MODEL_FILE), sha256_of(temporary / STATE_FILE)).write(temporary)
        temporary.rename(folder)
        flush_to_disk(folder.parent)
        if best:  # first: after a kill in between, the steps since the last checkpoint are repeated, and this too
            self._link(BEST, name)
        self._link(LAST, name)
        self._remove_others()
        for older in (self.path / CHECKPOINTS).glob(f"*/{NOISE_FILE}"):
            if older.parent.name != name:  # the best model may be published, the memory of its noise never
                older.unlink()

    def _free_name(self, name: str) -> str:
        """Return the name, or one like it: a step repeated after a kill must not touch a folder that is linked."""
        number, free = 1, name
        while (self.path / CHECKPOINTS / free).exists():
            number += 1
            free = f"{name}-{number}"
        return free

    def _link(self, link: str, name: str) -> None:
        for left in self.path.glob(f".{link}.*.tmp"):  # by a kill
            left.unlink()
        temporary = self.path / f".{link}.{secrets.token_hex(16)}.tmp"
        temporary.symlink_to(Path(CHECKPOINTS) / name)
        temporary.replace(self.path / link)
        flush_to_disk(self.path)

    def _remove_others(self) -> None:
        kept = {(self.path / link).readlink() for link in (LAST, BEST) if (self.path / link).is_symlink()}
        for folder in (self.path / CHECKPOINTS).iterdir():
            if Path(CHECKPOINTS) / folder.name not in kept:
                shutil.rmtree(folder)

    def load_noise(self) -> dict[str, Tensor]:
        """Return the secret state of the noise mechanism at the last checkpoint; empty where it keeps none."""
        from safetensors.torch import load_file  # noqa: PLC0415 - loads torch

        path = self.path / LAST / NOISE_FILE
        try:
            return load_file(path) if path.exists() else {}
        except SafetensorError as error:
            raise DataError(f"{path} is damaged: {error}. Remove {self.path} to start again.") from None

    def load(self, recogniser: Recogniser, state: State) -> Checkpoint | None:
        """Fill model and optimizer from the last checkpoint and return its counters; None before the first one."""
        from safetensors.torch import load_file  # noqa: PLC0415 - loads torch

        folder = self.path / LAST
        if not folder.exists():
            return None
        checkpoint = Checkpoint.read(folder)
        try:
            tensors = load_file(folder / MODEL_FILE)
            vectors = load_file(folder / STATE_FILE)
            recogniser.flat.fill_(tensors)
            recogniser.flat.fill_unmerged_(vectors)
            for key, vector in state.vectors.items():
                vector.copy_(vectors[key])
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise DataError(f"{folder} is damaged: {error}. Remove {self.path} to start again.") from None
        state.steps = checkpoint.optimizer_steps
        return checkpoint


def _is_of_a_run(name: str) -> bool:
    """Return whether a name in a folder is that of a run's file; a corpus of its own has files beside it."""
    return name in _OWN_NAMES or name.startswith((".", "corpus."))
