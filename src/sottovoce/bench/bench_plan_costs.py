"""What runs of benchmarks cost on this machine before they are trained: how many are left, how long, how much disk.

The time of a step comes from finished runs of the plan that did the same work; where there are none, from a few local
steps of the model, timed now for two seconds for each distinct model (`estimate.devices.here`). Corpora need not be
prepared: until then, a run is known by the description of its data, so that shared runs are counted once.
"""

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sottovoce.bench.corpora import find_part, store_path
from sottovoce.bench.document_folder import DocumentFolder
from sottovoce.bench.plan import BenchRun, Job, configure, parts_in_key, run_key, wanted_parts, with_models
from sottovoce.bench.planned import PlanPart
from sottovoce.bench.preset import Row, Size
from sottovoce.bench.run import is_done
from sottovoce.config import Config
from sottovoce.data.corpora import AnyCorpus, Synthetic
from sottovoce.data.preparation_cost import estimate_synthetic_preparation
from sottovoce.errors import ConfigError
from sottovoce.estimate.devices import Device, here
from sottovoce.estimate.model_size import describe
from sottovoce.estimate.run_cost import estimate, estimate_central
from sottovoce.estimate.user_audio import UserAudio, iid, of_users, paper_audio, synthetic_audio
from sottovoce.estimate.work import local_work
from sottovoce.runs.documents import Done
from sottovoce.runs.folder import Run

_FINISHED_FACTOR, _MEASURED_FACTOR = 1.3, 2.0  # guesses: how far times may be off
_FLOAT = 4  # bytes
_CHECKPOINTS = 2  # the last and the best


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One row of a plan with one seed, and what is left to do for it."""

    bench: str
    name: str  # of the row that is shown
    seed: int
    key: str  # of its description
    base: "PlannedRun | None"
    shown: bool
    size: Size
    row: Row  # whose run it is
    config: Config
    job: Job | None  # None: its corpus is not prepared

    @property
    def label(self) -> str:
        """The row's name, with the seed unless it is 0."""
        return self.name if self.seed == 0 else f"{self.name}, seed {self.seed}"

    @property
    def content_key(self) -> str | None:
        """The key of the run, once its data are prepared."""
        return None if self.job is None else self.job.key

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.job is not None and is_done(self.job)

    @property
    def steps(self) -> int:
        """How many steps it trains."""
        return self.config.central.steps if self.row.kind == "central" else self.config.federated.central_steps

    @property
    def steps_left(self) -> int:
        """How many of them are left."""
        checkpoint = None if self.job is None else Run(self.job.folder).checkpoint
        return 0 if self.done else self.steps - (0 if checkpoint is None else min(checkpoint.step, self.steps))

    @property
    def work(self) -> str:
        """What decides how long a step takes, as text."""
        config, part = self.config, self.size.part_of(self.row)["train"]
        shared: dict[str, object] = {"kind": self.row.kind, "model": config.model.model_dump(mode="json")}
        shared |= {
            "hardware": config.hardware.model_dump(mode="json"),
            "data": None if part is None else _described(self.size, part),
        }
        if self.row.kind == "central":
            shared |= {"seconds": config.central.micro_batch_seconds, "batches": config.central.micro_batches}
        else:
            local = config.federated.local
            shared |= {"batching": config.batching.model_dump(mode="json"), "local": [local.steps, local.epochs]}
            shared |= {"optimizer": [local.optimizer.name, local.plain_sgd], "rule": local.rule.name}
            shared |= {"users": config.users.iid, "cohort": config.participation.cohort_size}
        return json.dumps(shared, sort_keys=True)


@dataclass(frozen=True)
class RunTime:
    """How long what is left of a run takes here; the truth may be off by the factor."""

    seconds: float
    factor: float


@dataclass(frozen=True)
class MissingCorpus:
    """A corpus that is not prepared; of a corpus that nobody has read, cost and size are not known."""

    name: str
    store: Path
    seconds: float | None
    bytes: float | None


@dataclass(frozen=True)
class PlanCost:
    """Some runs, each once, and what is left of them."""

    runs: Sequence[PlannedRun]
    times: Mapping[str, RunTime | None]  # of those that are left, by key; None: not known
    corpora: Sequence[MissingCorpus]
    bytes: float  # of the runs that are left

    @property
    def left(self) -> list[PlannedRun]:
        """The runs that are not done."""
        return [run for run in self.runs if not run.done]

    def seconds(self, runs: Iterable[PlannedRun] | None = None) -> tuple[float, float]:
        """Return the least and the most seconds that some, or all, of the runs that are left take, one after another.

        Runs whose time is not known are left out.
        """
        keys = self.times if runs is None else {run.key for run in runs if not run.done}
        times = [time for key in keys if (time := self.times[key]) is not None]
        return sum(one.seconds / one.factor for one in times), sum(one.seconds * one.factor for one in times)

    @property
    def unknown(self) -> int:
        """How many runs have no known time."""
        return sum(time is None for time in self.times.values())


def plan_cost(
    runs: Sequence[BenchRun], workers: int, part: PlanPart | None = None, published: DocumentFolder | None = None
) -> PlanCost:
    """Return what training some benchmarks in one folder costs here; nothing is trained or written.

    Runs that published documents have are left out.
    """
    planned = [
        one for run in runs for one in (_planned(run) if published is None else published.left_of(run, _planned(run)))
    ]
    if part is not None:
        planned = part.of(planned)
    once: dict[str, PlannedRun] = {}
    for one in planned:  # a run that several rows share is done when all of them are
        if one.key not in once or (once[one.key].done and not one.done):
            once[one.key] = one
    left = [one for one in once.values() if not one.done]
    rates, count = _rates(planned), _processes(left, workers)
    times = {one.key: _time(one, rates, count) for one in left}
    return PlanCost(list(once.values()), times, list(_missing(runs, workers)), sum(map(_bytes, left)))


def _planned(run: BenchRun) -> Iterator[PlannedRun]:
    jobs = {(job.row.name, job.seed): job for job in run.jobs()}
    shown = {row.name for row in run.rows}
    for seed in run.seeds:
        known: dict[str, PlannedRun] = {}
        for row in with_models(run.size, run.rows):
            origin = run.size.origin(row)
            resolved = configure(run.size, origin, seed)
            base = None if origin.seed_model is None else known[origin.seed_model]
            data = {role: _described(run.size, part) for role, part in parts_in_key(run.size, origin).items()}
            known[row.name] = PlannedRun(
                bench=run.name,
                name=row.name,
                seed=seed,
                key=run_key(origin.kind, resolved, data, None if base is None else base.key),
                base=base,
                shown=row.name in shown,
                size=run.size,
                row=origin,
                config=resolved.config,
                job=jobs.get((row.name, seed)),
            )
        yield from known.values()


def _described(size: Size, part: str) -> str:
    """Return what identifies a part before its corpus is prepared."""
    corpus = store_path(size, size.parts[part].corpus, Path()).name
    return f"{corpus} {size.parts[part].model_dump_json()}"


def _rates(planned: Iterable[PlannedRun]) -> dict[str, float]:
    """Return the seconds of one process for a step of each kind of work that some finished run has done."""
    found: dict[str, list[float]] = {}
    for one in planned:
        done = None if one.job is None else Done.find(one.job.folder)
        if done is not None and done.seconds is not None and done.steps > 0:
            found.setdefault(one.work, []).append(done.seconds * (done.processes or 1) / done.steps)
    return {work: statistics.median(rates) for work, rates in found.items()}


def _processes(left: Sequence[PlannedRun], workers: int) -> int:
    return left[0].config.hardware.processes(workers) if left else workers


def _time(run: PlannedRun, rates: Mapping[str, float], processes: int) -> RunTime | None:
    if run.work in rates:
        return RunTime(run.steps_left * rates[run.work] / processes, _FINISHED_FACTOR)
    part = run.size.part_of(run.row)["train"]
    if part is None:
        raise ConfigError(f"The row {run.row.name!r} does not say what it is trained on: give it `train`.")
    corpus = run.size.corpora[run.size.parts[part].corpus]
    audio = _audio(run, part, corpus)
    if audio is None:
        return None
    config = run.config.model_copy(update={"corpus": corpus})
    device = _measured(config, corpus.first_language, audio)
    if run.row.kind == "central":
        whole = 3600 * estimate_central(config, audio.utterance_seconds, device, processes).wall_hours
    else:
        whole = 3600 * estimate(config, audio, device, processes).wall_hours
    return RunTime(whole * run.steps_left / run.steps, _MEASURED_FACTOR)


def _audio(run: PlannedRun, part: str, corpus: AnyCorpus) -> UserAudio | None:
    """Return how much audio users have: of the store, of the corpus that will be made, or of the paper's table."""
    selection = None if run.job is None else find_part(run.size, part, run.job.folder.parent.parent)
    if selection is not None:
        users = selection.open()
        found = of_users(part, users.seconds_by_user(), int(users.utterances_by_user().sum()))
    elif isinstance(corpus, Synthetic):
        found = synthetic_audio(corpus)
    else:
        try:
            found = paper_audio(part)
        except ConfigError:
            return None
    return iid(found) if run.config.users.iid else found


_paces: dict[str, Device] = {}


def _measured(config: Config, language: str, audio: UserAudio) -> Device:
    """Return this machine at the pace of a model; each model is timed once."""
    name = f"{config.model.model_dump_json()} {config.hardware.model_dump_json()} {language}"
    if name not in _paces:
        steps, seconds = (audio.mean(values) for values in local_work(config, audio.seconds, audio.utterance_seconds))
        step_seconds = seconds / steps if steps > 0 else config.batching.seconds
        _paces[name] = here(config, language, step_seconds, audio.utterance_seconds)
    return _paces[name]


def _bytes(run: PlannedRun) -> float:
    """Return what a run keeps: its checkpoints, of model and optimizer; the other files are small beside them."""
    part = run.size.part_of(run.row)["train"]
    language = "en" if part is None else run.size.corpora[run.size.parts[part].corpus].first_language
    size = describe(run.config, run.config.federated.partition, language)
    optimizer = run.config.central.optimizer if run.row.kind == "central" else run.config.federated.optimizer
    with torch.device("meta"):
        vectors = len(optimizer.start(torch.empty(size.trainable)).vectors)
    if run.row.kind == "federated" and run.config.federated.averaging is not None:
        vectors += 1  # theta, apart from the averaged model
    unmerged = size.parameters if run.config.federated.adapters.rank else 0  # at most
    return float(_CHECKPOINTS * _FLOAT * (size.parameters + unmerged + vectors * size.trainable))


def _missing(runs: Sequence[BenchRun], workers: int) -> Iterator[MissingCorpus]:
    """Yield the corpora that are not prepared, each once."""
    seen: set[Path] = set()
    for run in runs:
        for name in sorted({run.size.parts[part].corpus for part in wanted_parts(run.size, run.rows)}):
            store, corpus = store_path(run.size, name, run.out), run.size.corpora[name]
            if store in seen or store.exists():
                continue
            seen.add(store)
            if isinstance(corpus, Synthetic):
                cost = estimate_synthetic_preparation(corpus)
                seconds = cost.seconds / max(corpus.expected_speed() * workers, 1e-9)
                yield MissingCorpus(name, store, seconds, cost.bytes)
            else:
                yield MissingCorpus(name, store, None, None)
