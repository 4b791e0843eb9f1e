"""Upgrading a store of an older version: what is new is added, and nothing is prepared again.

Stores of the format `OLDER_FORMAT` have no digests. The features are read once, the digests are written, and then
store.json. Guarantees: the result equals the store that this version would have prepared, to the byte; killed at any
moment, the store is as it was before, and the upgrade can be run again.
"""

from pathlib import Path

import numpy as np

from sottovoce.data.digests import as_digests, audio_digest, content_digests
from sottovoce.data.store import CONTENT_FILES, DIGESTS, FORMAT, INFO, OLDER_FORMAT, Store, StoreInfo, read_info
from sottovoce.data.store_files import damaged
from sottovoce.data.writer import remove_temporaries, write_digests
from sottovoce.errors import DataError
from sottovoce.features.logmel import SAMPLE_RATE_HZ
from sottovoce.files import only_writer, sha256_of, write_json
from sottovoce.processes import Progress, no_progress
from sottovoce.reading import BadDocument, parse_json, read_bounded

_PROGRESS_ROWS = 1_000


def upgrade(path: Path | str, progress: Progress = no_progress) -> Store:
    """Upgrade a store where it lies; a store of this version is returned as it is.

    Example:
        store = upgrade("stores/ls-100")
    """
    path = Path(path)
    if not _is_older(path):
        return Store.open(path)
    with only_writer(path):
        remove_temporaries(path)
        older = Store(path, read_info(path, OLDER_FORMAT))
        _add_digests(older, progress)
        _complete_info(older)
    return Store.open(path)


def _is_older(path: Path) -> bool:
    try:
        document = parse_json(read_bounded(path / INFO))
    except (OSError, BadDocument, DataError):
        return False  # `Store.open` says what is wrong
    return isinstance(document, dict) and document.get("format") == OLDER_FORMAT


def _add_digests(store: Store, progress: Progress) -> None:
    table = store.index()
    samples = np.rint(table["seconds"].to_numpy() * SAMPLE_RATE_HZ).astype(np.int64)
    audio = bytearray()
    for row in range(len(store)):
        audio += audio_digest(store.features_of(row).tobytes())
        if row % _PROGRESS_ROWS == 0:
            progress("features", row, len(store))
    digests = as_digests(bytes(audio))
    targets = [store.tokens_of(row) for row in range(len(store))]
    described = table.drop_columns(["tokens", "frames", "seconds"])
    write_digests(store.path, digests, content_digests(described, targets, samples, digests))


def _complete_info(store: Store) -> None:
    """Replace store.json; the hashes of the other files are kept, so damage to them is still noticed."""
    info = store.info
    known = info.files | {DIGESTS: sha256_of(store.path / DIGESTS)}
    if lost := [name for name in CONTENT_FILES if name not in known]:
        raise damaged(store.path / INFO, f"it has no hash of {lost[0]}")
    files = {name: known[name] for name in CONTENT_FILES}
    sizes = {name: (store.path / name).stat().st_size for name in CONTENT_FILES}
    content = StoreInfo.content_hash(info.tokens, info.features, files)
    new = {"format": FORMAT, "files": files, "sizes": sizes, "hash": content}
    write_json(store.path / INFO, info.model_copy(update=new).model_dump(mode="json"))
