"""The terms of the paper's convergence bound, estimated from a run's own statistics.

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

These numbers prove nothing about a run. The theorems need bounds over all parameters and all data; the estimates are
means or maxima over one run. The theorems do not cover local clipping, momentum (b1 > 0) or bias correction; here, g is
the gradient that a local step applies, after local clipping. Where kappa <= 0 the theorems make no statement, and only
the relative sizes of the terms have a meaning.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from sottovoce.errors import SottoError
from sottovoce.model.flat import Partition
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy
from sottovoce.reports.reading.layers import diagnostics, layer_values, over_steps, trust_ratios
from sottovoce.reports.reading.records import RunRecord

WHOLE = "the whole model"
"""The name of the only layer under global clipping."""


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


def bound_estimates(record: RunRecord) -> BoundEstimates | str:
    """Return the estimates for a federated run, or the reason why there are none."""
    optimizer = record.setting("federated.optimizer") or {}
    if optimizer.get("name") != "lamb" or not optimizer.get("xi"):
        return "the theorems assume LAMB with xi > 0 as the server optimizer, and this run uses another one"
    if record.trainable is not None:
        return "the estimates assume that all parameters are trained, and this run trains only some"
    if record.partition is None or not record.steps:
        return "the run has no checkpoint yet"
    mechanism = _mechanism(record, record.partition)
    if mechanism is None:
        return "its configuration is from another version"
    local_steps = _local_steps(record)
    if local_steps is None:
        return "its local work is given in epochs, and it did not log the number of local steps"
    return _estimates(record, optimizer, mechanism, local_steps)


def _estimates(
    record: RunRecord, optimizer: Mapping[str, Any], mechanism: Mechanism, local_steps: float
) -> BoundEstimates:
    privacy, lr, steps = mechanism.privacy, float(record.setting("federated.local.lr")), record.steps
    clip_norms = _clip_norms(mechanism)
    losses = (_number(diagnostics(line).get("loss")) for line in steps)
    return BoundEstimates(
        local_lr=lr,
        local_steps=local_steps,
        central_lr=math.fsum(line["central_lr"] for line in steps) / len(steps),
        steps=len(steps),
        sampling_prob=mechanism.sampling_prob,
        xi=float(optimizer["xi"]),
        clip_norm=privacy.clip_norm if clip_norms is not None else None,
        clip_norms=clip_norms,
        sigma_dp=privacy.sigma_dp if privacy.clip_norm else 0.0,
        sizes=record.layer_sizes,
        trust={layer: max(values) for layer, values in over_steps(record, trust_ratios).items()},
        gradients=_largest(record, "gradient_norm"),
        variances=_psi(record, whole=privacy.clipping == "global"),
        local_variance=_mean(diagnostics(line).get("local_variance") for line in steps),
        global_variance=_global_variance(record, lr * local_steps),
        smoothness=_mean(diagnostics(line).get("smoothness") for line in steps),
        first_loss=next((loss for loss in losses if loss is not None), None),
        not_covered=_not_covered(record, optimizer),
    )


def _mechanism(record: RunRecord, partition: Partition) -> Mechanism | None:
    """Return the run's mechanism; None where this version cannot read its configuration."""
    try:
        privacy = Privacy.model_validate(_known(record.setting("privacy"), Privacy))
        participation = Participation.model_validate(_known(record.setting("participation"), Participation))
        mechanism = Mechanism(privacy, participation, partition)
        _ = mechanism.clip_norms, mechanism.sampling_prob  # raises now if the settings do not fit together
    except (ValidationError, SottoError):
        return None
    return mechanism


def _clip_norms(mechanism: Mechanism) -> dict[str, float] | None:
    """Return C_h by layer, or C of the whole model; None without clipping."""
    if mechanism.clip_norms is None:
        return None
    layers = [WHOLE] if mechanism.privacy.clipping == "global" else mechanism.partition.layers
    return dict(zip(layers, mechanism.clip_norms, strict=True))


def _local_steps(record: RunRecord) -> float | None:
    """Return T_loc as configured, or its logged mean where local work is given in epochs; None without either."""
    configured = record.setting("federated.local.steps")
    if configured:
        return float(configured)
    return _mean(diagnostics(line).get("local_steps") for line in record.steps)


def _not_covered(record: RunRecord, optimizer: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the features of the run that the theorems do not cover."""
    clip, mu = record.setting("federated.local.gradient_clip"), record.setting("federated.local.rule.mu")
    return (
        *([f"momentum (b1 = {optimizer['b1']:g})"] if optimizer.get("b1") else []),
        *(["bias correction"] if optimizer.get("bias_correction") else []),
        *([f"local clipping to {clip:g}"] if clip is not None else []),
        *([f"FedProx (mu = {mu:g})"] if mu else []),
    )


def _known(options: Any, model: type[BaseModel]) -> dict[str, Any]:
    """Return the options that this version knows."""
    return {key: value for key, value in (options or {}).items() if key in model.model_fields}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _mean(values: Iterable[Any]) -> float | None:
    """Return the mean of the finite numbers among the values; None without any."""
    known = [number for value in values if (number := _number(value)) is not None]
    return math.fsum(known) / len(known) if known else None


def _largest(record: RunRecord, name: str) -> dict[str, float] | None:
    """Return for every layer the largest value of a diagnostic over the steps; None where no step logged it."""
    by_layer = over_steps(record, lambda line: layer_values(line, name))
    return {layer: max(values) for layer, values in by_layer.items()} or None


def _global_variance(record: RunRecord, progress: float) -> float | None:
    """Return sigma_glob^2 in units of gradients: sum_h E|Delta_h|^2 * spread_h / (eta_loc T_loc)^2, mean over steps."""
    by_step = []
    for line in record.steps:
        means, stds = layer_values(line, "delta_norm"), layer_values(line, "delta_norm_std")
        spread = layer_values(line, "user_spread")
        if spread:
            total = math.fsum((means[layer] ** 2 + stds[layer] ** 2) * spread[layer] for layer in spread)
            by_step.append(total / progress**2)
    return _mean(by_step)


def _psi(record: RunRecord, *, whole: bool) -> dict[str, float] | None:
    """Return Psi_intra + Psi_inter of every layer, or of the whole model, mean over steps.

    Each user of a step draws its batches once. By the law of total variance, the variance of |Delta_h| over the users
    of a step is therefore the sum of both: E_k Var_batches + Var_k E_batches. One visit per user cannot separate them,
    and the bound needs only their sum.
    """
    squares: dict[str, list[float]] = {}
    for line in record.steps:
        for layer, std in (_whole_std(line) if whole else layer_values(line, "delta_norm_std")).items():
            squares.setdefault(layer, []).append(std**2)
    return {layer: math.fsum(values) / len(values) for layer, values in squares.items()} or None


def _whole_std(line: Mapping[str, Any]) -> dict[str, float]:
    std = _number(diagnostics(line).get("delta_norm_std"))
    return {} if std is None else {WHOLE: std}


def bound_terms(estimates: BoundEstimates) -> list[BoundTerm]:
    """Return every term of the bounds."""
    e2, q, h, xi2 = estimates.progress**2, estimates.sampling_prob, len(estimates.trust), estimates.xi**2
    rate = estimates.local_steps / estimates.steps
    squares = None if estimates.gradients is None else {layer: m**2 for layer, m in estimates.gradients.items()}
    gradients = None if squares is None else math.fsum(squares.values())
    drift = None if gradients is None or estimates.smoothness is None else estimates.smoothness**2 * gradients
    scaling = estimates.scaling
    adapted = None if squares is None else math.fsum(m2 * scaling[layer] ** 2 for layer, m2 in squares.items())
    variance = _over_bounds(estimates, squares, estimates.variances)
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
            _over_bounds(estimates, squares),
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
            variance,
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


def _over_bounds(
    estimates: BoundEstimates,
    squares: Mapping[str, float] | None,
    psi: Mapping[str, float] | Literal["one"] | None = "one",
) -> float | None:
    """Return sum M_h^2 / C_h^2, or with Psi: sum R_h^2 M_h^2 Psi_h / C_h^2; 0 without clipping, where C_h is infinite.

    Global clipping has one layer, the whole model: its M^2 is the sum over all layers, its R the largest.
    """
    if estimates.clip_norms is None:
        return 0.0
    if squares is None or psi is None:
        return None
    trust: Mapping[str, float] = estimates.trust
    if WHOLE in estimates.clip_norms:
        squares, trust = {WHOLE: math.fsum(squares.values())}, {WHOLE: max(estimates.trust.values())}
    bounds = {layer: norm**2 for layer, norm in estimates.clip_norms.items()}
    if psi == "one":
        return math.fsum(m2 / bounds[layer] for layer, m2 in squares.items())
    return math.fsum(trust[layer] ** 2 * m2 * psi[layer] / bounds[layer] for layer, m2 in squares.items())
