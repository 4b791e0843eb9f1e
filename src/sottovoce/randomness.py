"""Named random streams: the only source of seeded randomness in the project.

A stream is derived from (run seed, stream name, further keys such as step and user) by SHA-256, so that two streams
are independent, and none depends on how often another was used, on the number of workers or on the machine.
`rank` orders strings at random without any generator: it is stable across library versions too.
"""

import hashlib
import operator
from collections.abc import Iterable

import numpy as np

Key = int | np.integer | str


def _digest(seed: int, name: str, keys: Iterable[Key]) -> bytes:
    """Hash the parts with their types and lengths, so that no two different lists of parts meet."""
    hasher = hashlib.sha256()
    for part in (seed, name, *keys):
        is_text = isinstance(part, str)
        # A user from a numpy array is the same user as a plain integer.
        data = (part if isinstance(part, str) else str(operator.index(part))).encode()
        hasher.update(b"%c%d:" % (b"s" if is_text else b"i", len(data)))
        hasher.update(data)
    return hasher.digest()


def stream(seed: int, name: str, *keys: Key) -> np.random.Generator:
    """Return the generator named `name` of the run with `seed`; `keys` are for example the step and the user."""
    words = np.frombuffer(_digest(seed, name, keys), dtype="<u8")
    return np.random.Generator(np.random.Philox(key=words[:2], counter=[0, 0, *words[2:]]))


def rank(seed: int, name: str, items: Iterable[str]) -> list[str]:
    """Return the items in a random order that depends only on the seed, the name and each item itself.

    Guarantees: the input order does not matter; adding an item never changes the order of the others, so that
    the first n of a list are also among its first n + 1.
    """
    return sorted(items, key=lambda item: (_digest(seed, name, [item]), item))
