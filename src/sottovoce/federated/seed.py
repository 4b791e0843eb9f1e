"""The seed model of a federated run: who it was trained on, as far as that can be known.

The guarantee is about what a run releases. It says nothing of what its seed model reveals, so a seed model that was
trained on some of the users voids it: that is an error wherever it can be seen.
"""

from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.data.population import Population
from sottovoce.data.selection import Selection
from sottovoce.errors import PrivacyError, SottoError
from sottovoce.files import sha256_of
from sottovoce.model.recogniser import model_path
from sottovoce.runs import CONFIG_FILE, read_json

NONE = "none"


def describe_seed_model(checkpoint: Path | None, users: Population) -> str:
    """Say in a few words what the seed model was trained on; raise PrivacyError where its speakers are users."""
    if checkpoint is None:
        return NONE
    digest = sha256_of(model_path(checkpoint))
    config = _config_of(model_path(checkpoint))
    trained_on = None if config is None else config.get("data", {}).get("train")
    if config is None or trained_on is None:
        return f"sha256 {digest}, trained on speakers that are not known"
    try:
        speakers = Selection(**trained_on).open()
    except SottoError:
        return f"sha256 {digest}, trained on speakers that are no longer there to be compared"
    common = _common_speakers(speakers, users)
    if common:
        raise PrivacyError(
            f"The seed model {checkpoint} was trained on {common} of the users: their audio is in it without noise. "
            "Split the speakers first."
        )
    before = config.get("data", {}).get("seed_model")
    earlier = "" if before is None else f"; it began with: {describe_seed_model(Path(before), users)}"
    return f"sha256 {digest}, trained on other speakers{earlier}"


def _config_of(model: Path) -> dict[str, Any] | None:
    """Return the configuration of the run that a model lies in: RUN/last/model.safetensors, or below checkpoints."""
    for folder in (*model.absolute().parents[:2], *model.resolve().parents[:3]):
        if (folder / CONFIG_FILE).is_file():
            config: dict[str, Any] | None = read_json(folder / CONFIG_FILE).get("config")
            return config
    return None


def _common_speakers(one: Population, other: Population) -> int:
    """Return how many users of the second population are heard in the first: by row, or by name in another store."""
    if one.store.info.hash == other.store.info.hash:
        rows = np.intersect1d(one.all_rows(), other.all_rows())
        return len({int(user) for user in np.searchsorted(other.store.speaker_offsets, rows, side="right")})
    names = {one.key_of(user) for user in range(len(one))}
    return sum(other.key_of(user) in names for user in range(len(other)))
