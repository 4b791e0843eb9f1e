"""The terms of the paper's convergence bound.

Theorem 2 (all users take part in every step), Theorem 3 (users are sampled with probability q) and Corollary 1 (orders
of magnitude only) bound kappa / T * sum over t of E|grad f(theta_t)|^2 by a sum of terms. With e = eta_loc T_loc:

    optimization      2 (f(0) - f*) / (eta_glob T)
    global noise      16 H e^2 sigma_glob^2                        20 in Theorem 3
    local noise       32 H e^2 sigma_loc^2                         40
    DP noise          C^2 sigma_dp^2 / xi^2 * sum R_h^2 d_h
    drift             32 L^2 e^4 sum M_h^2                         40
    clipping bias     2 e^2 sum M_h^2 / C_h^2                      5/2 / q
    adaptivity        8 e^2 sum M_h^2 P_h^2                        5 / q
    sampling          -                                            5 e^2 (1 - q) / q sum M_h^2
    update variance   4 e^2 / xi^2 sum R_h^2 M_h^2 / C_h^2 Psi_h   5 / q

The quantities are estimated from one run (`bound_estimates.py`), while the theorems need bounds over all parameters and
all data, so the terms prove nothing about the run. Where kappa <= 0 the theorems make no statement, and only the
relative sizes of the terms have a meaning.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sottovoce.model.partition import WHOLE


@dataclass(frozen=True)
class BoundEstimates:
    """The quantities in the terms of the bound; None where the run did not log one."""

    local_lr: float
    local_steps: float
    central_lr: float
    steps: int
    sampling_prob: float
    xi: float
    clip_norm: float | None
    clip_norms: Mapping[str, float] | None  # C_h, or C of the whole model; None without clipping
    sigma_dp: float
    sizes: Mapping[str, int]  # d_h
    trust: Mapping[str, float]  # R_h
    gradients: Mapping[str, float] | None  # M_h
    variances: Mapping[str, float] | None  # Psi_intra + Psi_inter, per layer or of the whole model
    local_variance: float | None  # sigma_loc^2
    global_variance: float | None  # sigma_glob^2
    smoothness: float | None  # L
    first_loss: float | None  # f(0); f* is at least 0
    not_covered: tuple[str, ...] = ()  # features of the run that the theorems do not cover

    @property
    def scaling(self) -> dict[str, float]:
        """P_h, the bound on |1 - p| where p = r / (sqrt(v) + xi) lies between 0 and R_h / xi."""
        return {layer: max(1.0, ratio / self.xi - 1) for layer, ratio in self.trust.items()}

    @property
    def progress(self) -> float:
        """e = eta_loc T_loc."""
        return self.local_lr * self.local_steps

    def kappa(self, factor: float) -> float:
        """Return 1 - factor (1 - eta_loc T_loc)^2; the factor is 8 in Theorem 2 and 10 in Theorem 3."""
        return 1 - factor * (1 - self.progress) ** 2


@dataclass(frozen=True)
class BoundTerm:
    """One term of the bound; a value is None where a quantity in it is unknown, 0 where the theorem lacks the term."""

    name: str
    formula: str  # in Theorem 2
    theorem2: float | None
    theorem3: float | None
    corollary: float | None  # without constants; None also where the corollary lacks the term


def bound_terms(estimates: BoundEstimates) -> list[BoundTerm]:
    """Return every term of the bounds."""
    e2, q, h, xi2 = estimates.progress**2, estimates.sampling_prob, len(estimates.trust), estimates.xi**2
    rate = estimates.local_steps / estimates.steps
    squares = None if estimates.gradients is None else {layer: m**2 for layer, m in estimates.gradients.items()}
    gradients = None if squares is None else math.fsum(squares.values())
    drift = None if gradients is None or estimates.smoothness is None else estimates.smoothness**2 * gradients
    scaling = estimates.scaling
    adapted = None if squares is None else math.fsum(m2 * scaling[layer] ** 2 for layer, m2 in squares.items())
    return [
        _optimization(estimates),
        _term(
            "global update noise",
            "16 H e² σ<sub>glob</sub>²",
            estimates.global_variance,
            theorem2=16 * h * e2,
            theorem3=20 * h * e2,
            corollary=rate,
        ),
        _term(
            "local update noise",
            "32 H e² σ<sub>loc</sub>²",
            estimates.local_variance,
            theorem2=32 * h * e2,
            theorem3=40 * h * e2,
            corollary=rate,
        ),
        _term(
            "DP noise",
            "C² σ<sub>DP</sub>² / ξ² · Σ R² d",
            _released_noise(estimates),
            theorem2=1 / xi2,
            theorem3=1 / xi2,
            corollary=1.0,
        ),
        _term("drift of local steps", "32 L² e⁴ Σ M²", drift, theorem2=32 * e2**2, theorem3=40 * e2**2),
        _term(
            "clipping bias",
            "2 e² Σ M² / C²",
            _clipping_bias(estimates, squares),
            theorem2=2 * e2,
            theorem3=2.5 * e2 / q,
            corollary=rate,
        ),
        _term("adaptive scaling", "8 e² Σ M² P²", adapted, theorem2=8 * e2, theorem3=5 * e2 / q),
        _term(
            "sampling of users",
            "Theorem 3: 5 e² (1 − q) / q · Σ M²",
            gradients,
            theorem2=0.0,
            theorem3=5 * e2 * (1 - q) / q,
        ),
        _term(
            "variance of updates",
            "4 e² / ξ² · Σ R² M² Ψ / C²",
            _update_variance(estimates, squares),
            theorem2=4 * e2 / xi2,
            theorem3=5 * e2 / (q * xi2),
            corollary=rate,
        ),
    ]


def _optimization(estimates: BoundEstimates) -> BoundTerm:
    rate, loss = estimates.central_lr * estimates.steps, estimates.first_loss
    start = None if loss is None else 2 * loss / rate
    return BoundTerm("optimization", "2 (f(0) − f*) / (η<sub>glob</sub> T)", start, start, estimates.steps**-0.5)


def _released_noise(estimates: BoundEstimates) -> float:
    """Return C^2 sigma_dp^2 * sum R_h^2 d_h."""
    scaled = math.fsum(ratio**2 * estimates.sizes[layer] for layer, ratio in estimates.trust.items())
    return ((estimates.clip_norm or 0.0) * estimates.sigma_dp) ** 2 * scaled


def _term(
    name: str,
    formula: str,
    value: float | None,
    *,
    theorem2: float,
    theorem3: float,
    corollary: float | None = None,
) -> BoundTerm:
    """Return a term that is `value` times a factor in each theorem and, unless None, in the corollary."""
    if value is None:
        return BoundTerm(name, formula, None, None, None)
    order = None if corollary is None else corollary * value
    return BoundTerm(name, formula, theorem2 * value, theorem3 * value, order)


def _clipping_bias(estimates: BoundEstimates, squares: Mapping[str, float] | None) -> float | None:
    """Return sum M_h^2 / C_h^2; 0 without clipping, where C_h is infinite."""
    if estimates.clip_norms is None:
        return 0.0
    if squares is None:
        return None
    own = _clipped_squares(estimates.clip_norms, squares)
    return math.fsum(m2 / estimates.clip_norms[layer] ** 2 for layer, m2 in own.items())


def _update_variance(estimates: BoundEstimates, squares: Mapping[str, float] | None) -> float | None:
    """Return sum R_h^2 M_h^2 Psi_h / C_h^2; 0 without clipping, where C_h is infinite."""
    bounds, psi = estimates.clip_norms, estimates.variances
    if bounds is None:
        return 0.0
    if squares is None or psi is None:
        return None
    trust = {WHOLE: max(estimates.trust.values())} if WHOLE in bounds else estimates.trust
    own = _clipped_squares(bounds, squares)
    return math.fsum(trust[layer] ** 2 * m2 * psi[layer] / bounds[layer] ** 2 for layer, m2 in own.items())


def _clipped_squares(clip_norms: Mapping[str, float], squares: Mapping[str, float]) -> Mapping[str, float]:
    """Return M_h^2 for the layers of the clipping: under global clipping, the sum over all layers."""
    return {WHOLE: math.fsum(squares.values())} if WHOLE in clip_norms else squares
