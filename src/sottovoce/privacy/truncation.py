"""Poisson cohorts with a largest size (`participation.cap`), and what that costs.

Every user joins with probability q. Where more than `cap` users joined, a random part of them, `cap` in number, takes
part. So the time of a step is bounded. But then users displace each other, and one user may move the sum by 2 C.

Let D be a population of at most K users, and D' the same with one more user x. In both, the others who join are the
same random set A. Call a step cut if A has `cap` or more members: its probability is psi = P(Binomial(|D|, q) >= cap),
in both populations, whatever happened in earlier steps. In a step that is not cut neither population's cohort is
truncated, with or without x, so it is a release of plain Poisson sampling. Even if everyone were told which steps are
cut, therefore: with probability (1 - psi)^T none of T steps is, and the releases are (epsilon, delta)-private by the
accounting of plain Poisson sampling; in the remaining cases they may be anything. Together they are
(epsilon, delta + T psi)-private. (The known bound delta + T (1 + e^epsilon) psi compares distributions with and without
the cap, in Chua et al. 2024; comparing the two populations step by step spares the factor.)

psi grows with the number of users. So the stated K must not be below it, which is checked before every step.
"""

import math

_ROUNDING = 2.0**-50  # of a few float64 operations, relative


def cut_probability(population: int, sampling_prob: float, cap: int) -> float:
    """Return an upper bound on P(Binomial(population, sampling_prob) >= cap), close to it above the mean; 1 below.

    The first term is below sqrt(K / (2 pi c (K - c))) e^(-K KL(c/K | q)), by Stirling's bounds, and every later term
    is smaller by a factor of (K - c) q / ((c + 1) (1 - q)) or less.
    """
    if cap > population:
        return 0.0
    mean = population * sampling_prob
    if cap <= mean or sampling_prob >= 1:
        return 1.0
    if cap == population:
        return math.exp(population * math.log(sampling_prob) * (1 - _ROUNDING))
    above, others = cap - mean, population - cap
    first = cap * math.log1p(above / mean)
    second = others * math.log1p(-above / (population * (1 - sampling_prob)))
    # The two almost cancel. Each is off by the rounding of its parts: that of the mean counts `above` times.
    divergence = first + second - 16 * _ROUNDING * (first - second + population * sampling_prob)
    term = math.sqrt(population / (2 * math.pi * cap * others)) * math.exp(-divergence)
    ratio = others * sampling_prob / ((cap + 1) * (1 - sampling_prob))
    return min(1.0, term / (1 - ratio) * (1 + 2.0**-40)) if ratio < 1 else 1.0


def least_cap(population: int, sampling_prob: float, probability: float) -> int:
    """Return the smallest cap whose bound on the probability of a cut is at most this."""
    low, high = math.ceil(population * sampling_prob), population + 1  # the latter never cuts
    while low < high:
        middle = (low + high) // 2
        within = cut_probability(population, sampling_prob, middle) <= probability
        low, high = (low, middle) if within else (middle + 1, high)
    return low
