"""Exact draws of the discrete Gaussian, P(n) proportional to f(n) = exp(-n^2 / 2 std^2), from the kernel's generator.

Guarantee: the draws have exactly this distribution for the std given, a float64, if the generator's bits are uniform.
float64 decides a comparison only where the two sides lie further apart than all rounding errors, so that exact
arithmetic would decide the same.

**Method.** Rejection under the curve y = c f(n), where c is an integer and the area is cut into 2^16 cells. The
integers from -T to T - 1 are cut into blocks of w = 2^shift. A cell is one block times one unit of height: the integers
of the block, and y from `level` to level + 1. A draw chooses a cell by 16 random bits, n uniformly in its block by
`shift` bits, and y = level + U with U uniform in [0, 1). It accepts n if y < c f(n). A rejected draw starts again.

**Proof.** A block has a cell for every level 0, 1, ... that c f reaches in the block. So one draw gives n with
probability

    sum over levels of 2^-16 / w * P(level + U < c f(n))  =  2^-16 / w * c f(n),

because the terms are 1 below the curve, 0 above it, and c f(n) - level where the curve crosses the cell. Beyond the
blocks, each side has m tail cells, whose area is spread over steps g = 0, 1, ... of v = 16 w integers each: a draw
takes step g with probability 2^-(g+1), n uniformly in it, and accepts n with probability c f(n) / h, where
h = m 2^-(g+1) w / v. So one draw gives n with probability

    m 2^-16 * 2^-(g+1) / v * c f(n) / h  =  2^-16 / w * c f(n).

Every integer has f(n) times the same constant. It remains that c f <= h in every step of the tail: at its beginning, T,
m is large enough for that, and f falls at least by half in every step, because T v >= 0.7 std^2 > ln(2) std^2. On the
negative side, n = -1 - k takes the place of k = 0, 1, ...; f(n) = f(k + 1) has the same bounds in every block and step.
Cells that are left over reject.

**Exactness.** About 97 % of the cells lie below the curve as a whole. They accept without a look at y, and come first
in the table. For the others, U with 64 bits and f(n) in float64 are compared with a margin beyond all rounding errors.
Within the margin, f(n) is enclosed between two decimal numbers, and U gets as many further random bits as the
comparison needs. The bounds of f that cells are chosen by are decimal, too, and rounded to the safe side.

**Random bits** come from the operating system's generator (`os.urandom`), about 8 bytes a draw. Nothing in this process
holds a generator's state that could leak, be copied by a fork or be seeded badly. That is worth its time, two thirds of
the whole. Draws that must be repeated take theirs from a secret key (`randomness.KeyedRandomness`) instead.
"""

import bisect
import decimal
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Octets = Callable[[int], bytes]

_CELL_BITS = 16
_CELLS = 1 << _CELL_BITS
_REACH = 6  # the tail begins this many standard deviations out
_TAIL_SHIFT = 4  # a step of the tail is this many doublings wider than a block
_CHUNK = 1 << 15  # draws at a time: the arrays stay in the cache
# A coin compares level + U with height * exp(-x). Both are known to this share of level + 1 + height * exp(-x): x is
# computed in five roundings, so exp(-x) is within 2^-45 where x < 50, and the product is next to nothing beyond.
_ERROR = 2.0**-40


def discrete_gaussian(std: float, size: int, octets: Octets = os.urandom) -> Integers:
    """Return `size` draws; std is between 1 and 2^57. `octets` returns so many random bytes."""
    if not 1 <= std <= 2.0**57:
        raise ValueError(f"Expected 1 <= std={std:g} <= 2^57")
    cells = _cut_into_cells(std, _REACH)
    draws = np.empty(size, np.int64)
    rejected = [start + _propose(draws[start : start + _CHUNK], cells, octets) for start in range(0, size, _CHUNK)]
    places = np.concatenate(rejected) if rejected else np.zeros(0, np.int64)
    if len(places):
        draws[places] = discrete_gaussian(std, len(places), octets)
    return draws


@dataclass(frozen=True)
class _Cells:
    """The cells of one std: those below the curve first, then those that it crosses, then the tails', then rejects."""

    std: float
    height: int  # c
    shift: int  # a block is 2^shift integers
    blocks: int  # on each side
    starts: Integers  # the first integer of the cell's block; of every cell up to `crossed`, and 0 beyond
    levels: Floats  # likewise
    below: int  # the number of cells that lie below the curve
    crossed: int  # the number of these and of the cells that the curve may cross
    tail: int  # m, the number of tail cells on each side, a power of 2

    def exponent(self, n: int) -> Fraction:
        """Return n^2 / 2 std^2."""
        return Fraction(n * n, 2) / Fraction(self.std) ** 2


@lru_cache(maxsize=4)  # it takes 30 ms and a megabyte; a run has one std, or two
def _cut_into_cells(std: float, reach: int) -> _Cells:
    """Return the cells of a std. The tail begins at `reach` standard deviations, 3 or more."""
    shift = max(math.frexp(std)[1] - 6, 0)  # at least 32 blocks in a standard deviation, or blocks of one integer
    blocks = math.ceil(reach * Fraction(std) / 2**shift)
    variance = Fraction(std) ** 2
    if 10 * (blocks << shift << shift << _TAIL_SHIFT) < 7 * variance:
        raise ValueError(f"Expected reach={reach} >= 3")
    bounds = [_exp(Fraction((block << shift) ** 2, 2) / variance) for block in range(blocks + 1)]

    def levels_below(height: int) -> list[int]:
        return [math.floor(height * least) for least, _ in bounds[1:]]

    def levels_reached(height: int) -> list[int]:
        return [math.ceil(height * most) for _, most in bounds[:-1]]

    def tail_cells(height: int) -> int:
        enough = math.ceil(height * bounds[-1][1] * (2 << _TAIL_SHIFT))
        return 1 << (enough - 1).bit_length()

    def all_cells(height: int) -> int:
        return 2 * (sum(levels_reached(height)) + tail_cells(height))

    height = bisect.bisect_right(range(_CELLS), _CELLS, key=all_cells) - 1  # the largest that fits
    below = _cells_between([0] * blocks, levels_below(height))
    edge = _cells_between(levels_below(height), levels_reached(height))
    table = np.zeros((2, _CELLS), np.int64)
    table[:, : below.shape[1]] = below
    table[:, below.shape[1] : below.shape[1] + edge.shape[1]] = edge
    return _Cells(
        std=std,
        height=height,
        shift=shift,
        blocks=blocks,
        starts=table[0] << shift,
        levels=table[1].astype(np.float64),
        below=below.shape[1],
        crossed=below.shape[1] + edge.shape[1],
        tail=tail_cells(height),
    )


def _cells_between(first: list[int], last: list[int]) -> Integers:
    """Return block and level of the cells of these levels, on both sides; `last` is no longer among them."""
    pairs = [(block, level) for block, ends in enumerate(zip(first, last, strict=True)) for level in range(*ends)]
    block, level = np.array(pairs, np.int64).reshape(-1, 2).T
    return np.stack([np.concatenate([block, ~block]), np.tile(level, 2)])  # ~block is -1 - block


def _propose(draws: Integers, cells: _Cells, octets: Octets = os.urandom) -> Integers:
    """Fill `draws` with proposals; return the places of those that are rejected."""
    words = _words(len(draws), octets)
    chosen = (words >> np.uint64(64 - _CELL_BITS)).view(np.int64)
    if cells.shift <= 64 - _CELL_BITS:  # the lowest bits, which did not choose the cell
        within = words & np.uint64(2**cells.shift - 1)
    else:
        within = _words(len(draws), octets) >> np.uint64(64 - cells.shift)
    np.take(cells.starts, chosen, out=draws, mode="clip")  # no index is out of range, so nothing is clipped
    draws += within.view(np.int64)

    unsure = np.flatnonzero(chosen >= cells.below)
    numbers = chosen[unsure]
    crossed = numbers < cells.crossed
    accepted = np.zeros(len(unsure), np.bool_)
    accepted[crossed] = _below_curve(draws[unsure[crossed]], cells.levels[numbers[crossed]], cells, octets)
    for place in np.flatnonzero((numbers >= cells.crossed) & (numbers < cells.crossed + 2 * cells.tail)):
        n = _tail(int(numbers[place]), cells, octets)
        if n is not None:
            draws[unsure[place]], accepted[place] = n, True
    return unsure[~accepted]


def _below_curve(proposed: Integers, levels: Floats, cells: _Cells, octets: Octets) -> Bools:
    """Return which proposals are accepted: level + U < c f(n)."""

    def exact(place: int) -> Fraction:
        return cells.exponent(int(proposed[place]))

    return _coins((proposed / cells.std) ** 2 / 2, exact, cells.height, levels, octets)


def _tail(cell: int, cells: _Cells, octets: Octets) -> int | None:
    """Return a draw from beyond the blocks, or None where it is rejected."""
    step = 0
    while int.from_bytes(octets(1), "big") & 1:
        step += 1
    width = cells.shift + _TAIL_SHIFT
    distance = (cells.blocks << cells.shift) + (step << width) + int.from_bytes(octets(16), "big") % 2**width
    n = distance if cell < cells.crossed + cells.tail else -1 - distance
    exponent = cells.exponent(n)
    ratio = cells.height * 2.0 ** (step + 1 + _TAIL_SHIFT) / cells.tail  # c / h, exact: m is a power of 2
    return n if _coins(np.array([float(exponent)]), lambda _: exponent, ratio, octets=octets)[0] else None


def _coins(
    exponents: Floats,
    exact: Callable[[int], Fraction],
    height: float = 1.0,
    levels: Floats | float = 0.0,
    octets: Octets = os.urandom,
) -> Bools:
    """Return coins that come up True where level + U < height * exp(-exponent), U uniform in [0, 1).

    `exact` gives the exponent of one of them.
    """
    words = _words(len(exponents), octets)
    curve = height * np.exp(-exponents)
    room = curve - (levels + words.astype(np.float64) * 2.0**-64)
    coins: Bools = room > 0
    for place in np.flatnonzero(np.abs(room) <= (levels + 1 + curve) * _ERROR):
        level = int(np.broadcast_to(levels, len(coins))[place])
        coins[place] = _exact_coin(int(words[place]), exact(int(place)), height, level, octets)
    return coins


def _exact_coin(
    word: int, exponent: Fraction, height: float = 1.0, level: int = 0, octets: Octets = os.urandom
) -> bool:
    """Decide whether level + U < height * exp(-exponent); U begins with 64 known bits, and further ones are drawn."""
    bits, scale = 64, Fraction(height)
    while True:
        least, most = _exp(exponent, 40 + bits // 3)
        if level + Fraction(word + 1, 2**bits) <= scale * least:
            return True
        if level + Fraction(word, 2**bits) >= scale * most:
            return False
        word, bits = (word << 64) | int.from_bytes(octets(8), "big"), bits + 64


def _exp(exponent: Fraction, digits: int = 40) -> tuple[Fraction, Fraction]:
    """Return a lower and an upper bound of exp(-exponent), computed with this many decimal digits."""
    if exponent == 0:
        return Fraction(1), Fraction(1)
    with decimal.localcontext(prec=digits, Emin=-(10**9)) as context:
        quotient = decimal.Decimal(exponent.numerator) / decimal.Decimal(exponent.denominator)
        value = Fraction((-quotient).exp(context))
    slack = value * Fraction(10) ** (6 - digits) * max(exponent, Fraction(1))
    return value - slack, value + slack


def _words(count: int, octets: Octets) -> npt.NDArray[np.uint64]:
    return np.frombuffer(octets(8 * count), dtype=np.uint64)
