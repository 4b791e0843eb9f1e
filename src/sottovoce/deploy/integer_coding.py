"""Clipped integers in fewer bytes, without loss: a Rice code with one parameter for every 128 numbers.

A clipped update has D integers whose squares add up to at most 2^76, so a typical one has log2(2^38 / sqrt(D)) bits,
and the upper half of an int64 is empty. The lower bits of a user's numbers are as good as random. What is left to save
is that neighbours are of a similar size, so the code has two parts for every number: r low bits as they are, and the
rest in unary. With u = 2 v for v >= 0 and -2 v - 1 below,

    r = floor(log2(mean of u))  of the block,  q = u >> r in unary,  the r lowest bits of u.

A block's r costs one byte. No r that is one larger or smaller would be cheaper on average, and the q of a block add up
to less than 256, so no input makes the code long.

Guarantees:
- `decode(encode(v), len(v), largest) == v` for all |v| <= largest <= 2^61;
- one vector has one code: `decode` refuses every other string of bytes, with an `IntegerCodingError`;
- `decode` takes whatever somebody sends. It never makes more than `length` numbers, and its time and memory follow
  from `length` and from the size of the input, of which it refuses more than `most_bytes(length, largest)`.

The format: segments of 2^16 numbers, each with its blocks' codes (0 where all are zero, else r + 1, one byte each), the
number of bytes of the unary part (4 bytes, little-endian), the unary part, and the low bits: for every r that occurs,
from the smallest, whole bytes first (r // 8 of each number, little-endian), then the r % 8 bits above them.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sottovoce.errors import DataError

Integers = npt.NDArray[np.int64]
_Unsigned = npt.NDArray[np.uint64]
_Octets = npt.NDArray[np.uint8]

LARGEST_CODED = 2**61
_BLOCK = 128
_BLOCK_BITS = 7
_SEGMENT = 2**16
_COUNT_BYTES = 4
_VERSION = b"\x01"
_ABOVE_ENTROPY = 0.135  # bits a number that a Rice code takes more than an ideal one, for Gaussian noise


class IntegerCodingError(DataError):
    """Bytes that are not the code of a vector of this length and range."""


def encode(values: Integers) -> bytes:
    """Return the code of a vector of integers of at most 2^61 in size."""
    parts = [_VERSION]
    for first in range(0, len(values), _SEGMENT):
        parts += _encode_segment(_zigzag(values[first : first + _SEGMENT]))
    return b"".join(parts)


def decode(data: bytes, length: int, largest: int) -> Integers:
    """Return the vector of this length, of integers of at most `largest` in size, that has this code."""
    if not 0 < largest <= LARGEST_CODED:
        raise ValueError(f"Expected 0 < largest={largest} <= 2^61.")
    if len(data) > most_bytes(length, largest):
        raise IntegerCodingError(f"{len(data)} bytes are too many for {length} integers.")
    octets = np.frombuffer(data, dtype=np.uint8)
    if data[:1] != _VERSION:
        raise IntegerCodingError("This is not a code of integers, or of another version.")
    values, place = np.empty(length, dtype=np.int64), 1
    for first in range(0, length, _SEGMENT):
        part = values[first : first + _SEGMENT]
        numbers, place = _decode_segment(octets, place, len(part), largest)
        part[:] = _unzigzag(numbers)
        if int(np.abs(part).max()) > largest:
            raise IntegerCodingError(f"An integer is larger than {largest}.")
    if place != len(octets):
        raise IntegerCodingError(f"{len(octets) - place} bytes are left after {length} integers.")
    return values


def most_bytes(length: int, largest: int) -> int:
    """Return a size in bytes that no code of such a vector exceeds."""
    blocks, segments = -(-length // _BLOCK), -(-length // _SEGMENT)
    unary = length + 2 * _BLOCK * blocks
    low = length * (2 * largest).bit_length()
    return 1 + blocks + segments * (_COUNT_BYTES + 1 + 64) + (unary + low) // 8


def typical_bytes(length: int, norm: float) -> float:
    """Return the size of the code of a vector of this length and norm whose numbers are as Gaussian noise.

    Uneven vectors take less, as users' updates do: by 3 to 8 % where that was measured.
    """
    entropy = math.log2(norm / math.sqrt(length)) + 0.5 * math.log2(2 * math.pi * math.e)
    return 1 + length * (max(entropy, 0.0) + _ABOVE_ENTROPY + 8 / _BLOCK) / 8


def _zigzag(values: Integers) -> _Unsigned:
    """Return 2 v for v >= 0 and -2 v - 1 for others."""
    if len(values) and not -LARGEST_CODED <= int(values.min()) <= int(values.max()) <= LARGEST_CODED:
        raise IntegerCodingError("An update has integers above 2^61.")
    return ((values << 1) ^ (values >> 63)).astype(np.uint64)


def _unzigzag(numbers: _Unsigned) -> Integers:
    signed = numbers.astype(np.int64)
    return (signed >> 1) ^ -(signed & 1)


def _in_blocks(numbers: _Unsigned) -> _Unsigned:
    """Return the numbers in rows of one block each; the last is filled up with 0."""
    blocks = np.zeros((-(-len(numbers) // _BLOCK), _BLOCK), dtype=np.uint64)
    blocks.reshape(-1)[: len(numbers)] = numbers
    return blocks


def _codes(blocks: _Unsigned) -> _Octets:
    """Return the code of every block: 0 where all numbers are 0, else r + 1."""
    rests = (blocks & np.uint64(_BLOCK - 1)).sum(1) >> np.uint64(_BLOCK_BITS)
    means = (blocks >> np.uint64(_BLOCK_BITS)).sum(1) + rests  # rounded down; the sum itself might not fit
    codes = np.zeros(len(means), dtype=np.uint8)
    for shift in (32, 16, 8, 4, 2, 1):
        above = means >= np.uint64(1) << np.uint64(shift)
        codes += (above * shift).astype(np.uint8)
        means = np.where(above, means >> np.uint64(shift), means)
    return np.where(blocks.any(1), codes + np.uint8(1), np.uint8(0))


def _groups(codes: _Octets, length: int) -> Iterator[tuple[int, npt.NDArray[np.intp], int]]:
    """Yield every r > 0 that occurs, from the smallest, the blocks that have it, and how many numbers these are."""
    for code in np.unique(codes).tolist():
        if code > 1:
            rows = np.flatnonzero(codes == code)
            yield code - 1, rows, len(rows) * _BLOCK - _missing(rows, len(codes), length)


def _missing(rows: npt.NDArray[np.intp], blocks: int, length: int) -> int:
    """Return by how many numbers these blocks, in order, fall short of being full: only the last of all can."""
    return blocks * _BLOCK - length if len(rows) and rows[-1] == blocks - 1 else 0


def _shifts(codes: _Octets) -> _Unsigned:
    """Return r of every block, as a column."""
    return (np.maximum(codes, 1) - np.uint8(1)).astype(np.uint64)[:, None]


def _encode_segment(numbers: _Unsigned) -> list[bytes]:
    blocks = _in_blocks(numbers)
    codes = _codes(blocks)
    rows = np.flatnonzero(codes)
    quotients = (blocks >> _shifts(codes))[rows].reshape(-1).astype(np.int64)
    ends = np.cumsum(quotients[: len(quotients) - _missing(rows, len(codes), len(numbers))] + 1)
    bits = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    bits[ends - 1] = 1
    unary = np.packbits(bits).tobytes()
    parts = [codes.tobytes(), len(unary).to_bytes(_COUNT_BYTES, "little"), unary]
    for shift, chosen, count in _groups(codes, len(numbers)):
        whole, rest = divmod(shift, 8)
        octets = blocks[chosen].astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:count]
        parts.append(octets[:, :whole].tobytes())
        if rest:
            parts.append(np.packbits(np.unpackbits(octets[:, whole, None], axis=1)[:, 8 - rest :]).tobytes())
    return parts


def _decode_segment(octets: _Octets, place: int, length: int, largest: int) -> tuple[_Unsigned, int]:
    """Return the numbers of a segment and where the next one begins."""
    codes, place = _take(octets, place, -(-length // _BLOCK))
    if int(codes.max()) > (2 * largest).bit_length():
        raise IntegerCodingError("A block of integers has more bits than its range allows.")
    count, place = _take(octets, place, _COUNT_BYTES)
    size = int.from_bytes(count.tobytes(), "little")
    if size * 8 > length + 2 * _BLOCK * len(codes) + 7:
        raise IntegerCodingError("The unary part of a segment is too long.")
    unary, place = _take(octets, place, size)
    rows = np.flatnonzero(codes)
    missing = _missing(rows, len(codes), length)
    quotients = np.zeros(len(rows) * _BLOCK, dtype=np.uint64)
    quotients[: len(quotients) - missing] = _quotients(unary, len(quotients) - missing)
    blocks = np.zeros((len(codes), _BLOCK), dtype=np.uint64)
    blocks[rows] = quotients.reshape(-1, _BLOCK)
    shifts = _shifts(codes)
    if bool((blocks > np.uint64(2 * largest) >> shifts).any()):  # before bits are lost
        raise IntegerCodingError(f"An integer is larger than {largest}.")
    blocks <<= shifts
    for shift, chosen, numbers in _groups(codes, length):
        low, place = _low_bits(octets, place, shift, numbers)
        blocks[chosen] |= _in_blocks(low)
    if not np.array_equal(_codes(blocks), codes):
        raise IntegerCodingError("Integers are not in their shortest code.")
    return blocks.reshape(-1)[:length], place


def _quotients(unary: _Octets, count: int) -> _Unsigned:
    """Return this many numbers that are written in unary."""
    bits = np.unpackbits(unary)
    ends = np.flatnonzero(bits)
    used = int(ends[-1]) + 1 if len(ends) else 0
    if len(ends) != count or len(unary) != -(-used // 8):
        raise IntegerCodingError("The unary part of a segment does not have as many numbers as the segment.")
    return np.diff(ends, prepend=-1).astype(np.uint64) - np.uint64(1)


def _low_bits(octets: _Octets, place: int, shift: int, count: int) -> tuple[_Unsigned, int]:
    """Return the lowest bits of this many numbers and where the next part begins."""
    whole, rest = divmod(shift, 8)
    low = np.zeros((count, 8), dtype=np.uint8)
    taken, place = _take(octets, place, count * whole)
    low[:, :whole] = taken.reshape(count, whole)
    if rest:
        packed, place = _take(octets, place, -(-count * rest // 8))
        bits = np.unpackbits(packed)
        if bits[count * rest :].any():
            raise IntegerCodingError("The bits that fill up a byte are not zero.")
        low[:, whole] = np.packbits(bits[: count * rest].reshape(count, rest), axis=1)[:, 0] >> np.uint8(8 - rest)
    return low.view("<u8").reshape(-1).astype(np.uint64), place


def _take(octets: _Octets, place: int, count: int) -> tuple[_Octets, int]:
    """Return the next bytes and where they end."""
    if place + count > len(octets):
        raise IntegerCodingError("The code of a vector of integers ends too soon.")
    return octets[place : place + count], place + count
