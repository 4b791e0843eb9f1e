"""Reading the folder of a run: central or federated, finished or not, from this version or an older one.

A folder that is not a run, or a file in it that cannot be read, raises a DataError of one line. A file that an older
version did not write yet counts as empty.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sottovoce.errors import DataError, SottoError
from sottovoce.model.flat import Partition, PartitionName
from sottovoce.model.recogniser import MODEL_FILE, saved_partition
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.ledger import LEDGER_FILE
from sottovoce.reports.reading.extrapolated_claims import ExtrapolatedClaim, read_claim, read_epsilons
from sottovoce.reports.reading.metrics import Line, read_metrics
from sottovoce.runs.documents import BenchRow, Document, Evaluations, Result, RunConfig
from sottovoce.runs.folder import LAST
from sottovoce.runs.metrics_log import METRICS_FILE
from sottovoce.runs.verification import Verified, verify

SetName = Literal["dev", "test"]


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run, as recorded in its folder."""

    path: Path
    name: str  # its name on the page; no other run of the page has the same
    config: Mapping[str, Any]
    data: Mapping[str, Any]  # hashes
    sources: Mapping[str, str]
    steps: Sequence[Line] = field(repr=False)  # one line of the metrics per step
    dev_evaluations: Sequence[Line] = field(repr=False)  # one line of the metrics per evaluation on dev
    guarantee: str  # as the run states it; empty for central runs
    result: Mapping[str, Any]
    evaluation: Mapping[str, Mapping[str, Any]] = field(repr=False)  # WER per speaker, by the name of the population
    row: Mapping[str, Any]  # the row of a benchmark that it belongs to; empty without one
    users: int | None = None  # in the store; None where it is K, or was not logged

    @property
    def kind(self) -> Literal["central", "federated"]:
        """How the run was trained."""
        federated = "users" in self.data or self.guarantee or any("central_lr" in line for line in self.steps[:1])
        return "federated" if federated else "central"

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
        evaluated = any(document.get("steps") == self.steps_done for document in self.evaluation.values())
        return bool(self.result) or evaluated or self.steps_done >= self.steps_planned

    def setting(self, key: str) -> Any:
        """Return one value of the configuration, such as "federated.local.lr"; None where it has no such key."""
        value: Any = self.config
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def wer(self, set_name: SetName) -> float | None:
        """Return the WER of the final model as a share; None where it was not evaluated."""
        document = self.evaluation.get(self.row.get(set_name) or set_name)
        if document is not None:
            return float(document["wer"])
        if set_name == "test":
            test = self.result.get("test")
            return float(test["wer"]) if test else None
        last = self.result.get("dev_wer", self.dev_evaluations[-1]["dev_wer"] if self.dev_evaluations else None)
        return None if last is None else float(last)

    @property
    def epsilons(self) -> Epsilons | None:
        """The privacy that the run has spent; None without a guarantee. An unfinished run has no PLD bound yet."""
        after_last_step = self.steps[-1].get("epsilon") if self.steps else None
        return read_epsilons(self.result) or read_epsilons({"epsilon_rdp": after_last_step})

    @property
    def tightest_epsilon(self) -> float | None:
        """The smallest known upper bound on the epsilon spent; None without a guarantee."""
        return None if self.epsilons is None else self.epsilons.tightest

    @cached_property
    def claims(self) -> tuple[ExtrapolatedClaim, ...]:
        """The claims that its row of a benchmark makes for other sizes."""
        return tuple(read_claim(document) for document in self.row.get("claims") or [])

    @property
    def paper_wers(self) -> Mapping[str, float]:
        """The WERs in percent that the paper prints for its row of a benchmark, by evaluation set."""
        return self.row.get("paper") or {}

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
        names = self.setting("federated.trainable") if self.kind == "federated" else None
        if names is None or names == "all":
            return None
        return (names,) if isinstance(names, str) else tuple(map(str, names))

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
        trainable = self.setting("federated.trainable") if federated else None
        try:
            return saved_partition(self.path / LAST / MODEL_FILE, chosen, trainable or "all")
        except SottoError:  # no checkpoint, or of a version that names parameters differently
            return None

    @property
    def layer_sizes(self) -> dict[str, int]:
        """d_h, the number of parameters of every layer; empty without a checkpoint."""
        partition = self.partition
        return {} if partition is None else dict(zip(partition.layers, partition.sizes, strict=True))


def read_records(paths: Sequence[Path]) -> list[RunRecord]:
    """Read several runs, each only once even where its folder is given twice, and give each a unique name."""
    unique = list({path.resolve(): path for path in paths}.values())
    if not unique:
        raise DataError("There is nothing to report on. Give the folders of one or more runs.")
    documents = [_read(path) for path in unique]
    names = _names([_label(path, row) for path, (*_, row) in zip(unique, documents, strict=True)], unique)
    return [_record(path, name, *document) for path, name, document in zip(unique, names, documents, strict=True)]


def _read(path: Path) -> tuple[Line, list[Line], Line, Line, Line]:
    config = RunConfig.find(path)
    if config is None:
        raise DataError(f"{path} is not a run: it holds no {RunConfig.FILE}. Give the folder after --run.")
    result, evaluation, row = (_content(kind.find(path)) for kind in (Result, Evaluations, BenchRow))
    return config.content(), read_metrics(path / METRICS_FILE), result, evaluation, row


def _content(document: Document | None) -> Line:
    """Return the keys of a document that have a value; none where a run has not written it."""
    return {} if document is None else {key: value for key, value in document.content().items() if value is not None}


def _record(
    path: Path, name: str, config: Line, lines: list[Line], result: Line, evaluation: Line, row: Line
) -> RunRecord:
    guarantees = [str(line["guarantee"]) for line in (*lines, result) if "guarantee" in line]
    return RunRecord(
        path,
        name,
        config["config"],
        config.get("data") or {},
        config.get("sources") or {},
        [line for line in lines if "lr" in line or "central_lr" in line],
        [line for line in lines if "dev_wer" in line],
        guarantees[-1] if guarantees else "",
        result,
        _of_the_last_model(evaluation, lines),
        row,
        _users(lines),
    )


def _users(lines: Sequence[Line]) -> int | None:
    """Return the number of users in the store, as the first line of a federated run states it where it is not K."""
    stated = [line["not_private"]["users"] for line in lines if "guarantee" in line and "not_private" in line]
    return int(stated[-1]) if stated else None


def _of_the_last_model(evaluation: Line, lines: Sequence[Line]) -> dict[str, Line]:
    """Return the evaluations of the final model. A run that was extended may still hold evaluations of an older one.

    An evaluation on dev or test is left out where a benchmark evaluated the same speakers under another name.
    """
    done = max((line["step"] for line in lines), default=0)
    last = {name: one for name, one in evaluation.items() if one["steps"] == done}
    named = {one.get("population") for name, one in last.items() if name not in ("dev", "test")}
    return {
        name: one for name, one in last.items() if name not in ("dev", "test") or one.get("population") not in named
    }


def _label(path: Path, row: Line) -> str:
    return str(row.get("label") or path.resolve().name)


def _names(labels: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return the labels; runs that share a label get the names of their folders added."""
    counts = Counter(labels)
    return [
        label if counts[label] == 1 else f"{label} ({path.resolve().parent.name}/{path.resolve().name})"
        for label, path in zip(labels, paths, strict=True)
    ]
