"""The terms of the paper's convergence bound, from a run's own statistics.

Theorem 2 (everyone takes part), Theorem 3 (users are sampled with probability q) and Corollary 1 (orders only) bound
kappa / T * sum over t of E|grad f(theta_t)|^2 by a sum of terms. With e = eta_loc T_loc:

    optimization      2 (f(0) - f*) / (eta_glob T)
    global noise      16 H e^2 sigma_glob^2                        20 in Theorem 3
    local noise       32 H e^2 sigma_loc^2                         40
    DP noise          C^2 sigma_dp^2 / xi^2 * sum R_h^2 d_h
    drift             32 L^2 e^4 sum M_h^2                         40
    clipping bias     2 e^2 sum M_h^2 / C_h^2                      5/2 / q
    adaptivity        8 e^2 sum M_h^2 P_h^2                        5 / q
    sampling          -                                            5 e^2 (1 - q) / q sum M_h^2
    update variance   4 e^2 / xi^2 sum R_h^2 M_h^2 / C_h^2 Psi_h   5 / q

Nothing of this is proved for a run: the constants are bounds over all parameters and data in the theorems, and averages
or maxima over what one run saw here. Local clipping, momentum (b1 > 0) and bias correction are outside the theorems; g
below is the gradient that a local step moves by, after local clipping. Where kappa is not positive the theorems say
nothing, and only the sizes of the terms relative to each other can be looked at.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from sottovoce.errors import SottoError
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy
from sottovoce.reports.reading.layers import layer_values, over_steps, private, trust_ratios
from sottovoce.reports.reading.records import Record

WHOLE = "the whole model"  # the one layer of global clipping


@dataclass(frozen=True)
class Estimates:
    """Everything that the terms are made of; None where the run did not note it."""

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
    variances: Mapping[str, float] | None  # Psi_intra + Psi_inter, of layers or of the whole model
    local_variance: float | None  # sigma_loc^2
    global_variance: float | None  # sigma_glob^2
    smoothness: float | None  # L
    first_loss: float | None  # f(0); f* is at least 0
    outside: tuple[str, ...] = ()  # what the run does and the theorems know nothing of

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
class Term:
    """One term of the bound; None where something is not known, 0 where it is not there."""

    name: str
    formula: str  # of Theorem 2
    theorem2: float | None
    theorem3: float | None
    corollary: float | None  # without constants; None also where the corollary has no such term


def estimate(record: Record) -> Estimates | str:
    """Return the estimates of a federated run, or why there are none."""
    optimizer = record.setting("federated.optimizer") or {}
    if optimizer.get("name") != "lamb" or not optimizer.get("xi"):
        return "the theorems are about LAMB with xi > 0 as the server's optimizer, and this run has another one"
    partition, steps = record.partition, record.steps
    if partition is None or not steps:
        return "the run has no checkpoint yet"
    try:
        privacy = Privacy.model_validate(_known(record.setting("privacy"), Privacy))
        participation = Participation.model_validate(_known(record.setting("participation"), Participation))
        mechanism = Mechanism(privacy, participation, partition)
        bounds, sampling_prob = mechanism.clip_norms, mechanism.sampling_prob
    except (ValidationError, SottoError):
        return "its configuration is of another version"
    globally = privacy.clipping == "global"
    local_steps = _mean(private(line).get("local_steps") for line in steps)
    planned = record.setting("federated.local.steps")
    lr = float(record.setting("federated.local.lr"))
    worked = float(planned) if planned else local_steps
    if worked is None:
        return "it works by epochs, and did not note how many local steps they are"
    return Estimates(
        local_lr=lr,
        local_steps=worked,
        central_lr=math.fsum(line["central_lr"] for line in steps) / len(steps),
        steps=len(steps),
        sampling_prob=sampling_prob,
        xi=float(optimizer["xi"]),
        clip_norm=privacy.clip_norm if bounds is not None else None,
        clip_norms=None
        if bounds is None
        else dict(zip([WHOLE] if globally else partition.layers, bounds, strict=True)),
        sigma_dp=privacy.sigma_dp if privacy.clip_norm else 0.0,
        sizes=record.layer_sizes,
        trust={layer: max(values) for layer, values in over_steps(record, trust_ratios).items()},
        gradients=_largest(record, "gradient_norm"),
        variances=_psi(record, whole=globally),
        local_variance=_mean(private(line).get("local_variance") for line in steps),
        global_variance=_global_variance(record, lr * worked),
        smoothness=_mean(private(line).get("smoothness") for line in steps),
        first_loss=next((loss for line in steps if (loss := _number(private(line).get("loss"))) is not None), None),
        outside=_outside(record, optimizer),
    )


def _outside(record: Record, optimizer: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the run does and the theorems know nothing of."""
    clip, pull = record.setting("federated.local.gradient_clip"), record.setting("federated.local.rule.mu")
    return (
        *([f"momentum (b1 = {optimizer['b1']:g})"] if optimizer.get("b1") else []),
        *(["bias correction"] if optimizer.get("bias_correction") else []),
        *([f"local clipping to {clip:g}"] if clip is not None else []),
        *([f"FedProx (mu = {pull:g})"] if pull else []),
    )


def _known(section: Any, model: type[BaseModel]) -> dict[str, Any]:
    """Return the keys of a section that this version knows."""
    return {key: value for key, value in (section or {}).items() if key in model.model_fields}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _mean(values: Any) -> float | None:
    known = [number for value in values if (number := _number(value)) is not None]
    return math.fsum(known) / len(known) if known else None


def _largest(record: Record, name: str) -> dict[str, float] | None:
    """Return the largest value over steps of every layer; None where no step has it."""
    values = over_steps(record, lambda line: layer_values(line, name))
    return {layer: max(ones) for layer, ones in values.items()} or None


def _global_variance(record: Record, progress: float) -> float | None:
    """Return sigma_glob^2 in units of gradients: sum_h E|Delta_h|^2 * spread_h / (eta_loc T_loc)^2, mean over steps."""
    found = []
    for line in record.steps:
        means, stds = layer_values(line, "delta_norm"), layer_values(line, "delta_norm_std")
        spread = layer_values(line, "user_spread")
        if spread:
            apart = math.fsum((means[layer] ** 2 + stds[layer] ** 2) * spread[layer] for layer in spread)
            found.append(apart / progress**2)
    return _mean(found)


def _psi(record: Record, *, whole: bool) -> dict[str, float] | None:
    """Return Psi_intra + Psi_inter of every layer, or of the whole model, mean over steps.

    A user comes with one draw of its batches, so that the variance of |Delta_h| over the users of a step is, by the law
    of total variance, the sum of both: E_k Var_batches + Var_k E_batches. One visit cannot tell them apart, and the
    bound needs only their sum.
    """
    totals: dict[str, list[float]] = {}
    for line in record.steps:
        std = _number(private(line).get("delta_norm_std"))
        stds = {WHOLE: std} if whole and std is not None else {} if whole else layer_values(line, "delta_norm_std")
        for layer, one in stds.items():
            totals.setdefault(layer, []).append(one**2)
    return {layer: math.fsum(values) / len(values) for layer, values in totals.items()} or None


def terms(found: Estimates) -> list[Term]:
    """Return every term of the bounds."""
    e2, q, h, xi2 = found.progress**2, found.sampling_prob, len(found.trust), found.xi**2
    rate = found.local_steps / found.steps
    squares = None if found.gradients is None else {layer: norm**2 for layer, norm in found.gradients.items()}
    gradients = None if squares is None else math.fsum(squares.values())
    drift = None if gradients is None or found.smoothness is None else found.smoothness**2 * gradients
    adapted = None if squares is None else math.fsum(one * found.scaling[layer] ** 2 for layer, one in squares.items())
    released = math.fsum(ratio**2 * found.sizes[layer] for layer, ratio in found.trust.items())
    noise = ((found.clip_norm or 0.0) * found.sigma_dp) ** 2 * released
    start = None if found.first_loss is None else 2 * found.first_loss / (found.central_lr * found.steps)
    variance = _over_bounds(found, squares, found.variances)
    return [
        Term("optimization", "2 (f(0) − f*) / (η<sub>glob</sub> T)", start, start, found.steps**-0.5),
        _term(
            "global update noise", "16 H e² σ<sub>glob</sub>²", found.global_variance, 16 * h * e2, 20 * h * e2, rate
        ),
        _term("local update noise", "32 H e² σ<sub>loc</sub>²", found.local_variance, 32 * h * e2, 40 * h * e2, rate),
        _term("DP noise", "C² σ<sub>DP</sub>² / ξ² · Σ R² d", noise, 1 / xi2, 1 / xi2, 1.0),
        _term("drift of local steps", "32 L² e⁴ Σ M²", drift, 32 * e2**2, 40 * e2**2, None),
        _term("clipping bias", "2 e² Σ M² / C²", _over_bounds(found, squares), 2 * e2, 2.5 * e2 / q, rate),
        _term("adaptive scaling", "8 e² Σ M² P²", adapted, 8 * e2, 5 * e2 / q, None),
        _term("sampling of users", "Theorem 3: 5 e² (1 − q) / q · Σ M²", gradients, 0.0, 5 * e2 * (1 - q) / q, None),
        _term("variance of updates", "4 e² / ξ² · Σ R² M² Ψ / C²", variance, 4 * e2 / xi2, 5 * e2 / (q * xi2), rate),
    ]


def _term(name: str, formula: str, value: float | None, two: float, three: float, order: float | None) -> Term:
    """Return a term that is this value times a factor in each of the theorems and in the corollary."""
    if value is None:
        return Term(name, formula, None, None, None)
    return Term(name, formula, two * value, three * value, None if order is None else order * value)


def _over_bounds(
    found: Estimates, squares: Mapping[str, float] | None, psi: Mapping[str, float] | Literal["one"] | None = "one"
) -> float | None:
    """Return sum M_h^2 / C_h^2, or with Psi: sum R_h^2 M_h^2 Psi_h / C_h^2; 0 without clipping, where C_h is infinite.

    Global clipping has one layer, the whole model: its M^2 is the sum of all, its R the largest.
    """
    if found.clip_norms is None:
        return 0.0
    if squares is None or psi is None:
        return None
    trust: Mapping[str, float] = found.trust
    if WHOLE in found.clip_norms:
        squares, trust = {WHOLE: math.fsum(squares.values())}, {WHOLE: max(found.trust.values())}
    if psi == "one":
        return math.fsum(one / found.clip_norms[layer] ** 2 for layer, one in squares.items())
    return math.fsum(
        trust[layer] ** 2 * one * psi[layer] / found.clip_norms[layer] ** 2 for layer, one in squares.items()
    )
