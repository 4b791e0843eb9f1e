"""What is said before an evaluation or a transcription of speech with another bandwidth than the training data."""

from collections.abc import Sequence
from pathlib import Path

from sottovoce.data.audio import BadAudio, read_beginning
from sottovoce.data.bandwidths import bandwidths_of, difference
from sottovoce.data.population import Population
from sottovoce.features.bandwidth import measure_bandwidth
from sottovoce.model.model_file import heard_by

_FILES = 8  # how many files are listened to before they are transcribed
_SECONDS = 20.0


def population_note(model: Path, population: Population) -> str | None:
    """Return a line about a population whose bandwidth is not that of a model's training data, or None."""
    heard = heard_by(model)
    if heard is None:
        return None
    return difference(heard, bandwidths_of(population), f"utterances of {population.store.path}", str(model))


def files_note(model: Path, files: Sequence[Path]) -> str | None:
    """Return a line about audio files whose bandwidth is not that of a model's training data, or None.

    A few files, evenly chosen, are measured at their beginning. Files that cannot be read are left out.
    """
    heard = heard_by(model)
    if heard is None:
        return None
    chosen = files[:: -(-len(files) // _FILES)] if files else files
    measured = [bandwidth for path in chosen if (bandwidth := _measured(path)) is not None]
    return difference(heard, measured, "files" if len(chosen) == len(files) else "files that were looked at")


def _measured(path: Path) -> int | None:
    if not path.is_file():
        return None
    try:
        return measure_bandwidth(read_beginning(path, _SECONDS))
    except (BadAudio, OSError):
        return None
