"""Named random streams: the only source of seeded randomness in the project; and secure randomness.

A stream is derived from (run seed, stream name, further keys such as step and user) by SHA-256, so that two streams
are independent, and none depends on how often another was used, on the number of workers or on the machine.
`rank` orders strings at random without any generator: it is stable across library versions too. `SecureRandomness`
draws from the operating system's generator: for cohorts and noise that nobody may foresee or repeat.
"""

import hashlib
import math
import operator
import os
import secrets
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

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


class Randomness(Protocol):
    """What cohorts and noise need of a source of randomness; numpy's generators have it."""

    def geometric(self, p: float, size: int) -> npt.NDArray[np.int64]:
        """Return how many trials of probability p come up to the first success, `size` times."""

    def standard_normal(self, size: int) -> npt.NDArray[np.float64]:
        """Return standard normal draws."""

    def choice(self, a: int, size: int, replace: bool) -> npt.NDArray[np.int64]:
        """Return `size` of the numbers 0 to a - 1."""


class SecureRandomness:
    """Draws from the operating system's generator; they cannot be foreseen and cannot be repeated."""

    def geometric(self, p: float, size: int) -> npt.NDArray[np.int64]:
        """Return geometric draws by inversion."""
        gaps = np.ceil(np.log(_secure_uniforms(size)) / math.log1p(-p))
        return np.maximum(gaps, 1).clip(max=2.0**62).astype(np.int64)

    def standard_normal(self, size: int) -> npt.NDArray[np.float64]:
        """Return standard normal draws (Box-Muller); the tail reaches 9.5 standard deviations."""
        pairs = -(-size // 2)
        radius, angle = np.sqrt(-2 * np.log(_secure_uniforms(pairs))), 2 * math.pi * _secure_uniforms(pairs)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]

    def choice(self, a: int, size: int, replace: bool) -> npt.NDArray[np.int64]:
        """Return different numbers below a."""
        if replace:
            raise NotImplementedError("draws with replacement are not needed")
        return np.array(secrets.SystemRandom().sample(range(a), size), dtype=np.int64)


def _secure_uniforms(count: int) -> npt.NDArray[np.float64]:
    """Return uniform numbers strictly between 0 and 1, from 2^-65 on."""
    return (np.frombuffer(os.urandom(8 * count), dtype=np.uint64).astype(np.float64) + 0.5) * 2.0**-64
