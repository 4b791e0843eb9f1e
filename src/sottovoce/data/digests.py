"""Digests: what identifies the content of an utterance, made once at preparation and kept in the store.

Each utterance has two digests of 16 bytes (BLAKE2b):

    audio     of its features: equal audio has equal digests, whoever is said to speak and whatever is said to be said
    content   of its audio, targets, length, id, speaker, text, language and the corpus's own columns

Guarantees: a digest depends on its own utterance only, not on the rest of the store, its row or the place of its files.
An empty column counts as absent, so columns that only others have make no difference. Whether two populations are the
same, or share audio, is known from 32 bytes per utterance, without reading their features.
"""

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sottovoce.data.manifest import BANDWIDTH, BANDWIDTH_LIMIT, SOURCE_RATE

DIGEST_BYTES = 16
DigestArray = npt.NDArray[np.uint8]  # (utterances, DIGEST_BYTES)

# Columns that say where the audio was found, or what was measured of it. The audio itself is in the digest.
_PLACES = ("paths", "start", "segment_seconds", "channel", "pauses", "parts", "root")
_MEASURED = (SOURCE_RATE, BANDWIDTH, BANDWIDTH_LIMIT)
_ROWS = 10_000  # at a time


def audio_digest(features: bytes | memoryview) -> bytes:
    """Return the digest of the features of one utterance."""
    return hashlib.blake2b(features, digest_size=DIGEST_BYTES).digest()


def content_digests(
    table: pa.Table, targets: Sequence[npt.NDArray[np.uint8]], samples: npt.NDArray[np.int64], audio: DigestArray
) -> DigestArray:
    """Return the content digests of the utterances in a table of the index, without its tokens, frames and seconds."""
    described = table.drop_columns([name for name in (*_PLACES, *_MEASURED) if name in table.column_names])
    digests = np.zeros((len(table), DIGEST_BYTES), np.uint8)
    place = 0
    for batch in described.to_batches(max_chunksize=_ROWS):
        for row in batch.to_pylist():
            content = {name: value for name, value in row.items() if value is not None} | {
                "samples": int(samples[place])
            }
            # JSON holds no line end and the audio's digest has a fixed length, so the parts cannot be confused.
            whole = json.dumps(content, sort_keys=True).encode() + b"\n" + targets[place].tobytes()
            digest = hashlib.blake2b(whole + audio[place].tobytes(), digest_size=DIGEST_BYTES).digest()
            digests[place] = np.frombuffer(digest, np.uint8)
            place += 1
    return digests


def as_digests(joined: bytes) -> DigestArray:
    """Return digests that follow one another as an array."""
    return np.frombuffer(joined, np.uint8).reshape(-1, DIGEST_BYTES)


def places_of_common(one: DigestArray, other: DigestArray) -> npt.NDArray[np.int64]:
    """Return the places in `other` of the digests that are in `one`, in ascending order; O(n log m), m the smaller."""
    first, second = _leading(one), _leading(other)
    halves = _common(first, second) if len(first) >= len(second) else _common(second, first)
    # Leading halves almost always decide; whole digests are compared where they agree.
    known = {one[place].tobytes() for place in np.flatnonzero(np.isin(first, halves))}
    likely = np.flatnonzero(np.isin(second, halves))
    return np.array([place for place in likely if other[place].tobytes() in known], np.int64)


def _leading(digests: DigestArray) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(digests[:, :8]).view(np.uint64).reshape(-1)


def _common(large: npt.NDArray[np.uint64], small: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the values that are in both arrays."""
    if not len(small):
        return small
    known = np.unique(small)
    nearest = known[np.minimum(np.searchsorted(known, large), len(known) - 1)]
    return np.unique(large[nearest == large])
