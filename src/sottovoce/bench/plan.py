"""The runs of a benchmark: what each is trained with, in which order, and the key it is known by.

A run is known by its content: the resolved configuration (but not where files lie or how often they are written), the
hashes of its training and dev sets, the key of its seed model, and the source code that computes it. Two rows with the
same key are the same run, whichever benchmark asks for it; what has run is not run again.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sottovoce.bench.corpora import find_part
from sottovoce.bench.preset import Bench, Row, Size
from sottovoce.config import Layer, Resolved, resolve
from sottovoce.data.selection import Selection, require_disjoint
from sottovoce.errors import ConfigError

# Rooms whose code has no part in what a run computes.
_NO_PART = {"cli", "reports", "bench", "estimate", "presets", "__pycache__"}
# What of a configuration has a part in the result, for each kind of training, and what of that has none.
_IN_KEY = {
    "central": ("seed", "model", "specaugment", "central", "hardware"),
    "federated": (
        *("seed", "users", "batching", "model", "specaugment", "participation", "privacy", "randomness", "federated"),
        "hardware",
    ),
}
_NOT_IN_KEY = {
    "central": {"checkpoint_every", "evaluate_every", "layer_norms_every"},
    "federated": {"checkpoint_every"},
    "privacy": {"diagnostics"},
}


@dataclass(frozen=True)
class Job:
    """One run of one row with one seed."""

    bench: str
    size: str
    row: Row
    seed: int
    label: str
    resolved: Resolved
    parts: Mapping[str, str | None]  # train, dev, test: names of parts
    selections: Mapping[str, Selection]  # of those parts, and of others that are evaluated
    hashes: Mapping[str, str]  # of what those parts select
    learnt: Mapping[str, Selection]  # what the model has been trained on, its seed models included
    key: str
    folder: Path

    @property
    def kind(self) -> str:
        """Central or federated."""
        return self.row.kind

    @property
    def evaluated(self) -> list[str]:
        """The parts that the model is evaluated on at the end."""
        named = [self.parts["dev"], self.parts["test"], *self.row.also]
        return list(dict.fromkeys(name for name in named if name is not None))


def configure(size: Size, row: Row, seed: int = 0, data: Mapping[str, Any] | None = None) -> Resolved:
    """Return the configuration of a row, with its data where they are known."""
    own = {"seed": seed} if data is None else {"seed": seed, "data": dict(data)}
    return resolve(size.preset, *size.settings, *row.settings, Layer(own, "benchmark"))


def wanted_parts(size: Size, rows: Iterable[Row]) -> set[str]:
    """Return all parts that some rows, and the models they start from, need."""
    found: set[str] = set()
    for row in with_models(size, rows):
        found |= {part for part in size.part_of(row).values() if part is not None} | set(row.also)
    return found


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


def plan(name: str, bench: Bench, size_name: str, rows: Iterable[Row], seeds: Iterable[int], out: Path) -> list[Job]:
    """Return the runs of some rows in the order to run them, but for those whose corpus has not been made yet."""
    size = bench.size(size_name)
    jobs: list[Job] = []
    for seed in seeds:
        made: dict[str, Job] = {}
        for row in with_models(size, rows):
            job = _job(name, size_name, size, row, seed, made, out)
            if job is not None:
                made[row.name] = job
                jobs.append(job)
    return jobs


def _job(bench: str, size_name: str, size: Size, row: Row, seed: int, made: Mapping[str, Job], out: Path) -> Job | None:
    origin = row if row.same is None else size.row(row.same)
    parts = {**size.part_of(row), "train": size.part_of(origin)["train"]}
    if parts["train"] is None:
        raise ConfigError(f"The row {origin.name!r} does not say what it is trained on: give it `train`.")
    wanted = {part for part in (*parts.values(), *row.also) if part is not None}
    selections = {part: selection for part in wanted if (selection := find_part(size, part, out)) is not None}
    if wanted - selections.keys() or (origin.seed_model is not None and origin.seed_model not in made):
        return None
    base = None if origin.seed_model is None else made[origin.seed_model]
    opened = {part: selection.open() for part, selection in selections.items()}
    learnt = {parts["train"]: selections[parts["train"]], **({} if base is None else base.learnt)}
    heard = {name: opened[name] if name in opened else selection.open() for name, selection in learnt.items()}
    for part in (part for part in (parts["dev"], parts["test"], *row.also) if part is not None):
        for name, population in heard.items():
            require_disjoint(population, opened[part], (f"{row.name}: {name}", part))
    roles = {"train": parts["train"], "dev": parts["dev"] if origin.kind == "federated" else None}
    chosen = {role: selections[part] for role, part in roles.items() if part is not None}
    hashes = {part: population.hash for part, population in opened.items()}
    data = {
        **chosen,
        "seed_model": None if base is None else base.folder / "last",
    }
    resolved = configure(size, origin, seed, data)
    key = _key(origin.kind, resolved, {role: hashes[part] for role, part in roles.items() if part is not None}, base)
    label = row.name if seed == 0 else f"{row.name}, seed {seed}"
    shown = row.model_copy(update={"kind": origin.kind})
    folder = out / "runs" / key[:16]
    return Job(bench, size_name, shown, seed, label, resolved, parts, selections, hashes, learnt, key, folder)


def _key(kind: str, resolved: Resolved, data: Mapping[str, str], base: Job | None) -> str:
    sections = {name: getattr(resolved.config, name) for name in _IN_KEY[kind]}
    config = {
        name: value.model_dump(mode="json", exclude=_NOT_IN_KEY.get(name)) if isinstance(value, BaseModel) else value
        for name, value in sections.items()
    }
    content = {
        "kind": kind,
        "config": config,
        "data": dict(data),
        "seed_model": None if base is None else base.key,
        "code": code_version(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@cache
def code_version() -> str:
    """Return a hash of the source code that has a part in what a run computes."""
    hasher = hashlib.sha256()
    for path, text in _sources(resources.files("sottovoce"), ""):
        hasher.update(f"{path}\0{text}\0".encode())
    return hasher.hexdigest()


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name not in _NO_PART:
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield f"{prefix}{entry.name}", entry.read_text(encoding="utf-8")
