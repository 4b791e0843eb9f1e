"""The runs of a benchmark: the configuration of each, the order to train them in, and the key it is known by.

A run is known by its content: the resolved configuration (but not where files lie or how often they are written), the
hashes of its training and dev sets, the key of its seed model, and the version of the algorithm. Two rows with the same
key are the same run, whichever benchmark asks for it; a run that is done is not repeated.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sottovoce.bench.code_version import code_version
from sottovoce.bench.corpora import find_part
from sottovoce.bench.preset import CORPORA, Bench, Row, Size, SizeName, load_bench
from sottovoce.config import Layer, Resolved, Tree, parse_setting, resolve
from sottovoce.data.population import Population
from sottovoce.data.selection import Selection
from sottovoce.errors import ConfigError
from sottovoce.model.adapter_options import NO_ADAPTERS
from sottovoce.privacy.acceptance import Acceptance
from sottovoce.privacy.adaptive import AdaptiveClipping
from sottovoce.runs.documents import TrainingKind
from sottovoce.runs.held_out import require_disjoint

# The sections of a configuration that decide the result of each kind of training, and the keys in them that do not.
_IN_KEY: Mapping[TrainingKind, tuple[str, ...]] = {
    "central": ("seed", "model", "specaugment", "central", "hardware"),
    "federated": (
        *("seed", "users", "batching", "model", "specaugment", "participation", "privacy", "randomness", "federated"),
        "hardware",
    ),
}
_NOT_IN_KEY = {
    "central": {"checkpoint_every", "layer_norms_every"},
    "federated": {"checkpoint_every"},
    "privacy": {"diagnostics"},
}

# Options that are newer than this version of the algorithm, with the value at which training is as it was without them.
# At that value they are not in the key, so a new option trains no row again. Empty this when ALGORITHM is raised.
_NEWER: Mapping[str, object] = {
    "central.patience": None,
    "federated.patience": None,
    "federated.averaging": None,
    "participation.cap": None,
    "participation.all_or_nothing": False,
    "federated.optimizer.noise_correction": False,
    "federated.optimizer.noise_floor": 0.5,  # without the correction it means nothing
    "federated.local.optimizer.noise_correction": False,
    "federated.local.optimizer.noise_floor": 0.5,
    "central.optimizer.noise_correction": False,
    "central.optimizer.noise_floor": 0.5,
    "federated.adapters": NO_ADAPTERS.model_dump(mode="json"),
    "privacy.adaptive": AdaptiveClipping().model_dump(mode="json"),  # without adaptive clipping it means nothing
    "specaugment.bandlimit": 0.0,
    "specaugment.bandlimit_hz": [3400.0, 4000.0],  # without bandlimit it means nothing
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one row with one seed."""

    bench: str
    size: str
    row: Row
    seed: int
    resolved: Resolved
    parts: Mapping[str, str | None]  # the names of the parts that are train, dev and test
    selections: Mapping[str, Selection]  # of those parts, and of others that the model is evaluated on
    hashes: Mapping[str, str]  # of the populations that those parts select
    learnt: Mapping[str, Selection]  # the parts that the model and its seed models were trained on
    key: str
    folder: Path
    base: "Job | None"  # the run of its seed model
    shown: bool  # a row that was asked for, not only a model that others start from

    @property
    def name(self) -> str:
        """The row's name."""
        return self.row.name

    @property
    def content_key(self) -> str:
        """Its key: its data are prepared."""
        return self.key

    @property
    def label(self) -> str:
        """The row's name, with the seed unless it is 0."""
        return self.row.name if self.seed == 0 else f"{self.row.name}, seed {self.seed}"

    @property
    def kind(self) -> TrainingKind:
        """Central or federated."""
        return self.row.kind

    @property
    def evaluated(self) -> list[str]:
        """The parts that the model is evaluated on at the end."""
        named = [self.parts["dev"], self.parts["test"], *self.row.also]
        return list(dict.fromkeys(name for name in named if name is not None))


@dataclass(frozen=True, kw_only=True)
class BenchRun:
    """Some rows of a benchmark in one size, each with some seeds; corpora and runs are kept in `out`."""

    name: str
    bench: Bench
    size_name: SizeName
    rows: Sequence[Row]
    seeds: Sequence[int]
    out: Path
    settings: Sequence[str] = ()  # key=value, laid over every row of `bench`
    corpora: Path = CORPORA  # the folder of the real corpora

    @classmethod
    def choose(
        cls,
        name: str,
        *,
        size: SizeName = "mini",
        rows: Iterable[str] | None = None,
        seeds: int = 1,
        out: Path,
        settings: Sequence[str] = (),
        corpora: Path = CORPORA,
    ) -> "BenchRun":
        """Choose a benchmark by its name or its YAML file, some or all of its rows, and the number of seeds.

        With `settings`, every row and every model that rows start from has these values, key=value: other runs. Real
        corpora are looked for in the folder `corpora`.
        """
        bench = with_settings(load_bench(name), size, settings)
        chosen = bench.size(size)
        named = chosen.rows if rows is None else [chosen.row(row) for row in rows]
        return cls(
            name=name,
            bench=bench,
            size_name=size,
            rows=named,
            seeds=range(seeds),
            out=out,
            settings=tuple(settings),
            corpora=corpora,
        )

    @property
    def settings_note(self) -> str:
        """What is different from the benchmark as it is published; empty where nothing is."""
        return f"Every row with {', '.join(self.settings)}: not the published benchmark." if self.settings else ""

    @cached_property
    def size(self) -> Size:
        """The chosen size of the benchmark."""
        return self.bench.size(self.size_name).in_folder(self.corpora)

    def jobs(self) -> list[Job]:
        """Return the runs of the rows, and of the models they start from, in the order to train them.

        Runs whose corpus has not been prepared yet are left out.
        """
        jobs: list[Job] = []
        for seed in self.seeds:
            planned: dict[str, Job] = {}
            for row in with_models(self.size, self.rows):
                job = self._job(row, seed, planned)
                if job is not None:
                    planned[row.name] = job
            jobs += planned.values()
        return jobs

    def _job(self, row: Row, seed: int, planned: Mapping[str, Job]) -> Job | None:
        size = self.size
        origin = size.origin(row)
        trained_on = size.part_of(origin)["train"]
        if trained_on is None:
            raise ConfigError(f"The row {origin.name!r} does not say what it is trained on: give it `train`.")
        parts = {**size.part_of(row), "train": trained_on}
        wanted = {part for part in (*parts.values(), size.part_of(origin)["dev"], *row.also) if part is not None}
        selections = {part: selection for part in wanted if (selection := find_part(size, part, self.out)) is not None}
        if wanted - selections.keys() or (origin.seed_model is not None and origin.seed_model not in planned):
            return None
        base = None if origin.seed_model is None else planned[origin.seed_model]
        learnt = {trained_on: selections[trained_on], **({} if base is None else base.learnt)}
        populations = {part: selection.open() for part, selection in selections.items()}
        hashes = {part: population.hash for part, population in populations.items()}
        used = parts_in_key(size, origin)
        data: Tree = {role: selections[part] for role, part in used.items()}
        data["seed_model"] = None if base is None else base.folder / "last"
        resolved = configure(size, origin, seed, data)
        evaluated = [part for part in (parts["dev"], parts["test"], *row.also) if part is not None]
        _require_unheard(row, learnt, populations, evaluated, resolved.config.privacy.accept)
        populations_used = {role: hashes[part] for role, part in used.items()}
        key = run_key(origin.kind, resolved, populations_used, None if base is None else base.key)
        return Job(
            bench=self.name,
            size=self.size_name,
            row=row.model_copy(update={"kind": origin.kind}),
            seed=seed,
            resolved=resolved,
            parts=parts,
            selections=selections,
            hashes=hashes,
            learnt=learnt,
            key=key,
            folder=self.out / "runs" / key[:16],
            base=base,
            shown=row.name in {wanted.name for wanted in self.rows},
        )


def with_settings(bench: Bench, size: SizeName, settings: Sequence[str]) -> Bench:
    """Return a benchmark with these settings, key=value, laid over every row and model of one size."""
    if not settings:
        return bench
    layers = tuple(map(parse_setting, settings))
    if any({"seed", "data"} & layer.tree.keys() for layer in layers):
        raise ConfigError("A benchmark chooses seed and data itself. Leave them out of --set, and use --seeds.")

    def laid(row: Row) -> Row:
        # A row that is another run as it is has no settings of its own.
        return row if row.same is not None else row.model_copy(update={"settings": (*row.settings, *layers)})

    chosen = bench.size(size)
    rows, models = tuple(map(laid, chosen.rows)), {name: laid(model) for name, model in chosen.models.items()}
    changed = chosen.model_copy(update={"rows": rows, "models": models})
    for row in (*rows, *models.values()):
        configure(changed, row)  # a wrong key or value is noticed before any work
    return bench.model_copy(update={"sizes": {**bench.sizes, size: changed}})


def configure(size: Size, row: Row, seed: int = 0, data: Tree | None = None) -> Resolved:
    """Return the configuration of a row, with its data where they are known."""
    own: Tree = {"seed": seed} if data is None else {"seed": seed, "data": data}
    return resolve(size.preset, *size.settings, *row.settings, Layer(own, "benchmark"))


def wanted_parts(size: Size, rows: Iterable[Row]) -> set[str]:
    """Return all parts that some rows, and the models they start from, need."""
    wanted: set[str] = set()
    for row in with_models(size, rows):
        wanted |= {part for part in size.part_of(row).values() if part is not None} | set(row.also)
    return wanted


def with_models(size: Size, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows, each after the models it starts from; none twice."""
    done: set[str] = set()

    def visit(row: Row) -> Iterator[Row]:
        for needed in (row.seed_model, row.same):
            if needed is not None:
                yield from visit(size.row(needed))
        if row.name not in done:
            done.add(row.name)
            yield row

    for row in rows:
        yield from visit(row)


def _require_unheard(
    row: Row,
    learnt: Mapping[str, Selection],
    populations: Mapping[str, Population],
    evaluated: Iterable[str],
    accepted: Collection[Acceptance],
) -> None:
    """Raise where the model, or a seed model of it, was trained on somebody whom it is evaluated on."""
    heard = {name: populations.get(name) or selection.open() for name, selection in learnt.items()}
    for part in evaluated:
        for name, population in heard.items():
            require_disjoint(population, populations[part], (f"{row.name}: {name}", part), accepted)


def parts_in_key(size: Size, origin: Row) -> dict[str, str]:
    """Return the parts that identify a run, by their roles: what it trains on, and its dev set.

    Rows that show one run share that dev set: each evaluates the run on its own dev at the end.
    """
    parts = size.part_of(origin)
    return {role: part for role in ("train", "dev") if (part := parts[role]) is not None}


def run_key(kind: TrainingKind, resolved: Resolved, data: Mapping[str, str], seed_model: str | None) -> str:
    """Return the key of a run, from what identifies its data, and from the key of its seed model."""
    sections = {name: getattr(resolved.config, name) for name in _IN_KEY[kind]}
    config = {
        name: value.model_dump(mode="json", exclude=_NOT_IN_KEY.get(name)) if isinstance(value, BaseModel) else value
        for name, value in sections.items()
    }
    config = without_neutral(config, _NEWER)
    content = {
        "kind": kind,
        "config": config,
        "data": dict(data),
        "seed_model": seed_model,
        "code": code_version(*sections.values()),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def without_neutral(config: Mapping[str, Any], neutral: Mapping[str, object]) -> dict[str, Any]:
    """Return a tree of options without those that have the value given for their dotted key."""
    kept = dict(config)
    for key, value in neutral.items():
        section, _, rest = key.partition(".")
        if rest and isinstance(inner := kept.get(section), Mapping):
            kept[section] = without_neutral(inner, {rest: value})
        elif not rest and section in kept and kept[section] == value:
            del kept[section]
    return kept
