"""Speech as callers give it: a population, a store, a selection, or a place on disk."""

import os

from sottovoce.data.population import Population
from sottovoce.data.selection import Selection
from sottovoce.data.store import Store

Place = str | os.PathLike[str]
Speech = Population | Store | Selection | Place  # a place may be STORE or STORE@SPEAKERS


def open_speech(speech: Speech) -> Population:
    """Return speech in any of its forms as a population."""
    if isinstance(speech, Population):
        return speech
    if isinstance(speech, Store):
        return Population.of(speech)
    return (speech if isinstance(speech, Selection) else Selection.parse(os.fspath(speech))).open()
