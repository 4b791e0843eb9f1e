"""A run that is given no store makes its own: the corpus its preset names, in RUN/corpus, and lists of its speakers.

RUN/corpus           the store
RUN/train.txt, ...   the users, and the speakers set apart for dev and test, one a line
"""

import json
from pathlib import Path

from sottovoce.config import Config
from sottovoce.data.preparation import prepare
from sottovoce.data.splits import split_by_count
from sottovoce.data.store import Store
from sottovoce.files import written_whole
from sottovoce.processes import Progress


def make_own_corpus(config: Config, run: Path, workers: int, progress: Progress) -> list[str]:
    """Prepare the preset's corpus and split its speakers; return the settings that select them.

    A preset that says how many speakers are set apart wants this; others get no settings.
    """
    if not (config.users.dev_speakers and config.users.test_speakers):
        return []
    store = prepare(config.corpus, run / "corpus", joining=config.joining, workers=workers, progress=progress)
    parts = _split(store, config.users.dev_speakers, config.users.test_speakers, config.seed)
    settings = []
    for name, speakers in parts.items():
        if not (run / f"{name}.txt").exists():  # a run goes on with the lists it has
            with written_whole(run / f"{name}.txt") as file:
                file.writelines(f"{speaker}\n".encode() for speaker in speakers)
        places = {"store": run / "corpus", "speakers": run / f"{name}.txt"}
        settings += [f"data.{name}.{key}={json.dumps(str(path))}" for key, path in places.items()]
    return settings


def _split(store: Store, dev: int, test: int, seed: int) -> dict[str, list[str]]:
    held_out, train = split_by_count(store.speaker_names().to_pylist(), dev + test, seed)
    first, second = split_by_count(held_out, dev, seed)
    return {"train": train, "dev": first, "test": second}
