"""The corpus of a run without a store: the run prepares the corpus of its preset, and lists its speakers.

RUN/corpus           the store
RUN/train.txt, ...   the users, and the speakers set apart for dev and test, one per line

Both are private: only their owner can read them.
"""

from pathlib import Path

from sottovoce.config import Layer, Resolved
from sottovoce.data.preparation import prepare
from sottovoce.data.selection import Selection
from sottovoce.data.splits import split_by_count
from sottovoce.data.store import Store
from sottovoce.errors import ConfigError
from sottovoce.files import keep_private, written_whole
from sottovoce.processes import Progress, under_torchrun
from sottovoce.runs.folder import Run


def with_own_corpus(resolved: Resolved, run: Path, workers: int, progress: Progress) -> Resolved:
    """Prepare the preset's corpus, split its speakers, and return the configuration that selects them.

    A configuration that selects a store, or does not set users.dev_speakers and users.test_speakers, is returned as it
    is. Raise ConfigError where only dev or test are selected, and under torchrun, where nothing can be prepared.
    """
    config = resolved.config
    if config.data.train is not None:
        return resolved
    if config.data.dev is not None or config.data.test is not None:
        raise ConfigError("--dev and --test need --train: they must not share speakers with it. Give all three.")
    if under_torchrun():
        raise ConfigError(
            "Under torchrun a run makes no corpus of its own. Start it once without, and give its lists with --train."
        )
    if not (config.users.dev_speakers and config.users.test_speakers):
        return resolved
    Run(run).require_own("federated")
    store = prepare(
        config.corpus,
        run / "corpus",
        joining=config.joining,
        bandwidth_hz=config.features.bandwidth_hz,
        workers=workers,
        progress=progress,
    )
    keep_private(store.path)
    parts = _split(store, config.users.dev_speakers, config.users.test_speakers, config.seed)
    for name, speakers in parts.items():
        if not (run / f"{name}.txt").exists():  # a run resumes with the lists it has
            with written_whole(run / f"{name}.txt", private=True) as file:
                file.writelines(f"{speaker}\n".encode() for speaker in speakers)
    data = {name: Selection(store=run / "corpus", speakers=run / f"{name}.txt") for name in parts}
    return resolved.over(Layer({"data": data}, "the run's own corpus"))


def _split(store: Store, dev: int, test: int, seed: int) -> dict[str, list[str]]:
    held_out, train = split_by_count(store.speaker_names().to_pylist(), dev + test, seed)
    first, second = split_by_count(held_out, dev, seed)
    return {"train": train, "dev": first, "test": second}
