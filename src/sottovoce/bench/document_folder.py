"""A folder of published documents: the results of every row in them, and which runs are left to train.

A row is found by what it is (row_hashes.py), not by its benchmark: one that several benchmarks share has to be run for
one of them only. Rows of another preset, algorithm or corpus than today's are left out.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sottovoce.bench.locks import Say, silent
from sottovoce.bench.plan import BenchRun
from sottovoce.bench.planned import AnyPlanned, needed_for
from sottovoce.bench.preset import Row
from sottovoce.bench.published import (
    PublishedBench,
    PublishedRow,
    PublishedRun,
    document_name,
    is_of_today,
    joined_row,
    read_published,
    sets_of,
)
from sottovoce.bench.results import RowResult, RunResult, row_result
from sottovoce.bench.row_hashes import described_hash
from sottovoce.errors import DataError
from sottovoce.evaluation.intervals import Counts
from sottovoce.privacy.epsilons import Epsilons

Words = dict[str, npt.NDArray[np.int64]]  # of the references, by part and speaker


class DocumentFolder:
    """All documents of a folder, as `sotto bench export` writes them."""

    def __init__(self, folder: Path) -> None:
        """Read them; raise DataError where there is none, one is damaged, or two of a benchmark contradict."""
        self._folder = folder
        self._documents = read_published(folder)
        self._like: dict[str, list[tuple[PublishedBench, PublishedRow]]] = {}
        for document in self._documents.values():
            for row in document.rows:
                self._like.setdefault(row.described, []).append((document, row))

    def results(self, run: BenchRun, say: Say = silent) -> list[RowResult]:
        """Return the rows of a benchmark with the results that documents have; seeds not asked for are left out.

        `say` is told in a line which rows of its own document are of another algorithm or preset than today's, or
        belong to it no longer.
        """
        own = self._documents.get((document_name(run.name), run.size_name))
        if own is not None:
            _say_left_out(run, own, say)
        words = {} if own is None else _words_of(own)
        results = []
        for row in run.rows:
            found = self._row(run, row, own, words)
            runs = [] if found is None else [_run_of(one, words) for one in found.runs if one.seed in run.seeds]
            results.append(row_result(run.bench, run.size, row, runs, None if found is None else found.simulated))
        return results

    def _row(self, run: BenchRun, row: Row, own: PublishedBench | None, words: Words) -> PublishedRow | None:
        """Return a row with the runs of all documents that have it, its own first; add the words of its parts.

        Where another document has it with other data, or on parts of other names, that one is passed over.
        """
        like = self._like.get(described_hash(run, row), [])
        found: PublishedRow | None = None
        for document, candidate in sorted(like, key=lambda one: one[0] is not own):
            parts = {one.part for ran in candidate.runs for one in sets_of(ran)}
            spoken = {part: counts for part, counts in _words_of(document).items() if part in parts}
            if any(not np.array_equal(words.get(part, counts), counts) for part, counts in spoken.items()):
                continue
            try:
                found = candidate if found is None else joined_row(candidate, found, self._folder)
            except DataError:
                continue
            words |= spoken
        return found

    def left_of(self, run: BenchRun, planned: Iterable[AnyPlanned]) -> list[AnyPlanned]:
        """Return the runs of a plan that no document has, with the models that they start from.

        A run counts as known by its key, as far as that is known: before its corpus is prepared it is not.
        """
        plan = list(planned)
        described = {row.name: described_hash(run, row) for row in run.rows}

        def is_known(one: AnyPlanned) -> bool:
            keys = self._keys(described[one.name], one.seed)
            return bool(keys) and one.content_key in (None, *keys)

        return needed_for(plan, {one.key for one in plan if one.shown and not is_known(one)})

    def _keys(self, described: str, seed: int) -> list[str]:
        return [run.key for _, row in self._like.get(described, []) for run in row.runs if run.seed == seed]


def _words_of(document: PublishedBench) -> Words:
    return {part: np.array(counts, np.int64) for part, counts in document.words.items()}


def _say_left_out(run: BenchRun, own: PublishedBench, say: Say) -> None:
    published = {row.row: row for row in own.rows}
    if unknown := published.keys() - {row.name for row in run.size.rows}:
        say(f"{run.name}: its document has rows that it has no longer; left out: {', '.join(sorted(unknown))}.")
    stale = [row.name for row in run.rows if row.name in published and not is_of_today(run, row, published[row.name])]
    if stale:
        say(f"{run.name}: its document is of another algorithm or preset; left out: {', '.join(stale)}.")


def _run_of(run: PublishedRun, words: Mapping[str, npt.NDArray[np.int64]]) -> RunResult:
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
        norms=run.norms,
        machines=run.machines,
        started_from=run.started_from,
        ledger=run.ledger,
        folder=None,
    )
