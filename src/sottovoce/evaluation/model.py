"""A trained model, ready to be used: it transcribes files and is evaluated on speech."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sottovoce.data.population import Population
from sottovoce.data.speech import Place, Speech, open_speech
from sottovoce.distributed import Group
from sottovoce.evaluation.breakdown import break_down
from sottovoce.evaluation.decoding import GREEDY, Decoding
from sottovoce.evaluation.grouping import Grouping, groupings
from sottovoce.evaluation.scores import Breakdown
from sottovoce.evaluation.scoring import evaluate
from sottovoce.evaluation.transcription import transcribe
from sottovoce.evaluation.transcripts import Transcript
from sottovoce.model.hardware import Hardware
from sottovoce.model.recogniser import Recogniser, load_recogniser
from sottovoce.processes import Progress, no_progress


@dataclass(frozen=True)
class Model:
    """A trained recogniser, ready to be used. `load` and `Run.model` make one."""

    recogniser: Recogniser

    def transcribe(self, file: Place, *, decoding: Decoding = GREEDY) -> Transcript:
        """Return the words spoken in an audio file of any length and format, with their times.

        Example: `sv.load("runs/digits").transcribe("recording.mp3").text`
        """
        return transcribe(self.recogniser, Path(file), decoding.open(self.recogniser.token_set))

    def evaluate(
        self,
        speech: Speech,
        *,
        by: Sequence[str] | None = None,
        batch_seconds: float = 120.0,
        decoding: Decoding = GREEDY,
        progress: Progress = no_progress,
    ) -> Breakdown:
        """Return loss, WER and CER on some speech: over all utterances, per speaker, and by columns of the index.

        Example: `sv.load("runs/digits").evaluate("stores/digits@heldout.txt", by=["sex"]).wer`
        """
        population = open_speech(speech)
        columns = groupings(population, by)
        return evaluate_population(
            self.recogniser, population, columns, batch_seconds=batch_seconds, decoding=decoding, progress=progress
        )


def load(path: Place, *, hardware: Hardware | None = None) -> Model:
    """Load the model of a run (its best one, or else its last one), of a checkpoint's folder, or a model file."""
    return Model(load_recogniser(Path(path), (hardware or Hardware()).open()))


def evaluate_population(
    recogniser: Recogniser,
    population: Population,
    by: Sequence[Grouping],
    *,
    batch_seconds: float = 120.0,
    decoding: Decoding = GREEDY,
    group: Group | None = None,
    progress: Progress = no_progress,
) -> Breakdown:
    """Return the error rates on a population, shared out over the processes of a group."""
    utterances = evaluate(
        recogniser,
        population.store,
        population.all_rows(),
        group or Group(),
        batch_seconds=batch_seconds,
        decoding=decoding,
        progress=progress,
    )
    return break_down(population.store, utterances, by)
