"""Named random streams, the only source of seeded randomness in the project, and secure randomness.

A stream is derived by SHA-256 from the run's seed, the stream's name and other keys, such as the step and the user. Two
streams are therefore independent, and a stream does not depend on the use of others, on the number of workers or on the
machine. `rank` orders strings at random without a generator, so it is also stable across library versions.
`SecureRandomness` draws from the operating system's generator, for cohorts and noise that must not be predictable or
repeatable; `fill_secure_` from OpenSSL's, for masks. `KeyedRandomness` repeats its bits for whoever has its secret key.
"""

import hashlib
import math
import operator
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Key = int | np.integer | str

_FILLED_AT_ONCE = 1 << 20  # bytes


def _digest(seed: int, name: str, keys: Iterable[Key]) -> bytes:
    """Hash the parts with their types and lengths, so that different lists of parts have different inputs."""
    hasher = hashlib.sha256()
    for part in (seed, name, *keys):
        is_text = isinstance(part, str)
        # A numpy integer gives the same stream as the equal Python integer.
        data = (part if isinstance(part, str) else str(operator.index(part))).encode()
        hasher.update(b"%c%d:" % (b"s" if is_text else b"i", len(data)))
        hasher.update(data)
    return hasher.digest()


def stream(seed: int, name: str, *keys: Key) -> np.random.Generator:
    """Return the random generator of a seed, a name and keys.

    Example:
        rng = stream(config.seed, "cohort", step)
    """
    words = np.frombuffer(_digest(seed, name, keys), dtype="<u8")
    return np.random.Generator(np.random.Philox(key=words[:2], counter=[0, 0, *words[2:]]))


@dataclass(frozen=True)
class Streams:
    """Named random streams that share the first keys: of one training step, or of one user in one central step."""

    seed: int
    keys: tuple[Key, ...]

    def of(self, name: str, *more: int) -> np.random.Generator:
        """Return one stream."""
        return stream(self.seed, name, *self.keys, *more)

    def seed_of(self, name: str, *more: int) -> int:
        """Return a seed of 62 bits for a generator that is not NumPy's."""
        return int.from_bytes(_digest(self.seed, name, (*self.keys, *more))[:8]) >> 2


def rank(seed: int, name: str, items: Iterable[str]) -> list[str]:
    """Return the items in a random order that depends only on the seed, the name and each item itself.

    Guarantees: the order of the input does not matter; adding an item never changes the order of the others.
    """
    return sorted(items, key=lambda item: (_digest(seed, name, [item]), item))


def dealt(seed: int, name: str, item: str, hands: int) -> int:
    """Return which of so many hands an item is dealt to; it depends only on the seed, the name and the item itself."""
    return int.from_bytes(_digest(seed, name, [item])[:8], "big") % hands


class SecureRandomness:
    """Random numbers from the operating system's generator, which nobody can predict or repeat."""

    def geometric(self, p: float, size: int) -> npt.NDArray[np.int64]:
        """Return geometric random numbers, drawn by inversion."""
        gaps = np.ceil(np.log(_secure_uniforms(size)) / math.log1p(-p))
        return np.maximum(gaps, 1).clip(max=2.0**62).astype(np.int64)

    def choice(self, a: int, size: int, replace: bool) -> npt.NDArray[np.int64]:
        """Return `size` different numbers from 0 to a - 1."""
        if replace:
            raise NotImplementedError("draws with replacement are not needed")
        return np.array(secrets.SystemRandom().sample(range(a), size), dtype=np.int64)

    def octets(self, count: int) -> bytes:
        """Return random bytes."""
        return os.urandom(count)

    def bytes(self, length: int) -> bytes:
        """Return random bytes, under the name that seeded generators have for it."""
        return self.octets(length)


class KeyedRandomness(SecureRandomness):
    """Random bytes that follow from a secret key and can be drawn again by it: SHAKE-128 of key and counter.

    Without the key they cannot be told from uniform bytes, as far as anyone knows of SHAKE-128. With a key of 32 bytes
    from the operating system's generator they have its full strength, 128 bits.
    """

    def __init__(self, key: bytes, *more: int) -> None:
        """Begin at the first byte of a key; further numbers give streams of their own."""
        self._prefix = key + b"".join(number.to_bytes(8, "big") for number in more)
        self._calls = 0

    def octets(self, count: int) -> bytes:
        """Return the next bytes; they depend on how many were asked for in every call before."""
        self._calls += 1
        return hashlib.shake_128(self._prefix + self._calls.to_bytes(8, "big")).digest(count)

    def geometric(self, p: float, size: int) -> npt.NDArray[np.int64]:
        """Refuse: cohorts are never drawn from a key."""
        raise NotImplementedError("a key gives noise only")

    def choice(self, a: int, size: int, replace: bool) -> npt.NDArray[np.int64]:
        """Refuse: cohorts are never drawn from a key."""
        raise NotImplementedError("a key gives noise only")


def _secure_uniforms(count: int) -> npt.NDArray[np.float64]:
    """Return uniform random numbers from 2^-65 to 1."""
    return (np.frombuffer(os.urandom(8 * count), dtype=np.uint64).astype(np.float64) + 0.5) * 2.0**-64


def fill_secure_(octets: npt.NDArray[np.uint8]) -> None:
    """Fill an array with random bytes from OpenSSL's generator, which the operating system seeds.

    For bits that are used once and forgotten. It takes a tenth of the time of `os.urandom` or less.
    """
    import ssl  # noqa: PLC0415 - loading it takes as long as reading a preset

    for first in range(0, len(octets), _FILLED_AT_ONCE):
        part = octets[first : first + _FILLED_AT_ONCE]
        part[:] = np.frombuffer(ssl.RAND_bytes(len(part)), dtype=np.uint8)


# The source of cohorts and noise: seeded or secure.
Randomness = np.random.Generator | SecureRandomness
