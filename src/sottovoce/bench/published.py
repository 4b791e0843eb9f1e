"""The results of a benchmark as a small document that can leave the machine: word errors, without names or audio.

    FOLDER/NAME-SIZE.json        every finished run: edits of each speaker by set, epsilon, sizes, norms of layers,
                                 types of machine, the hash of its seed model, and that of its verified ledger

Speakers are numbered, in the order of their names: the same number is the same speaker in all rows and seeds, so that
tables, intervals and verdicts can be computed again from documents alone (document_folder.py). Several documents of one
benchmark, from several machines, are read as one; a row must be the same in all of them, but for its seeds.

The document is not covered by any privacy guarantee: it holds error rates of single, unnamed speakers of dev and test,
and mean norms of users' deltas.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sottovoce.bench.locks import Say, silent
from sottovoce.bench.plan import BenchRun
from sottovoce.bench.preset import Row
from sottovoce.bench.results import RowResult, RunResult, Simulated, StartedFrom, VerifiedLedger
from sottovoce.bench.row_hashes import content_hashes, described_hash, row_code
from sottovoce.bench.verified_ledgers import verified_ledger
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import make_folder, written_whole
from sottovoce.runs.documents import TrainingKind, read_json
from sottovoce.runs.machine import Machine
from sottovoce.version import VERSION

FORM: Literal["sottovoce-bench-2"] = "sottovoce-bench-2"
_FROZEN = ConfigDict(frozen=True, extra="forbid")
_LONGEST = 300  # of a machine's name

Count = Annotated[int, Field(ge=0, le=2**40)]  # of one speaker; sums of them are far below the largest integer
Epsilon = Annotated[float, Field(ge=0)]
Norm = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _plain(machine: Machine) -> Machine:
    """Refuse a machine whose text is no plain line: it is printed, and written into pages."""
    if not str(machine).isprintable() or len(str(machine)) > _LONGEST or any(mark in str(machine) for mark in "<>`|"):
        raise ValueError("a machine has no plain name")
    return machine


PlainMachine = Annotated[Machine, AfterValidator(_plain)]


class PublishedSet(BaseModel):
    """The word errors on one part."""

    model_config = _FROZEN

    part: str
    edits: tuple[Count, ...]  # by speaker


class PublishedModel(BaseModel):
    """One model of a run, by dev, test or another part."""

    model_config = _FROZEN

    steps: Count
    sets: dict[str, PublishedSet]


class PublishedRun(BaseModel):
    """One run of a row."""

    model_config = _FROZEN

    seed: Count
    key: str
    last: PublishedModel
    best: PublishedModel | None  # on dev; None where it is the last one
    epsilon_rdp: Epsilon | None
    epsilon_pld: Epsilon | None
    norms: dict[str, tuple[Norm, ...]] = {}  # of gradients or users' deltas, by kind of layer and block
    machines: tuple[PlainMachine, ...] = ()  # documents of earlier versions have neither this nor the next
    started_from: StartedFrom | None = None
    ledger: VerifiedLedger | None = None  # of runs that spent their epsilon


class PublishedRow(BaseModel):
    """The runs of one row, and the sizes they were simulated at."""

    model_config = _FROZEN

    row: str
    kind: TrainingKind
    code: str  # the version of the algorithm, and of own code, that computed the runs
    described: str  # the hash of the row as its preset describes it
    content: str  # the same, with the content of its parts
    cohort_size: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    population: Annotated[int, Field(ge=1)] | None
    central_steps: Count | None
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

    form: Literal["sottovoce-bench-2"] = FORM
    bench: str  # as `document_name` has it
    size: Literal["paper", "mini"]
    version: str
    words: dict[str, tuple[Count, ...]]  # of the references, by part and speaker
    rows: tuple[PublishedRow, ...]

    @property
    def file_name(self) -> str:
        """The name of the document."""
        return f"{self.bench}-{self.size}.json"

    @property
    def seeds(self) -> set[int]:
        """All seeds of all rows."""
        return {run.seed for row in self.rows for run in row.runs}


def document_name(bench: str) -> str:
    """Return the name of a benchmark in documents: that of a YAML file is the name of the file, with its ending."""
    return Path(bench).name


def publish(run: BenchRun, results: Iterable[RowResult], *, verify: bool = False) -> PublishedBench:
    """Return the document of all rows that have finished runs, as `collect` has them.

    With `verify`, for others to read, it names the ledgers of runs that spent an epsilon, each verified now; raise
    PrivacyError with the first that does not hold.
    """
    words: dict[str, tuple[int, ...]] = {}
    rows, contents = [], content_hashes(run)
    for result in results:
        if result.runs:
            rows.append(_published_row(run, result, contents[result.row.name], verify=verify))
            for one in result.runs:
                words |= {counts.part: tuple(map(int, counts.words)) for counts in one.last.values()}
    return PublishedBench(
        bench=document_name(run.name), size=run.size_name, version=VERSION, words=words, rows=tuple(rows)
    )


def _published_row(run: BenchRun, result: RowResult, content: str, *, verify: bool) -> PublishedRow:
    sizes, name = result.simulated, result.row.name
    ledgers = [verified_ledger(name, one) if verify else one.ledger for one in result.runs]
    return PublishedRow(
        row=name,
        kind=result.kind,
        code=row_code(run, result.row),
        described=described_hash(run, result.row),
        content=content,
        cohort_size=None if sizes is None else sizes.cohort_size,
        population=None if sizes is None else sizes.population,
        central_steps=None if sizes is None else sizes.central_steps,
        runs=tuple(map(_published_run, result.runs, ledgers)),
    )


def _published_run(run: RunResult, ledger: VerifiedLedger | None) -> PublishedRun:
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
        norms={kind: tuple(blocks) for kind, blocks in run.norms.items()},
        machines=tuple(run.machines),
        started_from=run.started_from,
        ledger=ledger,
    )


def write_published(document: PublishedBench, folder: Path, *, private: bool = False) -> Path:
    """Write a document into a folder, whole, and return its path; an older one of the benchmark is replaced.

    A private one is for its owner only.
    """
    make_folder(folder.absolute())
    path = folder / document.file_name
    with written_whole(path, private=private) as file:
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
        document = _read(path) if path.is_file() else None
        if document is not None:
            key = (document.bench, document.size)
            found[key] = _joined(found[key], document, path) if key in found else document
    if not found:
        raise DataError(f"{folder} holds no results of benchmarks. Write some with `sotto bench export`.")
    return found


def _read(path: Path) -> PublishedBench | None:
    """Return a document; None where the file is something else."""
    try:
        content = read_json(path)
        if not isinstance(content, dict) or "form" not in content or "bench" not in content:
            return None
        if content["form"] == FORM:
            document = PublishedBench.model_validate(content)
            _require_whole(document)
            return document
    except (DataError, ValidationError, ValueError):
        raise DataError(f"{path} is damaged. Export it again, or remove it.") from None
    raise DataError(f"{path} is in the form {content['form']!r}, not {FORM}. Export it again.")


def _require_whole(document: PublishedBench) -> None:
    """Raise ValueError where parts of a document contradict each other."""
    if not all(map(any, document.words.values())):
        raise ValueError("a part has no words")
    if len({row.row for row in document.rows}) < len(document.rows):
        raise ValueError("a row is there twice")
    for row in document.rows:
        if len({run.seed for run in row.runs}) < len(row.runs):
            raise ValueError("a seed is there twice")
        for one in (own for run in row.runs for own in sets_of(run)):
            if len(one.edits) != len(document.words.get(one.part, ())) or not one.edits:
                raise ValueError("edits and words of a part differ in length")


def _joined(one: PublishedBench, other: PublishedBench, path: Path) -> PublishedBench:
    """Return the runs of two documents of one benchmark."""
    if any(one.words.get(part, words) != words for part, words in other.words.items()):
        raise DataError(f"{path} is of other speakers than another document of {one.bench}. Keep those of one corpus.")
    rows = {row.row: row for row in one.rows}
    for row in other.rows:
        before = rows.get(row.row)
        rows[row.row] = row if before is None else joined_row(before, row, path)
    return one.model_copy(update={"words": {**one.words, **other.words}, "rows": tuple(rows.values())})


def joined_row(one: PublishedRow, other: PublishedRow, path: Path) -> PublishedRow:
    """Return a row with the runs of both; raise DataError where they are not of one row, or on other parts."""
    if one.content != other.content:
        what = (
            "algorithm" if one.code != other.code else "preset" if one.described != other.described else "set of data"
        )
        raise DataError(f"{path} has the row {other.row!r} of another {what} than another document. Keep one of them.")
    # Speakers are resampled by part: the same ones under two names would count as different people.
    if len({_parts(run) for row in (one, other) for run in row.runs}) > 1:
        raise DataError(f"{path} has the row {other.row!r} on parts of other names than another document. Keep one.")
    runs = {run.seed: run for run in one.runs}
    for run in other.runs:
        before = runs.get(run.seed, run)
        # A key knows nothing of secure noise: two runs of one key are told apart by their ledgers.
        ledgers = {one.ledger for one in (before, run) if one.ledger is not None}
        if before.key != run.key or len(ledgers) > 1:
            raise DataError(f"{path} has another run of the row {other.row!r}, seed {run.seed}. Keep one of them.")
        runs[run.seed] = run.model_copy(update={"ledger": next(iter(ledgers), None)})
    return one.model_copy(update={"runs": tuple(runs[seed] for seed in sorted(runs))})


def is_of_today(run: BenchRun, row: Row, published: PublishedRow | None) -> bool:
    """Return whether a published row is one of today's preset and algorithm, whatever its data."""
    return published is not None and published.described == described_hash(run, row)


def require_folder(folder: Path) -> None:
    """Raise ConfigError where documents cannot be written into a folder."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file. Give a folder for the documents.")


def joined_with_older(run: BenchRun, document: PublishedBench, folder: Path, say: Say = silent) -> PublishedBench:
    """Return a document with what the one that it would replace has besides: other rows and seeds of today's benchmark.

    Rows of another algorithm or preset than today's are left out; `say` is told in a line. Raise DataError where the
    file there is damaged, of another benchmark, or of other data.
    """
    path = folder / document.file_name
    older = _read(path) if path.is_file() else None
    if older is None:
        return document
    if (older.bench, older.size) != (document.bench, document.size):
        raise DataError(f"{path} holds results of {older.bench} ({older.size}). Rename it, or use another folder.")
    rows = {row.row: row for row in older.rows}
    kept = [rows[row.name] for row in run.size.rows if is_of_today(run, row, rows.get(row.name))]
    if stale := rows.keys() - {row.row for row in kept}:
        say(f"{path}: rows of another algorithm or preset are no longer in it: {', '.join(sorted(stale))}.")
    parts = {one.part for row in kept for ran in row.runs for one in sets_of(ran)}
    words = {part: own for part, own in older.words.items() if part in parts}
    joined = _joined(document.model_copy(update={"rows": tuple(kept), "words": words}), document, path)
    names = [row.name for row in run.size.rows]
    return joined.model_copy(update={"rows": tuple(sorted(joined.rows, key=lambda row: names.index(row.row)))})


def _parts(run: PublishedRun) -> frozenset[tuple[str, str]]:
    """Return which part each set of a run is."""
    return frozenset((label, one.part) for label, one in run.last.sets.items())


def sets_of(run: PublishedRun) -> Iterator[PublishedSet]:
    """Yield the word errors of the last and of the best model."""
    for model in filter(None, (run.last, run.best)):
        yield from model.sets.values()
