"""A recogniser with what it needs to be used: its shape, its tokens, its parameters; loaded from one safetensors file.

model.safetensors holds the parameters by name and one metadata entry, `sottovoce`, with the shape, languages, tokens
and features as JSON: enough to use the model without anything else, and nothing that differs between two equal runs.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from sottovoce.data.store import Store
from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError, DataError
from sottovoce.features import logmel
from sottovoce.files import written_whole
from sottovoce.model.flat import FlatModel
from sottovoce.model.model_options import ModelOptions
from sottovoce.model.transformer import Encoder, initialise
from sottovoce.randomness import stream

MODEL_FILE = "model.safetensors"
_METADATA = "sottovoce"


@dataclass(frozen=True)
class Recogniser:
    """A model with its token set."""

    options: ModelOptions
    token_set: TokenSet
    encoder: Encoder
    flat: FlatModel

    @classmethod
    def make(cls, options: ModelOptions, token_set: TokenSet, device: torch.device | str = "cpu") -> "Recogniser":
        """Make a model with parameters that are not yet set."""
        encoder = Encoder(options, len(token_set.tokens)).to(device)
        return cls(options, token_set, encoder, FlatModel(encoder))

    def initialise(self, seed: int) -> "Recogniser":
        """Fill the parameters from the named stream of the run; the same on every device."""
        generator = torch.Generator().manual_seed(int(stream(seed, "initialisation").integers(2**62)))
        fresh = Encoder(self.options, self.encoder.tokens)
        initialise(fresh, generator)
        self.flat.load_(torch.cat([parameter.detach().reshape(-1) for parameter in fresh.parameters()]))
        return self

    def with_options(self, options: ModelOptions) -> "Recogniser":
        """Return this model with other options that change no parameter: all but its shape."""
        other = Recogniser.make(options, self.token_set, self.flat.theta.device)
        other.flat.load_(self.flat.theta)
        return other

    def description(self) -> dict[str, Any]:
        """Return what the metadata say."""
        return {
            "model": self.options.model_dump(mode="json"),
            "languages": list(self.token_set.languages),
            "tokens": list(self.token_set.tokens),
            "features": logmel.DESCRIPTION,
        }

    def save(self, path: Path) -> None:
        """Write the model whole; the same parameters give the same bytes."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.flat.tensors().items()}
        metadata = {_METADATA: json.dumps(self.description(), sort_keys=True)}
        with written_whole(path) as file:
            file.write(save(tensors, metadata))

    def require_store(self, store: Store) -> None:
        """Raise DataError where a store's tokens or features are not what the model was made for."""
        if store.info.tokens != self.token_set.tokens:
            raise DataError(
                f"{store.path} has the tokens of {'+'.join(store.info.languages)}, the model those of "
                f"{'+'.join(self.token_set.languages)}. Use a store in the model's language."
            )
        if store.info.features != logmel.DESCRIPTION:
            raise DataError(f"{store.path} has other features than the model. Prepare it again.")


def model_path(path: Path) -> Path:
    """Return the model file of a checkpoint: the file itself, a checkpoint's folder, or a run's folder."""
    for candidate in (path, path / MODEL_FILE, path / "best" / MODEL_FILE, path / "last" / MODEL_FILE):
        if candidate.is_file():
            return candidate
    raise DataError(f"There is no model at {path}. Give a {MODEL_FILE}, a checkpoint's folder or a run's folder.")


def load_recogniser(path: Path, device: torch.device | str = "cpu") -> Recogniser:
    """Load a model, or say in one line why it cannot be loaded."""
    path = model_path(path)
    try:
        with safe_open(path, "pt") as file:
            description = _described(file.metadata() or {}, path)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
    except SafetensorError as error:
        raise DataError(f"{path} is not a whole safetensors file: {error}. Save it again.") from None
    try:
        options = ModelOptions.model_validate(description["model"])
        recogniser = Recogniser.make(options, TokenSet(tuple(description["languages"])), device)
    except (ValidationError, KeyError, TypeError, ConfigError):
        raise DataError(f"{path} describes a model that this version does not know.") from None
    made_for = (list(recogniser.token_set.tokens), logmel.DESCRIPTION)
    if (description.get("tokens"), description.get("features")) != made_for:
        raise DataError(f"{path} was made for other tokens or features than this version has.")
    _fill(recogniser, tensors, path)
    return recogniser


def _described(metadata: dict[str, str], path: Path) -> dict[str, Any]:
    """Return what a model file says about itself."""
    try:
        description = json.loads(metadata.get(_METADATA, "null"))
    except ValueError:
        description = None
    if not isinstance(description, dict):
        raise DataError(f"{path} was not saved by Sottovoce: it does not say what model it is.")
    return description


def _fill(recogniser: Recogniser, tensors: dict[str, torch.Tensor], path: Path) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in recogniser.flat.tensors().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != found:
        wrong = next(name for name in (*expected, *found) if expected.get(name) != found.get(name))
        raise DataError(f"{path} does not fit the model it describes: {wrong} is {found.get(wrong)}.")
    recogniser.flat.load_(torch.cat([tensors[name].reshape(-1) for name in recogniser.flat.names]))
