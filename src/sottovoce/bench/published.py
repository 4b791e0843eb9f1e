"""The results of a benchmark as a small document that can leave the machine: word errors, without names or audio.

    FOLDER/BENCH-SIZE.json        every finished run: edits of each speaker by set, epsilon, sizes

Speakers are numbered, in the order of their names: the same number is the same speaker in all rows and seeds, so that
tables, intervals and verdicts can be computed again from documents alone. Several documents of one benchmark, from
several machines, are read as one; they must be of the same code.

The document is not covered by any privacy guarantee: it holds error rates of single, unnamed speakers of dev and test.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from sottovoce.bench.code_version import code_version
from sottovoce.bench.intervals import Counts
from sottovoce.bench.plan import BenchRun
from sottovoce.bench.results import RowResult, RunResult, Simulated, row_result
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import make_folder, written_whole
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.runs.documents import TrainingKind, read_json
from sottovoce.version import VERSION

FORM: Literal["sottovoce-bench-1"] = "sottovoce-bench-1"
_FROZEN = ConfigDict(frozen=True, extra="forbid")


class PublishedSet(BaseModel):
    """The word errors on one part."""

    model_config = _FROZEN

    part: str
    edits: tuple[NonNegativeInt, ...]  # by speaker


class PublishedModel(BaseModel):
    """One model of a run, by dev, test or another part."""

    model_config = _FROZEN

    steps: int
    sets: dict[str, PublishedSet]


class PublishedRun(BaseModel):
    """One run of a row."""

    model_config = _FROZEN

    seed: int
    key: str
    last: PublishedModel
    best: PublishedModel | None  # on dev; None where it is the last one
    epsilon_rdp: float | None
    epsilon_pld: float | None


class PublishedRow(BaseModel):
    """The runs of one row, and the sizes they were simulated at."""

    model_config = _FROZEN

    row: str
    kind: TrainingKind
    cohort_size: float | None
    population: int | None
    central_steps: int | None
    runs: tuple[PublishedRun, ...]

    @property
    def simulated(self) -> Simulated | None:
        """The sizes of a federated row."""
        if self.cohort_size is None or self.central_steps is None:
            return None
        return Simulated(self.cohort_size, self.population, self.central_steps)


class PublishedBench(BaseModel):
    """The results of a benchmark."""

    model_config = _FROZEN

    form: Literal["sottovoce-bench-1"] = FORM
    bench: str
    size: Literal["paper", "mini"]
    version: str
    code: str  # the version of the algorithm, and of own code, that computed the runs
    words: dict[str, tuple[NonNegativeInt, ...]]  # of the references, by part and speaker
    rows: tuple[PublishedRow, ...]

    @property
    def file_name(self) -> str:
        """The name of the document."""
        return file_name(self.bench, self.size)


def file_name(bench: str, size: str) -> str:
    """Return the name of a benchmark's document; that of a YAML file is named after the file."""
    return f"{Path(bench).stem}-{size}.json"


def publish(run: BenchRun, results: Iterable[RowResult]) -> PublishedBench:
    """Return the document of all rows that have finished runs."""
    words: dict[str, tuple[int, ...]] = {}
    rows = []
    for result in results:
        if result.runs:
            rows.append(_published_row(result))
            for one in result.runs:
                words |= {counts.part: tuple(map(int, counts.words)) for counts in one.last.values()}
    return PublishedBench(
        bench=run.name, size=run.size_name, version=VERSION, code=code_version(), words=words, rows=tuple(rows)
    )


def _published_row(result: RowResult) -> PublishedRow:
    sizes = result.simulated
    return PublishedRow(
        row=result.row.name,
        kind=result.kind,
        cohort_size=None if sizes is None else sizes.cohort_size,
        population=None if sizes is None else sizes.population,
        central_steps=None if sizes is None else sizes.central_steps,
        runs=tuple(map(_published_run, result.runs)),
    )


def _published_run(run: RunResult) -> PublishedRun:
    last, best = (
        PublishedModel(
            steps=steps,
            sets={
                label: PublishedSet(part=counts.part, edits=tuple(map(int, counts.edits)))
                for label, counts in sets.items()
            },
        )
        for steps, sets in ((run.steps, run.last), (run.best_steps, run.best))
    )
    return PublishedRun(
        seed=run.seed,
        key=run.key,
        last=last,
        best=None if run.best_steps == run.steps else best,
        epsilon_rdp=run.epsilon.rdp,
        epsilon_pld=run.epsilon.pld,
    )


def write_published(document: PublishedBench, folder: Path) -> Path:
    """Write a document into a folder, whole, and return its path; an older one of the benchmark is replaced."""
    make_folder(folder.absolute())
    path = folder / document.file_name
    with written_whole(path) as file:
        file.write((json.dumps(document.model_dump(mode="json")) + "\n").encode())
    return path


def read_published(folder: Path) -> dict[tuple[str, str], PublishedBench]:
    """Return the documents of a folder and of folders in it, by benchmark and size; those of one are joined.

    JSON files that are not such documents are left out. Raise DataError where there is none, where one is damaged, or
    where two contradict each other.
    """
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}. Give a folder that `sotto bench export` has written.")
    found: dict[tuple[str, str], PublishedBench] = {}
    for path in sorted(folder.rglob("*.json")):
        content = read_json(path)
        if not isinstance(content, dict) or "form" not in content or "bench" not in content:
            continue
        if content["form"] != FORM:
            raise DataError(f"{path} is in the form {content['form']!r}, not {FORM}. Export it again.")
        try:
            document = PublishedBench.model_validate(content)
            _require_lengths(document)
        except (ValidationError, ValueError):
            raise DataError(f"{path} is damaged. Export it again.") from None
        key = (document.bench, document.size)
        found[key] = _joined(found[key], document, path) if key in found else document
    if not found:
        raise DataError(f"{folder} holds no results of benchmarks. Write some with `sotto bench export`.")
    return found


def _require_lengths(document: PublishedBench) -> None:
    for row in document.rows:
        for run in row.runs:
            for model in filter(None, (run.last, run.best)):
                for one in model.sets.values():
                    if len(one.edits) != len(document.words.get(one.part, ())) or not one.edits:
                        raise ValueError("edits and words of a part differ in length")


def _joined(one: PublishedBench, other: PublishedBench, path: Path) -> PublishedBench:
    """Return the runs of two documents of one benchmark."""
    if one.code != other.code:
        raise DataError(f"{path} is of other code than another document of {one.bench}. Keep those of one code.")
    if any(one.words.get(part, words) != words for part, words in other.words.items()):
        raise DataError(f"{path} is of other speakers than another document of {one.bench}. Keep those of one corpus.")
    rows = {row.row: row for row in one.rows}
    for row in other.rows:
        before = rows.get(row.row)
        rows[row.row] = row if before is None else _joined_row(before, row, path)
    return one.model_copy(update={"words": {**one.words, **other.words}, "rows": tuple(rows.values())})


def _joined_row(one: PublishedRow, other: PublishedRow, path: Path) -> PublishedRow:
    runs = {run.seed: run for run in one.runs}
    for run in other.runs:
        if run.seed in runs and runs[run.seed].key != run.key:
            raise DataError(f"{path} has another run of the row {other.row!r}, seed {run.seed}. Keep one of them.")
        runs[run.seed] = run
    return one.model_copy(update={"runs": tuple(runs[seed] for seed in sorted(runs))})


def published_results(run: BenchRun, document: PublishedBench | None) -> list[RowResult]:
    """Return the rows of a benchmark with the results of a document; without one, of nothing.

    Seeds that were not asked for are left out. Raise DataError for a row that the benchmark does not have.
    """
    published = {} if document is None else {row.row: row for row in document.rows}
    known = {row.name for row in run.size.rows}
    if unknown := published.keys() - known:
        raise DataError(f"The benchmark {run.name} has no row {min(unknown)!r}. Export its results again.")
    words = {} if document is None else {part: np.array(own, np.int64) for part, own in document.words.items()}
    results = []
    for row in run.rows:
        own = published.get(row.name)
        runs = [] if own is None else [_run_of(one, words) for one in own.runs if one.seed in run.seeds]
        results.append(row_result(run.bench, run.size, row, runs, None if own is None else own.simulated))
    return results


def _run_of(run: PublishedRun, words: dict[str, "np.ndarray[tuple[int], np.dtype[np.int64]]"]) -> RunResult:
    last, best = (
        {label: Counts(one.part, words[one.part], np.array(one.edits, np.int64)) for label, one in model.sets.items()}
        for model in (run.last, run.best or run.last)
    )
    return RunResult(
        seed=run.seed,
        key=run.key,
        steps=run.last.steps,
        best_steps=(run.best or run.last).steps,
        last=last,
        best=best,
        epsilon=Epsilons(run.epsilon_rdp, run.epsilon_pld),
        folder=None,
    )


def require_folder(folder: Path) -> None:
    """Raise ConfigError where documents cannot be written into a folder."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file. Give a folder for the documents.")


def kept_seeds(folder: Path, bench: str, size: str) -> Sequence[int]:
    """Return the seeds of the document that is kept in a folder; none where there is none, or none that can be read."""
    path = folder / file_name(bench, size)
    try:
        document = PublishedBench.model_validate(read_json(path)) if path.is_file() else None
    except (ValidationError, DataError):
        return ()
    return () if document is None else sorted({run.seed for row in document.rows for run in row.runs})
