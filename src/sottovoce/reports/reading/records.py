"""Reading the folder of a run: central or federated, finished or not, from this version or an older one.

A folder that is not a run, or a file in it that cannot be read, raises a DataError of one line. A file that an older
version did not write yet counts as empty. Private figures of runs with secure randomness are not read: a page about
such a run shows nothing that depends on its users without noise.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from sottovoce.errors import DataError, SottoError
from sottovoce.model.adapter_options import NO_ADAPTERS, Adapters
from sottovoce.model.model_file import MODEL_FILE
from sottovoce.model.partition import Partition, PartitionName
from sottovoce.model.recogniser import saved_partition
from sottovoce.model.roles import Trainable
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.ledger import LEDGER_FILE
from sottovoce.reports.reading.metrics import read_metrics
from sottovoce.runs.documents import BenchRow, ClaimedEpsilon, Evaluation, Result, RunConfig
from sottovoce.runs.folder import LAST, Run
from sottovoce.runs.following import has_ended
from sottovoce.runs.metrics_log import Line
from sottovoce.runs.verification import Verified, verify

SetName = Literal["dev", "test"]
SETS: tuple[SetName, ...] = ("dev", "test")


@dataclass(frozen=True, eq=False, kw_only=True)
class RunRecord:
    """One run, as recorded in its folder."""

    path: Path
    name: str  # its name on the page; no other run of the page has the same
    config: RunConfig
    steps: Sequence[Line] = field(repr=False)  # one line of the metrics per step
    dev_evaluations: Sequence[Line] = field(repr=False)  # one line of the metrics per evaluation on dev
    guarantee: str  # as the run states it; empty for central runs
    result: Result | None  # None until a federated run has ended, and for central runs
    evaluations: Mapping[str, Evaluation] = field(repr=False)  # of the final model, by the name of the population
    row: BenchRow | None  # the row of a benchmark that it belongs to
    users: int | None = None  # in the store; None where it is K, or was not logged

    @property
    def kind(self) -> Literal["central", "federated"]:
        """How the run was trained."""
        federated = (
            "users" in self.config.data or self.guarantee or any("central_lr" in line for line in self.steps[:1])
        )
        return "federated" if federated else "central"

    @property
    def secure(self) -> bool:
        """Whether its guarantee is meant to hold: then the page shows nothing that the guarantee does not cover."""
        return self.config.secure

    @property
    def steps_done(self) -> int:
        """The number of steps that the run has taken."""
        return max((int(line["step"]) for line in self.steps), default=0)

    @property
    def steps_planned(self) -> int:
        """The number of steps in the run's configuration."""
        federated = self.kind == "federated"
        return int(self.setting("federated.central_steps" if federated else "central.steps") or 0)

    @property
    def finished(self) -> bool:
        """Whether the run has ended: after its last step, at its time limit, or at the end of its privacy budget."""
        return has_ended(self.steps_done, self.steps_planned, self.result, self.evaluations.values())

    def setting(self, key: str) -> Any:
        """Return a value of the configuration; see `RunConfig.setting`."""
        return self.config.setting(key)

    def wer(self, set_name: SetName) -> float | None:
        """Return the WER of the final model as a share; None where it was not evaluated."""
        part = {"dev": self.row.dev, "test": self.row.test}[set_name] if self.row is not None else None
        evaluation, result = self.evaluations.get(part or set_name), self.result
        if evaluation is not None:
            return evaluation.wer
        if set_name == "test":
            return None if result is None or result.test is None else result.test.wer
        if result is not None and result.dev_wer is not None:
            return result.dev_wer
        return float(self.dev_evaluations[-1]["dev_wer"]) if self.dev_evaluations else None

    @cached_property
    def epsilons(self) -> Epsilons | None:
        """The privacy that the run has spent, as `Run.epsilon` reads it from the result or the ledger.

        None without a guarantee. An unfinished run has no PLD bound yet.
        """
        spent = Run(self.path).epsilon
        return None if spent.tightest is None else spent

    @property
    def tightest_epsilon(self) -> float | None:
        """The smallest known upper bound on the epsilon spent; None without a guarantee."""
        return None if self.epsilons is None else self.epsilons.tightest

    @property
    def bench(self) -> str | None:
        """The benchmark and size that its row is of; None for other runs."""
        return None if self.row is None else f"{self.row.bench}, {self.row.size}"

    def evaluated_on(self, set_name: SetName) -> str | None:
        """Return a hash of the speech that its WER is of; None where it is unknown."""
        part = {"dev": self.row.dev, "test": self.row.test}[set_name] if self.row is not None else None
        evaluation = self.evaluations.get(part or set_name)
        return None if evaluation is None else evaluation.population

    @property
    def claims(self) -> Sequence[ClaimedEpsilon]:
        """The claims that its row of a benchmark makes for other sizes."""
        return () if self.row is None else self.row.claims

    @property
    def paper_wers(self) -> Mapping[str, float]:
        """The WERs in percent that the paper prints for its row of a benchmark, by evaluation set."""
        return {} if self.row is None else self.row.paper

    @property
    def cohort_size(self) -> float | None:
        """S, the expected number of users in a step."""
        everyone = self.setting("participation.sampling") == "everyone"
        size = self.setting("participation.population" if everyone else "participation.cohort_size")
        return None if size is None else float(size)

    @property
    def population(self) -> int | None:
        """K, the number of users."""
        size = self.setting("participation.population")
        return None if size is None else int(size)

    @property
    def trainable(self) -> tuple[str, ...] | None:
        """The names of the trained parameters; None where all were trained, and for runs without this setting."""
        names, adapters = self.setting("federated.trainable") if self.kind == "federated" else None, self.adapters
        if names is None or names == "all":
            return (adapters.described, "all other parameters") if adapters.rank else None
        listed = (names,) if isinstance(names, str) else tuple(map(str, names))
        return (adapters.described, *listed) if adapters.rank else listed

    @property
    def adapters(self) -> Adapters:
        """The low-rank adapters; of rank 0 for central runs and runs without this setting."""
        given = self.setting("federated.adapters") if self.kind == "federated" else None
        try:
            return NO_ADAPTERS if given is None else Adapters.model_validate(given)
        except ValidationError:
            raise DataError(f"{self.path}: federated.adapters in its configuration is not valid.") from None

    @property
    def has_ledger(self) -> bool:
        """Whether the run kept a privacy ledger."""
        return (self.path / LEDGER_FILE).is_file()

    @cached_property
    def verified_ledger(self) -> Verified | None:
        """The result of checking the ledger, None without one; raises PrivacyError where it is invalid."""
        return verify(self.path) if self.has_ledger else None

    @cached_property
    def partition(self) -> Partition | None:
        """The layers of the trained parameters, from the last checkpoint; None without a checkpoint."""
        federated = self.kind == "federated"
        chosen: PartitionName = self.setting("federated.partition") if federated else "tensor"
        given = self.setting("federated.trainable") if federated else None
        trainable: Trainable = "all" if given is None else given
        try:
            return saved_partition(self.path / LAST / MODEL_FILE, chosen, trainable, self.adapters)
        except SottoError:  # no checkpoint, or of a version that names parameters differently
            return None

    @property
    def layer_sizes(self) -> dict[str, int]:
        """d_h, the number of parameters of every layer; empty without a checkpoint."""
        partition = self.partition
        return {} if partition is None else dict(zip(partition.layers, partition.sizes, strict=True))


def read_records(paths: Sequence[Path], rows: Mapping[Path, Sequence[BenchRow]] | None = None) -> list[RunRecord]:
    """Read several runs, each only once even where its folder is given twice, and give each a unique name.

    `rows` are rows of benchmarks that runs belong to, by folder: a run that several benchmarks share is shown in all
    of them. The other runs belong to the row in their row.json, if any.
    """
    unique = list({path.resolve(): path for path in paths}.values())
    if not unique:
        raise DataError("There is nothing to report on. Give the folders of one or more runs.")
    given: Mapping[Path, Sequence[BenchRow | None]] = rows or {}
    pairs = [(path, row) for path in unique for row in given.get(path) or [BenchRow.find(path)]]
    names = _names(pairs)
    return [_read(path, name, row) for (path, row), name in zip(pairs, names, strict=True)]


def _read(path: Path, name: str, row: BenchRow | None) -> RunRecord:
    config = RunConfig.find(path)
    if config is None:
        raise DataError(f"{path} is not a run: it holds no {RunConfig.FILE}. Give the folder after --run.")
    lines, run = read_metrics(path), Run(path)
    if config.secure:
        lines = [{key: value for key, value in line.items() if key != "not_private"} for line in lines]
    result = run.result
    guarantees = [str(line["guarantee"]) for line in lines if "guarantee" in line]
    if result is not None and result.guarantee is not None:
        guarantees.append(result.guarantee)
    return RunRecord(
        path=path,
        name=name,
        config=config,
        steps=[line for line in lines if "lr" in line or "central_lr" in line],
        dev_evaluations=[line for line in lines if "dev_wer" in line],
        guarantee=guarantees[-1] if guarantees else "",
        result=result,
        evaluations=_of_the_last_model(run.evaluations, lines),
        row=row,
        users=_users(lines),
    )


def _users(lines: Sequence[Line]) -> int | None:
    """Return the number of users in the store, as the first line of a federated run states it where it is not K."""
    stated = [line.get("not_private", {}).get("users") for line in lines if "guarantee" in line]
    return int(stated[-1]) if stated and isinstance(stated[-1], int | float) else None


def _of_the_last_model(evaluations: Mapping[str, Evaluation], lines: Sequence[Line]) -> dict[str, Evaluation]:
    """Return the evaluations of the final model. A run that was extended may still hold evaluations of an older one.

    An evaluation on dev or test is left out where a benchmark evaluated the same speakers under another name.
    """
    done = max((line["step"] for line in lines), default=0)
    last = {name: evaluation for name, evaluation in evaluations.items() if evaluation.steps == done}
    named = {evaluation.population for name, evaluation in last.items() if name not in ("dev", "test")}
    return {
        name: evaluation
        for name, evaluation in last.items()
        if name not in ("dev", "test") or evaluation.population not in named
    }


def _names(runs: Sequence[tuple[Path, BenchRow | None]]) -> list[str]:
    """Return the labels of runs; those that share one get their benchmark added, or else the names of their folders."""
    labels = [path.resolve().name if row is None else row.label for path, row in runs]
    benches = ["" if row is None else f" ({row.bench}, {row.size})" for _, row in runs]
    shared, counts = Counter(zip(labels, benches, strict=True)), Counter(labels)
    return [
        label
        if counts[label] == 1
        else f"{label}{bench}"
        if bench and shared[label, bench] == 1
        else f"{label} ({path.resolve().parent.name}/{path.resolve().name})"
        for (path, _), label, bench in zip(runs, labels, benches, strict=True)
    ]
