"""Exact draws of the discrete Gaussian, P(n) proportional to exp(-n^2 / 2 std^2), from the system's generator.

The algorithm is that of Canonne, Kamath and Steinke (2020): a discrete Laplace is proposed, and accepted with
probability exp(-(|y| - std^2/t)^2 / 2 std^2).

Guarantees: the draws have exactly this distribution for the std given, a float64, if the generator's bits are uniform.
Rounding never decides a draw: a coin of probability exp(-x) compares a uniform number of 64 random bits with a float64
of known error. The few coins that fall within that error are decided in decimal arithmetic, with as many further random
bits as they need.
"""

import decimal
import math
import os
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# The relative error of exp(-x) is below this for every x that occurs here.
_ERROR = 2.0**-40


def discrete_gaussian(std: float, size: int) -> Integers:
    """Return `size` draws; std is between 1 and 2^57."""
    if not 1 <= std <= 2.0**57:
        raise ValueError(f"Expected 1 <= std={std:g} <= 2^57")
    scale = math.floor(std) + 1
    found: list[Integers] = []
    missing = size
    while missing > 0:
        proposed = _discrete_laplace(scale, 2 * missing + 16)
        found.append(proposed[_accepted(proposed, std, scale)][:missing])
        missing -= len(found[-1])
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _accepted(proposed: Integers, std: float, scale: int) -> Bools:
    """Return which proposals become draws."""
    variance = Fraction(std) ** 2
    center = variance / scale

    def exact(place: int) -> Fraction:
        return (abs(int(proposed[place])) - center) ** 2 / (2 * variance)

    return _coins(((np.abs(proposed) - float(center)) / std) ** 2 / 2, exact)


def _discrete_laplace(scale: int, size: int) -> Integers:
    """Return at most `size` draws with P(n) proportional to exp(-|n| / scale)."""
    rest = _below(scale, size)
    rest = rest[_coins(rest / scale, lambda place: Fraction(int(rest[place]), scale))]
    whole = np.zeros(len(rest), np.int64)
    going = np.arange(len(rest))
    while len(going):
        going = going[_coins(np.ones(len(going)), lambda _: Fraction(1))]
        whole[going] += 1
    values = rest + scale * whole
    negative = (_words(len(values)) >> np.uint64(63)).astype(bool)
    signed: Integers = np.where(negative, -values, values)[~(negative & (values == 0))]
    return signed


def _below(bound: int, size: int) -> Integers:
    """Return uniform integers from 0 to bound - 1: about `size` of them."""
    bits = max((bound - 1).bit_length(), 1)
    words = (_words(2 * size) >> np.uint64(64 - bits)).astype(np.int64)
    return words[words < bound][:size]


def _coins(exponents: npt.NDArray[np.float64], exact: Callable[[int], Fraction]) -> Bools:
    """Return coins that come up True with probability exp(-exponent); `exact` gives the exponent of one of them."""
    words = _words(len(exponents))
    uniform = words.astype(np.float64) * 2.0**-64  # within 2^-53 of it, which the error covers, and 2^-64
    probability = np.exp(-exponents)
    coins: Bools = uniform + 2.0**-64 < probability * (1 - _ERROR)
    unsure = ~coins & ~(uniform > probability * (1 + _ERROR) + 2.0**-64)
    for place in np.flatnonzero(unsure):
        coins[place] = _exact_coin(int(words[place]), exact(int(place)))
    return coins


def _exact_coin(word: int, exponent: Fraction) -> bool:
    """Decide one coin, whose uniform number begins with 64 known bits, by drawing further ones."""
    bits = 64
    while True:
        digits = 40 + bits // 3
        with decimal.localcontext(prec=digits, Emin=-(10**9)) as context:
            quotient = decimal.Decimal(exponent.numerator) / decimal.Decimal(exponent.denominator)
            probability = Fraction((-quotient).exp(context))
        slack = probability * Fraction(10) ** (6 - digits) * max(exponent, Fraction(1))
        if Fraction(word + 1, 2**bits) <= probability - slack:
            return True
        if Fraction(word, 2**bits) >= probability + slack:
            return False
        word, bits = (word << 64) | int.from_bytes(os.urandom(8), "big"), bits + 64


def _words(count: int) -> npt.NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
