"""A run that is given no store makes its own: the corpus its preset names, in RUN/corpus, and lists of its speakers.

RUN/corpus           the store
RUN/train.txt, ...   the users, and the speakers set apart for dev and test, one a line
"""

from pathlib import Path

from sottovoce.config import Config, Layer
from sottovoce.data.preparation import prepare
from sottovoce.data.selection import Selection
from sottovoce.data.splits import split_by_count
from sottovoce.data.store import Store
from sottovoce.files import written_whole
from sottovoce.processes import Progress


def make_own_corpus(config: Config, run: Path, workers: int, progress: Progress) -> Layer:
    """Prepare the preset's corpus and split its speakers; return the layer that selects them.

    A preset asks for this by its numbers of dev and test speakers. Other presets get an empty layer.
    """
    if not (config.users.dev_speakers and config.users.test_speakers):
        return Layer({})
    store = prepare(config.corpus, run / "corpus", joining=config.joining, workers=workers, progress=progress)
    parts = _split(store, config.users.dev_speakers, config.users.test_speakers, config.seed)
    for name, speakers in parts.items():
        if not (run / f"{name}.txt").exists():  # a run resumes with the lists it has
            with written_whole(run / f"{name}.txt") as file:
                file.writelines(f"{speaker}\n".encode() for speaker in speakers)
    data = {name: Selection(store=run / "corpus", speakers=run / f"{name}.txt") for name in parts}
    return Layer({"data": data}, "the run's own corpus")


def _split(store: Store, dev: int, test: int, seed: int) -> dict[str, list[str]]:
    held_out, train = split_by_count(store.speaker_names().to_pylist(), dev + test, seed)
    first, second = split_by_count(held_out, dev, seed)
    return {"train": train, "dev": first, "test": second}
