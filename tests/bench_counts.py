"""Word errors of simulated speakers, as results of a benchmark."""

from collections.abc import Mapping, Sequence

import numpy as np

from sottovoce.bench.preset import Bench, Size
from sottovoce.bench.results import RowResult, RunResult, row_result
from sottovoce.evaluation.intervals import Counts
from sottovoce.privacy.epsilons import Epsilons

WORDS = 40  # of each speaker


def counts(part: str, wer: float, speakers: int = 40, spread: float = 0.05) -> Counts:
    """Return the errors of a model with this WER; every other speaker is worse by `spread`, the others better."""
    signs = np.where(np.arange(speakers) % 2 == 0, 1, -1)
    edits = np.rint(WORDS * (wer + spread * signs)).astype(np.int64)
    return Counts(part, np.full(speakers, WORDS), edits)


def run_result(seed: int, wers: Mapping[str, float], *, best: Mapping[str, float] | None = None) -> RunResult:
    """Return a run with WERs by set."""
    last = {label: counts(label, wer) for label, wer in wers.items()}
    chosen = last if best is None else {label: counts(label, wer) for label, wer in best.items()}
    return RunResult(
        seed=seed,
        key=f"key {seed}",
        steps=120,
        best_steps=120 if best is None else 80,
        last=last,
        best=chosen,
        epsilon=Epsilons(),
        folder=None,
    )


def results(bench: Bench, size: Size, wers: Mapping[str, Sequence[float]], **also: float) -> list[RowResult]:
    """Return every row of a size with a WER on dev and test for each seed; `also` are WERs on other parts."""
    return [
        row_result(
            bench,
            size,
            row,
            [
                run_result(seed, {"dev": wer, "test": wer, **{part: also.get(part, wer) for part in row.also}})
                for seed, wer in enumerate(wers.get(row.name, ()))
            ],
        )
        for row in size.rows
    ]
