"""A recogniser: an encoder with its options, tokens and parameters, saved in one safetensors file.

model.safetensors holds the parameters by name and one metadata entry, `sottovoce`, with the options, languages, tokens
and features as JSON. That is all one needs to use the model, and nothing in it differs between two equal runs. A model
that was trained centrally, or on a store that was limited on purpose, also holds the bandwidth of its training data.
"""

import json
from dataclasses import dataclass, replace
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
from sottovoce.features.bandwidth import FULL_HZ, Band
from sottovoce.files import written_whole
from sottovoce.model.encoder import Encoder, make_initialised, make_on_meta
from sottovoce.model.encoder_options import EncoderOptions
from sottovoce.model.flat import FlatModel, encoder_partition
from sottovoce.model.model_options import ENCODERS, described, read_options
from sottovoce.model.partition import Partition, PartitionName
from sottovoce.model.roles import Trainable
from sottovoce.randomness import stream

MODEL_FILE = "model.safetensors"
_METADATA = "sottovoce"


@dataclass(frozen=True)
class Recogniser:
    """A model with its token set, and the bandwidths that it has heard in training, where they are known and public."""

    options: EncoderOptions
    token_set: TokenSet
    encoder: Encoder
    flat: FlatModel
    heard: Band | None = None

    @classmethod
    def make(
        cls,
        options: EncoderOptions,
        token_set: TokenSet,
        device: torch.device | str = "cpu",
        trainable: Trainable = "all",
    ) -> "Recogniser":
        """Make a model whose parameters are not yet set; those outside `trainable` are frozen."""
        encoder = options.make(len(token_set.tokens)).to(device)
        return cls(options, token_set, encoder, FlatModel(encoder, trainable))

    def initialise(self, seed: int) -> "Recogniser":
        """Fill the parameters from the named stream of the run; the same on every device."""
        drawn = int(stream(seed, "initialisation").integers(2**62))
        self.flat.fill_(dict(make_initialised(self.options, self.encoder.tokens, drawn).named_parameters()))
        return self

    def with_options(self, options: EncoderOptions, trainable: Trainable = "all") -> "Recogniser":
        """Return this model with other options of the same shape, or with other parameters frozen."""
        other = Recogniser.make(options, self.token_set, self.flat.theta.device, trainable)
        other.flat.fill_(self.flat.tensors())
        return other

    def description(self) -> dict[str, Any]:
        """Return the metadata of the model file."""
        training = {} if self.heard is None else {"training": {"bandwidth_hz": list(self.heard)}}
        return {
            "model": described(self.options),
            "languages": list(self.token_set.languages),
            "tokens": list(self.token_set.tokens),
            "features": logmel.DESCRIPTION,
            **training,
        }

    def save(self, path: Path) -> None:
        """Write the model whole; the same parameters give the same bytes."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.flat.tensors().items()}
        metadata = {_METADATA: json.dumps(self.description(), sort_keys=True)}
        with written_whole(path) as file:
            file.write(save(tensors, metadata))

    def require_store(self, store: Store) -> None:
        """Raise DataError where a store's tokens, features or stride do not fit the model."""
        if store.info.tokens != self.token_set.tokens:
            raise DataError(
                f"{store.path} has the tokens of {'+'.join(store.info.languages)}, the model those of "
                f"{'+'.join(self.token_set.languages)}. Use a store in the model's language."
            )
        if store.info.features != logmel.DESCRIPTION:
            raise DataError(f"{store.path} has other features than the model. Prepare it again.")
        if self.encoder.output_stride > store.info.output_stride:
            raise DataError(
                f"The encoder gives one output for {self.encoder.output_stride} frames, and texts in {store.path} need "
                f"one for {store.info.output_stride}. Use an encoder with a smaller stride."
            )


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
    options = _options(description, path)
    try:
        recogniser = Recogniser.make(options, TokenSet(tuple(description["languages"])), device)
    except (KeyError, TypeError, ConfigError):
        raise DataError(f"{path} describes a model that this version does not know.") from None
    made_for = (list(recogniser.token_set.tokens), logmel.DESCRIPTION)
    if (description.get("tokens"), description.get("features")) != made_for:
        raise DataError(f"{path} was made for other tokens or features than this version has.")
    try:
        recogniser.flat.fill_(tensors)
    except ValueError as error:
        raise DataError(f"{path} does not fit the model it describes: {error}.") from None
    return replace(recogniser, heard=_heard(description))


def _heard(description: dict[str, Any]) -> Band | None:
    """Return the bandwidths of the training data that a model file holds; None where it holds none."""
    training = description.get("training")
    band = training.get("bandwidth_hz") if isinstance(training, dict) else None
    if not isinstance(band, list) or [type(value) for value in band] != [int, int]:
        return None
    return Band(*band) if 0 < band[0] <= band[1] <= FULL_HZ else None


def heard_by(path: Path) -> Band | None:
    """Return the bandwidths that a saved model has heard, without reading its parameters; None where unknown."""
    try:
        with safe_open(model_path(path), "pt") as file:
            return _heard(_described(file.metadata() or {}, path))
    except (OSError, SafetensorError, DataError):
        return None  # whoever loads the model says what is wrong with it


def saved_partition(path: Path, name: PartitionName, trainable: Trainable = "all") -> Partition:
    """Return the layers of a saved model without reading its parameters; raise DataError where that is impossible."""
    try:
        with safe_open(path, "pt") as file:
            description = _described(file.metadata() or {}, path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
    encoder = make_on_meta(_options(description, path), len(description.get("tokens", ())))
    return encoder_partition(encoder, name, trainable)


def _options(description: dict[str, Any], path: Path) -> EncoderOptions:
    """Return the encoder's options that a model file holds."""
    model = description.get("model")
    if isinstance(model, dict) and ENCODERS.member(model) is None:
        raise DataError(f"{path}: {ENCODERS.missing(model.get('kind'))}.")
    try:
        return read_options(model)
    except ValidationError:
        raise DataError(f"{path} describes a model that this version does not know.") from None


def _described(metadata: dict[str, str], path: Path) -> dict[str, Any]:
    """Return the description in a model file's metadata."""
    try:
        description = json.loads(metadata.get(_METADATA, "null"))
    except (ValueError, RecursionError):
        description = None
    if not isinstance(description, dict):
        raise DataError(f"{path} was not saved by Sottovoce: it does not say what model it is.")
    return description
