"""The speech of canaries: a store with one speaker each, of random tones under a random transcript.

Nobody sounds like this, so what training on one such speaker changes is its own. Canaries that send directions are
never trained on it; they need it because users are speakers of a store, and because it weighs far more than any
`weight_bound` of an audit should allow.
"""

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from sottovoce.data.corpora import Table
from sottovoce.data.preparation import prepare
from sottovoce.data.store import Store
from sottovoce.errors import ConfigError
from sottovoce.features.logmel import SAMPLE_RATE_HZ
from sottovoce.files import make_folder, written_whole
from sottovoce.processes import Progress, no_progress
from sottovoce.randomness import stream

SECONDS = 0.4
_LETTERS, _TONES = 4, 6


def canary_name(number: int) -> str:
    """Return the speaker's name of a canary."""
    return f"canary-{number:07d}"


def canary_number(name: str) -> int:
    """Return the number of the canary with this name."""
    found = re.fullmatch(r"canary-(\d+)", name)
    if found is None:
        raise ConfigError(f"{name} is not a canary. An audit trains on canaries alone.")
    return int(found[1])


def canary_store(folder: Path, canaries: int, progress: Progress = no_progress) -> Store:
    """Make the store of so many canaries in a folder, or open it where it was made before."""
    corpus = folder / f"canaries-{canaries}"
    table = corpus / "index.tsv"
    if not table.exists():
        make_folder(corpus)
        rows = ["path\tspeaker\ttext\n"]
        for number in range(canaries):
            rng = stream(0, "canary-speech", number)
            name, text = canary_name(number), "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), _LETTERS))
            soundfile.write(corpus / f"{name}.wav", _sound(rng), SAMPLE_RATE_HZ)
            rows.append(f"{name}.wav\t{name}\t{text}\n")
        with written_whole(table) as file:
            file.write("".join(rows).encode())
    return prepare(Table(file=table), folder / f"store-{canaries}", progress=progress)


def _sound(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return a chord of random tones in a little noise."""
    time = np.arange(round(SECONDS * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    tones = np.sin(2 * np.pi * rng.uniform(100, 7000, (_TONES, 1)) * time + rng.uniform(0, 2 * np.pi, (_TONES, 1)))
    return np.asarray(0.1 * tones.sum(0) + 0.001 * rng.standard_normal(len(time)), dtype=np.float32)
