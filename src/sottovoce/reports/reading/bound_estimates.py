"""Estimates of the quantities in the convergence bound, from a run's own log.

They are means or maxima over the steps of one run. g is the gradient that a local step applies, after local clipping.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from sottovoce.errors import SottoError
from sottovoce.model.partition import WHOLE, Partition
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy
from sottovoce.reports.reading.convergence import BoundEstimates
from sottovoce.reports.reading.layers import diagnostics, layer_values, over_steps, trust_ratios
from sottovoce.reports.reading.records import RunRecord


def bound_estimates(record: RunRecord) -> BoundEstimates | str:
    """Return the estimates for a federated run, or the reason why there are none."""
    optimizer = record.setting("federated.optimizer") or {}
    if optimizer.get("name") != "lamb" or not optimizer.get("xi"):
        return "the theorems assume LAMB with xi > 0 as the server optimizer, and this run uses another one"
    if record.partition is None or not record.steps:
        return "the run has no checkpoint yet, or this version cannot read it"
    mechanism = _mechanism(record, record.partition)
    if mechanism is None:
        return "its configuration is from another version"
    if mechanism.privacy.adapts:
        return "the theorems assume clip bounds that stay the same, and the bounds of this run adapt"
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
    clip = record.setting("federated.local.gradient_clip")
    return (
        *([f"momentum (b1 = {optimizer['b1']:g})"] if optimizer.get("b1") else []),
        *(["bias correction"] if optimizer.get("bias_correction") else []),
        *([f"local clipping to {clip:g}"] if clip is not None else []),
        *_local_rule(record),
        *_local_optimizer(record),
    )


def _local_rule(record: RunRecord) -> list[str]:
    """Return the rule that local steps follow, unless it is plain SGD. Older versions knew only FedProx."""
    name, older_mu = record.setting("federated.local.rule.name"), record.setting("federated.local.prox_mu")
    mu = record.setting("federated.local.rule.mu") if name == "fedprox" else older_mu
    if mu:
        return [f"FedProx (mu = {mu:g})"]
    return [] if name in (None, "sgd", "fedprox") else [f"the local rule {name}"]


def _local_optimizer(record: RunRecord) -> list[str]:
    """Return the optimizer of local steps, unless it is plain SGD, the only one of older versions."""
    name, momentum = (record.setting(f"federated.local.optimizer.{key}") for key in ("name", "momentum"))
    if name == "sgd":
        return [f"local momentum ({momentum:g})"] if momentum else []
    return [] if name is None else [f"the local optimizer {name}"]


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
