"""The JSON files in the folder of a run, one class each: the class writes the file and reads it again.

    RUN/config.json                   RunConfig      the resolved configuration, and hashes of the data
    RUN/machines.json                 Machines       the types of machine it was trained on (machine.py)
    RUN/last/checkpoint.json          Checkpoint     how far the training was when the checkpoint was saved
    RUN/evaluation.json               Evaluations    error rates of the last model, by population
    RUN/best_evaluation.json          BestEvaluations    of the best model on dev, where a benchmark asks for it
    RUN/result.json                   Result         how a run ended
    RUN/row.json, RUN/done.json       BenchRow, Done of a run that a benchmark has trained

All of them are private: they hold paths, hashes of the data or error rates, and only their owner can read them.

A file that is damaged is a DataError of one line. Keys that this version does not know are ignored, so that runs of
other versions can be read.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, RootModel, ValidationError, field_validator

from sottovoce.config import PUBLIC_SETTINGS, Config, Tree
from sottovoce.data.selection import Selection
from sottovoce.errors import DataError
from sottovoce.evaluation.scores import Breakdown, Scores
from sottovoce.files import write_json
from sottovoce.privacy.chain import Mark
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.reading import BadDocument, parse_json, read_bounded

TrainingKind = Literal["central", "federated"]


class Document(BaseModel):
    """One JSON file of a run."""

    model_config = ConfigDict(frozen=True)

    FILE: ClassVar[str]
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()  # keys that are left out of the file where they are None

    def content(self) -> Tree:
        """Return the file's content, key by key."""
        tree: Tree = self.model_dump(mode="json")
        return {key: value for key, value in tree.items() if key not in self.OPTIONAL or value is not None}

    def write(self, folder: Path) -> None:
        """Write the file whole, for its owner only."""
        write_json(folder / self.FILE, self.content(), private=True)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the file; raise DataError where it is missing or damaged."""
        path = folder / cls.FILE
        try:
            return cls.model_validate(read_json(path))
        except ValidationError:
            raise _damaged(path) from None

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """Read the file; return None where it is missing, and raise DataError where it is damaged."""
        return cls.read(folder) if (folder / cls.FILE).is_file() else None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise DataError where it is missing or not JSON."""
    try:
        return parse_json(read_bounded(path))
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path} is missing. Restore it, or choose another run.") from None
    except BadDocument:
        raise _damaged(path) from None


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is damaged. Restore it, or choose another run.")


class RunConfig(Document):
    """The configuration that a run was started with, the source of every value, and hashes that identify its data."""

    FILE: ClassVar[str] = "config.json"

    config: Tree  # as the version that wrote it has it
    data: dict[str, str | None] = {}
    sources: dict[str, str] = {}

    @field_validator("config")
    @classmethod
    def _has_sections(cls, config: Tree) -> Tree:
        """Require keys and values in every section of which only some keys are public."""
        for section in (name for name, keys in PUBLIC_SETTINGS.items() if keys is not None):
            if not isinstance(config.get(section, {}), Mapping):
                raise ValueError(f"{section} should hold keys and values")  # noqa: TRY004 - pydantic wants it
        return config

    def setting(self, key: str) -> Any:
        """Return a value or section of the configuration, such as "federated.local.lr"; None for an unknown key."""
        value: Any = self.config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    @property
    def secure(self) -> bool:
        """Whether the run draws its cohorts and noise from secure randomness."""
        return bool(self.setting("randomness.source") == "secure")

    def with_places(self, run: Path) -> "RunConfig":
        """Return this document with places of data that do not depend on the current folder.

        A place inside the run's folder is relative to it, so that it moves with the run. Any other is absolute.
        """
        places = {key: _map_places(value, lambda place: _stored(place, run)) for key, value in self._data.items()}
        return self.model_copy(update={"config": {**self.config, "data": places}})

    def selection(self, role: str, run: Path) -> Selection | None:
        """Return the speech of a role (train, dev or test) of the run in this folder; None where there is none."""
        stored = self._data.get(role)
        return None if stored is None else Selection(**_map_places(stored, lambda place: _found(place, run)))

    def seed_model(self, run: Path) -> Path | None:
        """Return the seed model of the run in this folder; None where there is none."""
        stored = self._data.get("seed_model")
        return None if stored is None else Path(_found(stored, run))

    @property
    def _data(self) -> Mapping[str, Any]:
        data = self.config.get("data")
        return data if isinstance(data, Mapping) else {}

    def changes(self, other: "RunConfig", may_change: Collection[str]) -> set[str]:
        """Return the keys whose values differ, except for those, or those in sections, that may change."""
        return {
            key
            for key in _differences(self.config, other.config)
            if not any(f"{key}.".startswith(f"{free}.") for free in may_change)
        }

    def completed(self, without: Collection[str] = ()) -> "RunConfig":
        """Return this document with today's default for every option that is newer than the run.

        Top-level sections in `without` are replaced by their defaults. Raise pydantic's ValidationError where this
        version does not accept the stored configuration.
        """
        kept = {key: value for key, value in self.config.items() if key not in without}
        return self.model_copy(update={"config": Config.model_validate(kept).model_dump(mode="json")})

    def with_seed_model(self, seed_model: str | None) -> "RunConfig":
        """Return this document with another seed model, given as a run keeps it."""
        config = {**self.config, "data": {**self._data, "seed_model": seed_model}}
        return self.model_copy(update={"config": config})


def _map_places(value: Any, change: Callable[[str], str]) -> Any:
    """Return the places of a selection, or one place, changed."""
    if isinstance(value, Mapping):
        return {key: _map_places(inner, change) for key, inner in value.items()}
    return None if value is None else change(str(value))


def _stored(place: str, run: Path) -> str:
    """Return a place as a run keeps it."""
    absolute, folder = Path(place).absolute(), run.absolute()
    return str(absolute.relative_to(folder) if absolute.is_relative_to(folder) else absolute)


def _found(place: str, run: Path) -> str:
    """Return where a stored place is."""
    return str(run.absolute() / place)  # an absolute place stays as it is


def _differences(old: Any, new: Any, prefix: str = "") -> set[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = {*old, *new}
        return {key for name in keys for key in _differences(old.get(name), new.get(name), f"{prefix}{name}.")}
    return set() if old == new else {prefix.rstrip(".")}


class Checkpoint(Document):
    """The counters of a training at one of its checkpoints."""

    FILE: ClassVar[str] = "checkpoint.json"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"since_best", "ledger"})

    step: int  # how many steps were done
    optimizer_steps: int
    best_wer: float | None  # the lowest WER on dev so far
    last_wer: float | None  # the WER on dev at the last evaluation
    evaluated: int  # how many steps were done at the last evaluation; -1 before the first
    since_best: int | None = None  # evaluations since the lowest WER; left out where the last one is the lowest
    ledger: Mark | None = None  # of a federated run


class _Model(BaseModel):
    """The model and the population that an evaluation is of."""

    steps: int
    population: str | None = None  # a hash


class Evaluation(Breakdown, _Model):
    """The error rates of the model after some steps on one population."""


class Evaluations(Document, RootModel[dict[str, Evaluation]]):
    """The evaluations of a run, by the name of the population: dev, test, or a part of a benchmark."""

    FILE: ClassVar[str] = "evaluation.json"


class BestEvaluations(Evaluations):
    """The evaluations of the best model on dev, where that is not the last one."""

    FILE: ClassVar[str] = "best_evaluation.json"


class Result(Document):
    """How a run ended; a central run has releases, epsilon and guarantee empty."""

    FILE: ClassVar[str] = "result.json"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"stopped"})

    steps: int | None = None
    dev_wer: float | None = None
    best_dev_wer: float | None = None
    test: Scores | None = None
    releases: int | None = None
    epsilon_rdp: float | None = None
    epsilon_pld: float | None = None
    stopped: str | None = None  # why it ended before its last step
    guarantee: str | None = None

    @property
    def epsilon(self) -> Epsilons:
        """The privacy that the run has spent."""
        return Epsilons(self.epsilon_rdp, self.epsilon_pld)


class ClaimedEpsilon(BaseModel):
    """The epsilon of a row's noise at a cohort size and population that nobody trained."""

    model_config = ConfigDict(frozen=True)

    cohort_size: float
    population: int
    central_steps: int
    target_delta: float | None = None
    epsilon_rdp: float | None = None
    epsilon_pld: float | None = None

    @property
    def epsilon(self) -> Epsilons:
        """The claimed epsilon."""
        return Epsilons(self.epsilon_rdp, self.epsilon_pld)


class BenchRow(Document):
    """The row of a benchmark that a run was last used for, with the paper's numbers."""

    FILE: ClassVar[str] = "row.json"

    bench: str
    size: str
    row: str
    seed: int
    label: str  # the row's name with the seed
    kind: TrainingKind
    dev: str | None = None  # the part that is its dev set
    test: str | None = None
    claims: list[ClaimedEpsilon] = []
    paper: dict[str, float] = {}  # WER in percent, by dev, test or part


class Done(Document):
    """Written last: the run of a benchmark is trained and evaluated."""

    FILE: ClassVar[str] = "done.json"
    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"seconds", "processes"})

    key: str
    kind: TrainingKind
    steps: int
    seconds: float | None = None  # of training and evaluation; runs of earlier versions do not have it
    processes: int | None = None  # that trained it
