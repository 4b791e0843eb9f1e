"""What a report reads: the folder of a run, central or federated, finished or not, of this version or an older one.

A folder that is no run, or a document or line of it that cannot be read, is a DataError of one line. What an older run
did not write is simply not there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sottovoce.errors import DataError
from sottovoce.model.flat import Partition, PartitionName
from sottovoce.model.recogniser import MODEL_FILE, saved_partition
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.ledger import LEDGER_FILE
from sottovoce.reports.reading.metrics import Line, read_metrics
from sottovoce.runs.documents import BenchRow, Document, Evaluations, Result, RunConfig
from sottovoce.runs.folder import LAST
from sottovoce.runs.metrics_log import METRICS_FILE

Which = Literal["dev", "test"]


@dataclass(frozen=True, eq=False)
class Record:
    """One run, as its folder tells it."""

    path: Path
    name: str  # what the page calls it: no other run of the page has it
    config: Mapping[str, Any]
    data: Mapping[str, Any]  # hashes
    sources: Mapping[str, str]
    steps: Sequence[Line] = field(repr=False)  # a line for every step
    evaluations: Sequence[Line] = field(repr=False)  # a line for every evaluation on dev
    guarantee: str  # as the run said it; empty for central runs
    result: Mapping[str, Any]
    evaluation: Mapping[str, Mapping[str, Any]] = field(repr=False)  # WER per speaker, by the name of the population
    row: Mapping[str, Any]  # of a benchmark; empty where it belongs to none

    @property
    def kind(self) -> Literal["central", "federated"]:
        """How it was trained."""
        federated = "users" in self.data or self.guarantee or any("central_lr" in line for line in self.steps[:1])
        return "federated" if federated else "central"

    @property
    def done(self) -> int:
        """How many steps it has taken."""
        return max((int(line["step"]) for line in self.steps), default=0)

    @property
    def planned(self) -> int:
        """How many steps it was to take."""
        federated = self.kind == "federated"
        return int(self.setting("federated.central_steps" if federated else "central.steps") or 0)

    @property
    def finished(self) -> bool:
        """Whether it has ended: by its steps, its minutes, or its budget."""
        evaluated = any(one.get("steps") == self.done for one in self.evaluation.values())
        return bool(self.result) or evaluated or self.done >= self.planned

    def setting(self, key: str) -> Any:
        """Return one value of the configuration; None where this version's key is not in it."""
        found: Any = self.config
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def wer(self, which: Which) -> float | None:
        """Return the WER of the final model, as a share."""
        document = self.evaluation.get(self.row.get(which) or which)
        if document is not None:
            return float(document["wer"])
        if which == "test":
            test = self.result.get("test")
            return float(test["wer"]) if test else None
        last = self.result.get("dev_wer", self.evaluations[-1]["dev_wer"] if self.evaluations else None)
        return None if last is None else float(last)

    def epsilon(self, by: Literal["rdp", "pld"]) -> float | None:
        """Return what it has spent; None without a guarantee, or where this was not computed."""
        found = self.result.get(f"epsilon_{by}")
        if found is None and by == "rdp" and self.steps:
            found = self.steps[-1].get("epsilon")
        return None if found is None else float(found)

    @property
    def cohort_size(self) -> float | None:
        """S, the expected number of users in a step."""
        everyone = self.setting("participation.sampling") == "everyone"
        found = self.setting("participation.population" if everyone else "participation.cohort_size")
        return None if found is None else float(found)

    @property
    def population(self) -> int | None:
        """K."""
        found = self.setting("participation.population")
        return None if found is None else int(found)

    @property
    def has_ledger(self) -> bool:
        """Whether its releases were charged to a ledger."""
        return (self.path / LEDGER_FILE).is_file()

    @cached_property
    def partition(self) -> Partition | None:
        """The layers of its trainable parameters, from its last checkpoint; None where there is none."""
        federated = self.kind == "federated"
        chosen: PartitionName = self.setting("federated.partition") if federated else "tensor"
        trainable = self.setting("federated.trainable") if federated else None
        try:
            return saved_partition(self.path / LAST / MODEL_FILE, chosen, trainable or "all")
        except DataError:
            return None

    @property
    def layer_sizes(self) -> dict[str, int]:
        """d_h of every layer; empty where there is no checkpoint."""
        found = self.partition
        return {} if found is None else dict(zip(found.layers, found.sizes, strict=True))


def read_records(paths: Sequence[Path]) -> list[Record]:
    """Read several runs, each once, and give each a name of its own."""
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
) -> Record:
    guarantees = [str(line["guarantee"]) for line in (*lines, result) if "guarantee" in line]
    return Record(
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
    )


def _of_the_last_model(evaluation: Line, lines: Sequence[Line]) -> dict[str, Line]:
    """Return the evaluations of the model after the last step: a run that was extended keeps older ones for a while.

    Speakers that a benchmark knows by a name of its own are not shown as dev or test besides.
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
    """Return the labels; where several runs have one, with the folders that tell them apart."""
    counts = Counter(labels)
    return [
        label if counts[label] == 1 else f"{label} ({path.resolve().parent.name}/{path.resolve().name})"
        for label, path in zip(labels, paths, strict=True)
    ]


def tightest(run: Record) -> float | None:
    """Return the smallest epsilon that is known of a run; None without a guarantee."""
    return Epsilons(run.epsilon("rdp"), run.epsilon("pld")).tightest


def claimed_epsilon(claim: Line) -> float | None:
    """Return the smallest epsilon of a claim."""
    return Epsilons(claim.get("epsilon_rdp"), claim.get("epsilon_pld")).tightest
