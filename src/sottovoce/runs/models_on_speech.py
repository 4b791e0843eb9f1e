"""Several models on several populations: all errors, the figures with their intervals, and how the models differ.

The processes that compute leave every recognised utterance in a file; the rest follows from these, without torch.
"""

import contextlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sottovoce.data.population import Population
from sottovoce.data.selection import Selection
from sottovoce.errors import ConfigError
from sottovoce.evaluation.breakdown import WerIntervals, break_down, speaker_counts, speakers_of, wer_intervals
from sottovoce.evaluation.decoding import GREEDY, Decoding
from sottovoce.evaluation.grouping import Grouping, groupings, speakers_without
from sottovoce.evaluation.hypotheses import hypothesis_rows
from sottovoce.evaluation.scores import Breakdown
from sottovoce.evaluation.significance import Difference, difference
from sottovoce.evaluation.utterances import ScoredUtterance
from sottovoce.processes import Progress, no_progress
from sottovoce.runs.chosen_model import ChosenModel, chosen_model
from sottovoce.workers import run_workers

if TYPE_CHECKING:
    from sottovoce.distributed import Group

ShowProgress = Callable[[], contextlib.AbstractContextManager[Progress]]


def _silent() -> contextlib.AbstractContextManager[Progress]:
    return contextlib.nullcontext(no_progress)


@dataclass(frozen=True)
class SpeechPart:
    """Some speech to evaluate on, and the columns that it is broken down by."""

    selection: Selection
    population: Population
    by: tuple[Grouping, ...]

    @property
    def name(self) -> str:
        """The store, and the list of speakers where there is one, as on the command line."""
        speakers = self.selection.speakers
        return str(self.selection.store) if speakers is None else f"{self.selection.store}@{speakers}"

    def without_value(self) -> dict[str, list[str]]:
        """Return, by column, the speakers who are in no group of it."""
        found = {one.column: speakers_without(self.population, one.column) for one in self.by}
        return {column: speakers for column, speakers in found.items() if speakers}


@dataclass(frozen=True)
class ModelOnSpeech:
    """One model's recognised utterances of some speech."""

    model: ChosenModel
    speech: SpeechPart
    utterances: list[ScoredUtterance]

    @cached_property
    def breakdown(self) -> Breakdown:
        """The error rates: over all utterances, per speaker and by group."""
        return break_down(self.speech.population.store, self.utterances, self.speech.by)

    @cached_property
    def intervals(self) -> WerIntervals:
        """The 95 % intervals of WER."""
        return wer_intervals(self.speech.population.store, self.utterances, self.speech.by)

    def minus(self, other: "ModelOnSpeech") -> Difference:
        """Return how much higher this model's WER is than another's on the same speech."""
        speakers = speakers_of(self.speech.population.store, self.utterances)
        return difference(speaker_counts(speakers, self.utterances), speaker_counts(speakers, other.utterances))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every utterance with its reference, hypothesis and errors."""
        about = {"model": self.model.place, "checkpoint": self.model.checkpoint, "step": self.model.step}
        for row in hypothesis_rows(self.speech.population.store, self.utterances):
            yield {**about, "store": self.speech.name, **row}


def open_parts(selections: Sequence[Selection], by: Sequence[str] | None) -> list[SpeechPart]:
    """Open the speech; a column that only some of the stores have is left out of the others.

    Raise ConfigError for a column that no store has.
    """
    parts = []
    errors: dict[str, list[ConfigError]] = {}
    for selection in selections:
        population = selection.open()
        chosen: list[Grouping] = []
        for text in dict.fromkeys(by or ()):
            try:
                chosen += groupings(population, [text])
            except ConfigError as error:
                errors.setdefault(text, []).append(error)
        parts.append(SpeechPart(selection, population, tuple(groupings(population, None) if by is None else chosen)))
    for refused in errors.values():
        if len(refused) == len(selections):
            raise refused[0]
    return parts


def evaluate_models(
    models: Sequence[Path],
    parts: Sequence[SpeechPart],
    *,
    batch_seconds: float = 120.0,
    decoding: Decoding = GREEDY,
    workers: int = 1,
    display: ShowProgress = _silent,
) -> list[ModelOnSpeech] | None:
    """Evaluate every model on all speech, model by model; return None on a process that does not lead (torchrun).

    With several workers, `display` must be a function or class of an importable module.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        selections = [part.selection for part in parts]
        run_workers(_evaluate_worker, (list(models), selections, batch_seconds, decoding, display, folder), workers, 1)
        results = sorted(folder.glob("*.json"))
        return [_read(path, parts[number % len(parts)]) for number, path in enumerate(results)] if results else None


def _evaluate_worker(
    group: "Group",
    models: Sequence[Path],
    selections: Sequence[Selection],
    batch_seconds: float,
    decoding: Decoding,
    display: ShowProgress,
    folder: Path,
) -> None:
    from sottovoce.evaluation.scoring import evaluate  # noqa: PLC0415 - loads torch
    from sottovoce.model.hardware import Hardware  # noqa: PLC0415 - loads torch
    from sottovoce.model.recogniser import load_recogniser  # noqa: PLC0415 - loads torch

    chosen = [chosen_model(model) for model in models]  # all of them first: a wrong place is found at once
    populations = [selection.open() for selection in selections]
    device = Hardware().open()
    count = len(chosen) * len(populations)
    with (display if group.leads else _silent)() as progress:
        for number, (model, (place, population)) in enumerate(itertools.product(chosen, enumerate(populations))):
            if place == 0:
                recogniser = load_recogniser(Path(model.file), device)
                for other in populations:
                    recogniser.require_store(other.store)
            utterances = evaluate(
                recogniser,
                population.store,
                population.all_rows(),
                group,
                batch_seconds=batch_seconds,
                decoding=decoding,
                progress=_named(progress, number, count),
            )
            if group.leads:
                document = {"model": asdict(model), "utterances": [asdict(one) for one in utterances]}
                (folder / f"{number:06d}.json").write_text(json.dumps(document), encoding="utf-8")


def _named(progress: Progress, number: int, count: int) -> Progress:
    """Return a progress that says which of the evaluations it is."""

    def named(work: str, done: int, total: int) -> None:
        progress(work if count == 1 else f"{work} {number + 1} of {count}", done, total)

    return named


def _read(path: Path, part: SpeechPart) -> ModelOnSpeech:
    document = json.loads(path.read_bytes())
    utterances = [ScoredUtterance(**one) for one in document["utterances"]]
    return ModelOnSpeech(ChosenModel(**document["model"]), part, utterances)
