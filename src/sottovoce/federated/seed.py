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
from sottovoce.runs.folder import CONFIG_FILE, read_json

NONE = "none"


def describe_seed_model(checkpoint: Path | None, users: Population) -> str:
    """Say in a few words what the seed model was trained on; raise PrivacyError where its speakers are users."""
    if checkpoint is None:
        return NONE
    try:
        model = model_path(checkpoint)
    except SottoError:
        return "no longer there, trained on speakers that are not known"
    digest, begun = sha256_of(model), _begun(model)
    if begun is None:
        return f"sha256 {digest}, trained on speakers that are not known"
    known = True
    roles = [role for role in ("train", "dev") if role == "train" or begun["config"].get("data", {}).get("dev")]
    for role in roles:  # the best of its checkpoints was chosen on dev
        speakers = _speakers_of(begun, role)
        known = known and speakers is not None
        common = 0 if speakers is None else _common_speakers(speakers, users)
        if common:
            raise PrivacyError(
                f"The seed model {checkpoint} was made with {common} of the users ({role}): their audio is in it "
                "without noise. Split the speakers first."
            )
    before = begun["config"].get("data", {}).get("seed_model")
    earlier = "" if before is None else f"; it began with: {describe_seed_model(Path(before), users)}"
    what = "other speakers" if known else "speakers that are no longer there to be compared"
    return f"sha256 {digest}, trained on {what}{earlier}"


def _speakers_of(begun: dict[str, Any], role: str) -> Population | None:
    """Return who a run was trained or evaluated on; None where that cannot be known any more."""
    config, noted = begun["config"], begun.get("data", {})
    selection = config.get("data", {}).get(role)
    if selection is None:
        return None
    try:
        speakers = Selection(**selection).open()
    except SottoError:
        return None
    dealt = role == "train" and config.get("users", {}).get("iid")
    found = speakers.iid(config["seed"]) if dealt else speakers
    same = found.hash in (noted.get(role), noted.get("users") if role == "train" else None)
    return speakers if same else None


def _begun(model: Path) -> dict[str, Any] | None:
    """Return what the run began with that a model lies in: RUN/last/model.safetensors, or below checkpoints."""
    for folder in (*model.absolute().parents[:2], *model.resolve().parents[:3]):
        if (folder / CONFIG_FILE).is_file():
            document = read_json(folder / CONFIG_FILE)
            return document if isinstance(document.get("config"), dict) else None
    return None


def _common_speakers(one: Population, other: Population) -> int:
    """Return how many users of the second population are heard in the first: by row, or by name in another store."""
    if one.store.info.hash == other.store.info.hash:
        rows = np.intersect1d(one.all_rows(), other.all_rows())
        return len({int(user) for user in np.searchsorted(other.store.speaker_offsets, rows, side="right")})
    names = {one.key_of(user) for user in range(len(one))}
    return sum(other.key_of(user) in names for user in range(len(other)))
