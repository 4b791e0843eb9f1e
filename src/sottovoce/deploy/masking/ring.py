"""Integers modulo 2^64: masks, sums that wrap around exactly, and as few bytes on the wire as the sum needs.

A sum of n users' integers of size <= `largest` lies within +-n * largest. Modulo 2^k with 2^(k-1) > n * largest it is
exact, whatever the masks did on the way, so only the lowest `ring_bytes` of each number are sent. Masks are the key
stream of ChaCha20, 8 bytes a number: to anyone without the key a masked vector is as good as uniformly random.
"""

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

Words = npt.NDArray[np.uint64]

_CHUNK = 2**16  # numbers that are masked at a time: half a megabyte stays in a cache
_ZEROS = bytes(8 * _CHUNK)


def ring_bytes(users: int, largest: int) -> int:
    """Return how many bytes of a number hold the signed sum of this many users."""
    size = ((users * largest).bit_length() + 1 + 7) // 8
    if size > 8:
        raise ValueError(f"Sums of {users} integers of size {largest} do not fit into 64 bits.")
    return size


def add_mask_(total: Words, key: bytes, sign: int) -> None:
    """Add the mask of a key to the vector, or subtract it where the sign is -1. A key makes one mask, ever."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    buffer = bytearray(8 * min(_CHUNK, len(total)))
    for first in range(0, len(total), _CHUNK):
        part = total[first : first + _CHUNK]
        stream.update_into(memoryview(_ZEROS)[: 8 * len(part)], buffer)
        mask = np.frombuffer(buffer, dtype="<u8", count=len(part))
        if sign > 0:
            np.add(part, mask, out=part)
        else:
            np.subtract(part, mask, out=part)


def key_stream(key: bytes, size: int) -> bytes:
    """Return this many bytes of a key's stream."""
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(size))


def packed(words: Words, size: int) -> bytes:
    """Return the lowest bytes of every number, little-endian."""
    return words.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :size].tobytes()


def add_packed_(total: Words, data: memoryview, size: int) -> None:
    """Add numbers of which the lowest bytes are given, modulo 2^(8 size)."""
    octets = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
    wide = np.zeros((min(_CHUNK, len(octets)), 8), dtype=np.uint8)
    for first in range(0, len(octets), _CHUNK):
        part = octets[first : first + _CHUNK]
        wide[: len(part), :size] = part
        total[first : first + _CHUNK] += wide[: len(part)].view("<u8").reshape(-1)


def signed(total: Words, size: int) -> npt.NDArray[np.int64]:
    """Return the numbers modulo 2^(8 size) that lie around 0."""
    unused = np.int64(64 - 8 * size)
    return (total.view(np.int64) << unused) >> unused
