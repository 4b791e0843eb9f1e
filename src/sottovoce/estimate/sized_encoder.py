"""Encoders without memory, to ask for their sizes: one is made once and asked often."""

from functools import lru_cache

from sottovoce.model.encoder import Encoder, make_on_meta
from sottovoce.model.encoder_options import EncoderOptions


def sized_encoder(options: EncoderOptions, tokens: int) -> Encoder:
    """Return an encoder without memory for its parameters, which nobody may change."""
    return _made(type(options), options.model_dump_json(), tokens)


@lru_cache(maxsize=16)
def _made(kind: type[EncoderOptions], options: str, tokens: int) -> Encoder:
    return make_on_meta(kind.model_validate_json(options), tokens)
