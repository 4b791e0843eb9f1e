"""Lower bounds on epsilon from one run with many canaries: what guesses about fair coins say about a mechanism.

m canaries are in the population or not, each by a fair coin of its own. Whoever sees the releases guesses some of the
coins and abstains from the others. The better the guesses, the less private the mechanism. Two tests say how unlikely
so many correct guesses are if the mechanism keeps its promise:

- `binomial_p_value`: the promise is (epsilon, delta) (Steinke, Nasr and Jagielski 2023, theorem 5.2). Given everything
  else, a guess is right with probability at most e^epsilon / (1 + e^epsilon), so the number of correct ones is at most
  binomial, but for 2 m delta.
- `exceeds_curve`: the promise is a whole trade-off curve f, that is, delta at every epsilon (Mahloujifar, Melis and
  Chaudhuri 2024, algorithm 3). It knows more about the mechanism, so it finds much more. Of the canaries that are
  guessed, let r be the probability that one is guessed correctly and h that it is guessed wrongly, both summed over the
  outcomes with at least i correct guesses; f-DP says h >= g(r) with g the inverse of 1 - f.

Guarantees: where the promise holds, each test rejects with a probability of at most `significance`, whatever the
canaries and the guesses are. The number of guesses must not depend on the coins: several numbers may be fixed in
advance, and `significance` is divided among them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri
from scipy.stats import binom

Floats = npt.NDArray[np.float64]
# Returns the least probability of a wrong guess where a correct one has the given probability: the g of the curve.
Floor = Callable[[float], float]

_SHARES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)  # of the canaries that are guessed
_LARGEST_EPSILON = 200.0
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Guesses:
    """How many coins were guessed, and how many of them correctly."""

    made: int
    correct: int


def ranked_guesses(odds: Floats, coins: npt.NDArray[np.bool_]) -> tuple[Guesses, ...]:
    """Return guesses for several fixed shares of the canaries, those furthest from the median first.

    `odds` are higher for canaries that are more likely to be there. Those above the median are guessed to be there: the
    coins are fair, and a mechanism with a fault need not have its odds around 0.
    """
    centred = odds - np.median(odds)
    order = np.argsort(-np.abs(centred), kind="stable")
    correct = np.cumsum(((centred > 0) == coins)[order])
    numbers = sorted({max(1, round(share * len(coins))) for share in _SHARES})
    return tuple(Guesses(number, int(correct[number - 1])) for number in numbers)


def binomial_p_value(guesses: Guesses, canaries: int, epsilon: float, delta: float) -> float:
    """Return a bound on the probability of so many correct guesses under (epsilon, delta)."""
    right = 1 / (1 + math.exp(-epsilon))
    beta = float(binom.sf(guesses.correct - 1, guesses.made, right))
    if delta == 0 or guesses.correct == 0:
        return min(beta, 1.0)
    fewer = np.arange(1, guesses.correct + 1)
    between = binom.sf(guesses.correct - fewer - 1, guesses.made, right) - beta
    return min(beta + 2 * canaries * delta * float(np.max(between / fewer)), 1.0)


def binomial_epsilon(guesses: Sequence[Guesses], canaries: int, delta: float, significance: float = 0.05) -> float:
    """Return the lower bound on epsilon at this delta that the guesses prove, of whatever mechanism; 0 if none."""
    level = significance / len(guesses)

    def refuted(epsilon: float) -> bool:
        return any(binomial_p_value(guess, canaries, epsilon, delta) <= level for guess in guesses)

    return largest(refuted, _LARGEST_EPSILON)


def largest(holds: Callable[[float], bool], most: float, tolerance: float = _TOLERANCE) -> float:
    """Return where a property that holds up to some number ends, from below, by bisection; 0 where it never holds."""
    low, high = 0.0, min(1.0, most)
    while high < most and holds(high):
        low, high = high, min(2 * high, most)
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def exceeds_curve(guesses: Guesses, canaries: int, floor: Floor, significance: float) -> bool:
    """Return whether so many correct guesses have a probability below `significance` under a trade-off curve.

    It follows the sums r and h of the module's docstring from the outcomes with this many correct guesses down to all
    outcomes, and assumes that the first have the probability `significance`. Where r + h would then have to be more
    than the share of canaries that are guessed, which it is over all outcomes, they have less.
    """
    made, correct = guesses.made, guesses.correct
    r, h = significance * correct / canaries, significance * (made - correct) / canaries
    for i in range(correct - 1, -1, -1):
        more = max(h, floor(r))
        if more == h:  # nothing changes any more
            break
        r, h = min(r + i / (made - i) * (more - h), 1.0), more
    return r + h > made / canaries


def gaussian_floor(mu: float) -> Floor:
    """Return the curve of a Gaussian with noise 1/mu: f(a) = Phi(Phi^-1(1 - a) - mu)."""

    def floor(right: float) -> float:
        return float(ndtr(ndtri(right) - mu))

    return floor


def curve_floor(epsilons: Floats, deltas: Floats) -> Floor:
    """Return the curve of a mechanism that is (epsilon, delta) private for each of these pairs.

    f(a) >= max(1 - delta - e^epsilon a, e^-epsilon (1 - delta - a)), so a correct guess of probability r needs a wrong
    one of at least max(e^-epsilon (r - delta), 1 - delta - e^epsilon (1 - r)). Fewer pairs promise less, which is safe.
    """
    up, down = np.exp(epsilons), np.exp(-epsilons)

    def floor(right: float) -> float:
        least = max(np.max(down * (right - deltas)), np.max(1 - deltas - up * (1 - right)))
        return max(float(least), 0.0)

    return floor
