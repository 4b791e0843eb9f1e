"""How well a run's model recognises populations, kept beside the run: all of it, per speaker, by group.

    RUN/evaluation.json     one document for every population, by name (dev, test, ...)

What is there for the same model and the same population is not computed again.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from sottovoce.data.population import Population
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.evaluation.breakdown import default_columns, report
from sottovoce.evaluation.evaluate import Scores, evaluate
from sottovoce.files import write_json
from sottovoce.model.recogniser import Recogniser
from sottovoce.runs.folder import read_json

EVALUATION_FILE = "evaluation.json"


def record(
    run: Path, steps: int, recogniser: Recogniser, populations: Mapping[str, Population | None], group: Group
) -> dict[str, Any]:
    """Evaluate the model after `steps` steps on every population, and return and keep the documents; rank 0 writes."""
    documents = group.from_leader(_kept(run, steps) if group.leads else {})
    for name, population in populations.items():
        if population is None or documents.get(name, {}).get("population") == population.hash:
            continue
        known = next((one for one in documents.values() if one.get("population") == population.hash), None)
        documents[name] = known or _evaluate(steps, recogniser, population, group)
        if group.leads:
            write_json(run / EVALUATION_FILE, documents)
    return documents


def _evaluate(steps: int, recogniser: Recogniser, population: Population, group: Group) -> dict[str, Any]:
    heard = evaluate(recogniser, population.store, population.all_rows(), group)
    found = report(population.store, heard, default_columns(population.store))
    del found["store"]  # where it lies on this machine
    return {"steps": steps, "population": population.hash, **found}


def read_evaluations(run: Path) -> dict[str, Any]:
    """Return the documents of a run; none where it has not been evaluated."""
    path = run / EVALUATION_FILE
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise DataError(f"{path} is damaged. Remove it: it is made again.")
    return found


def _kept(run: Path, steps: int) -> dict[str, Any]:
    found = read_evaluations(run).items()
    return {name: one for name, one in found if isinstance(one, dict) and one.get("steps") == steps}


def scores_in(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures over all utterances alone."""
    return {field.name: document[field.name] for field in fields(Scores)}
