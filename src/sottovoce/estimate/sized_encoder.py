"""Encoders without memory, to ask for their sizes: one is made once and asked often."""

from functools import lru_cache

from sottovoce.model.adapter_options import NO_ADAPTERS, Adapters
from sottovoce.model.adapters import make_adapted_on_meta
from sottovoce.model.encoder import Encoder
from sottovoce.model.encoder_options import EncoderOptions

_made = lru_cache(maxsize=16)(make_adapted_on_meta)


def sized_encoder(options: EncoderOptions, tokens: int, adapters: Adapters = NO_ADAPTERS) -> Encoder:
    """Return an encoder without memory for its parameters, which nobody may change."""
    try:
        hash(options)
    except TypeError:  # someone's own options hold a list or a dictionary
        return make_adapted_on_meta(options, tokens, adapters)
    return _made(options, tokens, adapters)
