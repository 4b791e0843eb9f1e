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
from sottovoce.features.bandwidth import BandRange
from sottovoce.files import written_whole
from sottovoce.model.adapter_options import NO_ADAPTERS, Adapters
from sottovoce.model.adapters import adapt_, make_adapted_on_meta
from sottovoce.model.encoder import Encoder, make_initialised, make_on_meta
from sottovoce.model.encoder_options import EncoderOptions
from sottovoce.model.flat import FlatModel, encoder_partition, require_shapes
from sottovoce.model.model_file import METADATA, band_in, description_in, model_path
from sottovoce.model.model_options import ENCODERS, described, read_options
from sottovoce.model.partition import Partition, PartitionName
from sottovoce.model.roles import Trainable
from sottovoce.randomness import stream


@dataclass(frozen=True)
class Recogniser:
    """A model with its token set, and the bandwidths that it has heard in training, where they are known and public."""

    options: EncoderOptions
    token_set: TokenSet
    encoder: Encoder
    flat: FlatModel
    heard: BandRange | None = None

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

    def with_adapters(self, adapters: Adapters, trainable: Trainable, seed: int) -> "Recogniser":
        """Return this model with new adapters, drawn from the run's seed; those and `trainable` train."""
        encoder = self.options.make(self.encoder.tokens).to(self.flat.theta.device)
        adapt_(encoder, adapters, seed)
        other = replace(self, encoder=encoder, flat=FlatModel(encoder, trainable))
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
        metadata = {METADATA: json.dumps(self.description(), sort_keys=True)}
        with written_whole(path) as file:
            file.write(save(tensors, metadata))

    def require_finite(self, path: Path) -> None:
        """Raise DataError where a parameter is not a finite number; `path` names the model."""
        if not all(torch.isfinite(tensor).all() for tensor in self.flat.tensors().values()):
            raise DataError(
                f"{path} has parameters that are not finite numbers: its training failed. Use another model."
            )

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


def load_recogniser(path: Path, device: torch.device | str = "cpu") -> Recogniser:
    """Load a model, or say in one line why it cannot be loaded.

    What the file says of the model is compared with its tensors before memory is taken for either.
    """
    path = model_path(path)
    try:
        with safe_open(path, "pt") as file:
            description = description_in(file.metadata() or {}, path)
            options, token_set = _model_of(description, path)
            names = list(file.keys())
            require_shapes(
                make_on_meta(options, len(token_set.tokens)),
                {name: tuple(file.get_slice(name).get_shape()) for name in names},
            )
            recogniser = Recogniser.make(options, token_set, device)
            recogniser.flat.fill_({name: file.get_tensor(name) for name in names})
    except SafetensorError as error:
        raise DataError(f"{path} is not a whole safetensors file: {error}. Save it again.") from None
    except ValueError as error:
        raise DataError(f"{path} does not fit the model it describes: {error}.") from None
    return replace(recogniser, heard=band_in(description))


def _model_of(description: dict[str, Any], path: Path) -> tuple[EncoderOptions, TokenSet]:
    """Return the options and the tokens that a model file describes."""
    options = _options(description, path)
    try:
        token_set = TokenSet(tuple(description["languages"]))
    except (KeyError, TypeError, ConfigError):
        raise DataError(f"{path} describes a model that this version does not know.") from None
    made_for = (list(token_set.tokens), logmel.DESCRIPTION)
    if (description.get("tokens"), description.get("features")) != made_for:
        raise DataError(f"{path} was made for other tokens or features than this version has.")
    return options, token_set


def saved_partition(
    path: Path, name: PartitionName, trainable: Trainable = "all", adapters: Adapters = NO_ADAPTERS
) -> Partition:
    """Return the layers of a saved model without reading its parameters; raise DataError where that is impossible."""
    try:
        with safe_open(path, "pt") as file:
            description = description_in(file.metadata() or {}, path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
    options, token_set = _model_of(description, path)
    return encoder_partition(make_adapted_on_meta(options, len(token_set.tokens), adapters), name, trainable)


def _options(description: dict[str, Any], path: Path) -> EncoderOptions:
    """Return the encoder's options that a model file holds."""
    model = description.get("model")
    if isinstance(model, dict) and ENCODERS.member(model) is None:
        raise DataError(f"{path}: {ENCODERS.missing(model.get('kind'))}.")
    try:
        return read_options(model)
    except ValidationError:
        raise DataError(f"{path} describes a model that this version does not know.") from None
