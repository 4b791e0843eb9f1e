"""The users of a deployed run as a store: names, and nothing of anybody's audio.

A run knows its users through a store (`data/population.py`): their names, the tokens of their language, a hash that
says whether a run resumes with the same users, and the ledger that all runs on them share. The server has no audio. So
its store holds, for every enrolled user, one utterance of silence without words, which nothing ever trains on.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from sottovoce.data.digests import DIGEST_BYTES, as_digests, audio_digest
from sottovoce.data.store import FEATURES, PreparationRecord, Store, partial_path
from sottovoce.data.text import TokenSet
from sottovoce.data.writer import publish, write_content, write_info, write_rejected
from sottovoce.features import logmel
from sottovoce.files import keep_private, make_folder, only_writer

ROSTER = "users"  # below a run's folder
_LABEL = "enrolled users"


def open_roster(run: Path, users: Sequence[str], languages: Sequence[str]) -> Store:
    """Return the users of a run: those it began with, or these where it has not begun."""
    path = run / ROSTER
    return Store.open(path) if path.exists() else write_roster(path, users, TokenSet(tuple(languages)))


def write_roster(path: Path, users: Sequence[str], tokens: TokenSet) -> Store:
    """Write a store with one silent utterance of a frame for every user."""
    names = sorted(users)
    samples = np.full(len(names), logmel.WINDOW_SAMPLES, np.int64)
    silence = np.zeros((logmel.frame_count(int(samples[0])), logmel.BINS), np.float16).tobytes()
    texts: dict[str, list[str] | list[list[str]]] = {
        "utterance": [f"{name}-0" for name in names],
        "speaker": names,
        "text": [""] * len(names),
        "language": [tokens.languages[0]] * len(names),
    }
    table = pa.table({name: pa.array(values, pa.string()) for name, values in texts.items()})
    for name, kind in (("paths", pa.string()), ("pauses", pa.float64()), ("parts", pa.string())):
        table = table.append_column(name, pa.array([[]] * len(names), pa.list_(kind)))
    for name in ("start", "segment_seconds"):
        table = table.append_column(name, pa.array([None] * len(names), pa.float64()))
    for name in ("channel", "root"):
        table = table.append_column(name, pa.array([0] * len(names), pa.int32()))
    partial = partial_path(path)
    make_folder(partial)
    with only_writer(partial):
        (partial / FEATURES).write_bytes(silence * len(names))
        write_rejected(partial, [])
        digest = np.frombuffer(audio_digest(silence), np.uint8)
        audio = as_digests(np.tile(digest, len(names)).tobytes()).reshape(-1, DIGEST_BYTES)
        write_content(partial, table, samples, audio, tokens)
        request = PreparationRecord(corpus={"kind": _LABEL}, joining=None)
        write_info(partial, label=_LABEL, request=request, roots=["."], tokens=tokens, rejected=0, manifest_hash="")
        store = publish(partial, path)
    keep_private(path)
    return store
