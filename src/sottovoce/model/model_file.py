"""The file of a model without its parameters: where it lies, and what it says of itself. Nothing here loads torch."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from sottovoce.errors import DataError
from sottovoce.features.bandwidth import FULL_HZ, BandRange
from sottovoce.reading import BadDocument, parse_json

MODEL_FILE = "model.safetensors"
METADATA = "sottovoce"  # the entry of the file's metadata with the description


def model_path(path: Path) -> Path:
    """Return the model file of a checkpoint: the file itself, a checkpoint's folder, or a run's folder."""
    for candidate in (path, path / MODEL_FILE, path / "best" / MODEL_FILE, path / "last" / MODEL_FILE):
        if candidate.is_file():
            return candidate
    raise DataError(f"There is no model at {path}. Give a {MODEL_FILE}, a checkpoint's folder or a run's folder.")


def description_in(metadata: dict[str, str], path: Path) -> dict[str, Any]:
    """Return the description in a model file's metadata."""
    try:
        description = parse_json(metadata.get(METADATA, "null"))
    except BadDocument:
        description = None
    if not isinstance(description, dict):
        raise DataError(f"{path} was not saved by Sottovoce: it does not say what model it is.")
    return description


def band_in(description: dict[str, Any]) -> BandRange | None:
    """Return the bandwidths of the training data that a model file holds; None where it holds none."""
    training = description.get("training")
    band = training.get("bandwidth_hz") if isinstance(training, dict) else None
    if not isinstance(band, list) or [type(value) for value in band] != [int, int]:
        return None
    return BandRange(*band) if 0 < band[0] <= band[1] <= FULL_HZ else None


def heard_by(path: Path) -> BandRange | None:
    """Return the bandwidths that a saved model has heard, without reading its parameters; None where unknown."""
    try:
        with safe_open(model_path(path), "np") as file:
            return band_in(description_in(file.metadata() or {}, path))
    except (OSError, SafetensorError, DataError):
        return None  # whoever loads the model says what is wrong with it


def saved_tokens(metadata: dict[str, str]) -> list[str] | None:
    """Return the tokens that the metadata of a model file name; None where it was not saved by Sottovoce."""
    try:
        tokens = parse_json(metadata.get(METADATA, "null"))["tokens"]
    except (BadDocument, TypeError, KeyError):
        return None
    return tokens if isinstance(tokens, list) and all(isinstance(token, str) for token in tokens) else None
