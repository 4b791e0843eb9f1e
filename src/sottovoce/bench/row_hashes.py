"""What identifies a row whatever its seed: hashes that tell whether results of several seeds or days are of one row.

A run's key (plan.py) differs by seed. A row's hash is that of its resolved configuration with seed 0, its kind, its
parts, the version of its code, and of its seed model, recursively. Parts count by their description, which needs no
data, or by their content.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from sottovoce.bench.code_version import code_version
from sottovoce.bench.plan import BenchRun, Job, configure, run_key
from sottovoce.bench.preset import Preparation, Row, Size

Identify = Callable[[str], str]  # what identifies a part, by its name


def row_code(run: BenchRun, row: Row) -> str:
    """Return the version of the algorithm, and of own code, that computes a row and the models it starts from."""
    size = run.size
    return code_version(*(configure(size, one).config for one in _with_seed_models(size, row)))


def described_hash(run: BenchRun, row: Row) -> str:
    """Return the hash of a row as the preset of today describes it, with today's code. It needs no corpus."""
    size = run.bench.size(run.size_name)  # with corpora where the preset has them, not below --corpora

    def identify(part: str) -> str:
        own = size.parts[part]
        corpus, how = size.corpora[own.corpus], size.preparation.get(own.corpus, Preparation())
        # Options at their defaults are left out, so that new ones change no hash.
        described = [one.model_dump(mode="json", exclude_defaults=True) for one in (own, corpus, how)]
        return json.dumps([corpus.kind, *described], sort_keys=True)

    return _row_hash(size, row, identify)


def content_hashes(run: BenchRun) -> dict[str, str]:
    """Return the hashes of the rows with the content of their parts; rows without prepared corpora are left out."""
    jobs = {job.row.name: job for job in replace(run, seeds=[0]).jobs()}
    return {
        row.name: _row_hash(run.size, row, _part_hashes(jobs[row.name]).__getitem__)
        for row in run.rows
        if row.name in jobs
    }


def _part_hashes(job: Job) -> dict[str, str]:
    """Return the hashes of all parts of a run and of its seed models."""
    return {**({} if job.base is None else _part_hashes(job.base)), **job.hashes}


def _with_seed_models(size: Size, row: Row) -> Iterator[Row]:
    origin = size.origin(row)
    yield origin
    if origin.seed_model is not None:
        yield from _with_seed_models(size, size.row(origin.seed_model))


def _row_hash(size: Size, row: Row, identify: Identify) -> str:
    parts = size.part_of(row)
    evaluated = {"dev": parts["dev"], "test": parts["test"], **{part: part for part in row.also}}
    content = {
        "run": _run_hash(size, row, identify),
        "evaluated": {label: identify(part) for label, part in evaluated.items() if part},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _run_hash(size: Size, row: Row, identify: Identify) -> str:
    """Return the key that the row's run with seed 0 would have, if parts were identified in this way."""
    origin = size.origin(row)
    parts = size.part_of(origin)
    data = {role: identify(part) for role in ("train", "dev") if (part := parts[role]) is not None}
    base = None if origin.seed_model is None else _run_hash(size, size.row(origin.seed_model), identify)
    return run_key(origin.kind, configure(size, origin), data, base)
