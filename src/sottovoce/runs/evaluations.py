"""Evaluating the model of a run on populations, and keeping the figures beside the run, in RUN/evaluation.json.

Those of the best model on dev, where it is not the last one, are kept in RUN/best_evaluation.json.

Figures of the same model on the same population are not computed again.
"""

from collections.abc import Mapping
from pathlib import Path

from sottovoce.data.population import Population
from sottovoce.distributed import Group
from sottovoce.evaluation.breakdown import break_down
from sottovoce.evaluation.grouping import EveryValue, default_columns
from sottovoce.evaluation.scoring import evaluate
from sottovoce.model.recogniser import Recogniser
from sottovoce.runs.documents import Evaluation, Evaluations


def record_evaluations(
    run: Path,
    steps: int,
    recogniser: Recogniser,
    populations: Mapping[str, Population | None],
    group: Group,
    keep: type[Evaluations] = Evaluations,
) -> dict[str, Evaluation]:
    """Evaluate the model after `steps` steps on every population; keep the figures (rank 0) and return them."""
    found = keep.find(run) if group.leads else None
    kept = {} if found is None else {name: known for name, known in found.root.items() if known.steps == steps}
    evaluations = group.from_leader(kept)
    for name, population in populations.items():
        if population is None or (name in evaluations and evaluations[name].population == population.hash):
            continue
        same = next((known for known in evaluations.values() if known.population == population.hash), None)
        evaluations[name] = same or _evaluate(steps, recogniser, population, group)
        if group.leads:
            keep(evaluations).write(run)
    return evaluations


def _evaluate(steps: int, recogniser: Recogniser, population: Population, group: Group) -> Evaluation:
    store = population.store
    utterances = evaluate(recogniser, store, population.all_rows(), group)
    breakdown = break_down(store, utterances, [EveryValue(column) for column in default_columns(population)])
    return Evaluation(steps=steps, population=population.hash, **dict(breakdown))
