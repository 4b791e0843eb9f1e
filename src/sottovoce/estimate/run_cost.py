"""The cost of a federated run before it starts: parameters, FLOPs, memory, traffic, and the time on a device.

    step time = fixed part + busiest process' local work + noise + ledger on rank 0
    GPU-hours = T * processes * step time / 3600

Every process draws its share of the noise in a thread while users train. On a GPU only the time counts by which that
takes longer than the local work; on a CPU both share the cores, and all of it counts.

Sizes and traffic are counted from what the engine keeps and sends. The pace of a GPU is that of the paper's own runs
(`calibration`), because ours has not been timed on one: so an estimate always carries a factor of uncertainty, and
says what it rests on. Nothing here allocates the model or reads audio.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from sottovoce.central.dealing import deal
from sottovoce.config import Config, resolve
from sottovoce.deploy.integer_coding import typical_bytes
from sottovoce.errors import ConfigError
from sottovoce.estimate.calibration import PAPER_MODEL, calibrate
from sottovoce.estimate.devices import A100, PAPER_PRECISION, Device, Precision, seconds_per_flop
from sottovoce.estimate.model_size import ModelSize, activation_bytes, describe
from sottovoce.estimate.sized_encoder import sized_encoder
from sottovoce.estimate.user_audio import UserAudio
from sottovoce.estimate.work import Sharing, cohort_size, flops_per_second, loads, local_work, typical_utterance
from sottovoce.federated.diagnostics import Figures
from sottovoce.model.partition import make_partition
from sottovoce.privacy.mechanism import FRACTION_BITS
from sottovoce.privacy.noise import IndependentNoise
from sottovoce.runs.stop import VOTES

_FLOAT, _INTEGER = 4, 8  # bytes
# One core of a server, measured: noise that a process draws, and bytes that the ledger on rank 0 hashes, in a second.
_NOISE_PER_SECOND = {"seeded": 50e6, "secure": 25e6}
_HASHED_PER_SECOND = 1.7e9
# A guess, not a measurement: for another GPU, precision or model than the paper's; for a machine timed for a moment.
_GUESSED_FACTOR = 2.0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cost of a run. Bytes are those of one process; times are expected values with a range (see `factor`)."""

    parameters: int
    trainable: int  # parameters that train: noise, sums and traffic go with them
    layers: int
    audio: str
    seconds_per_user: float  # of audio that a user has
    local_steps: float  # of a user in a central step
    local_seconds: float  # of audio computed by a user in a central step
    cohort_size: float
    central_steps: int
    flops_per_second: dict[str, float]  # of audio, forward and backward, less those that frozen parameters save
    flops_per_user: float
    flops_per_central_step: float
    flops_per_run: float
    memory_bytes: dict[str, float]
    traffic_bytes: dict[str, float]
    device: str
    device_memory_bytes: float | None
    precision: str
    processes: int
    sharing: str
    step_seconds: dict[str, float]
    imbalance: float  # the busiest process' local work over the mean
    share_of_peak: float
    gpu_hours: float
    wall_hours: float
    factor: float  # the hours may be larger or smaller by this factor
    basis: str  # what the pace rests on

    @property
    def fits(self) -> bool:
        """Whether a process fits into the device's memory, as far as that is known."""
        return self.device_memory_bytes is None or self.memory_bytes["total"] <= self.device_memory_bytes

    def around(self, hours: float) -> tuple[float, float]:
        """Return the range that an estimate of hours stands for."""
        return hours / self.factor, hours * self.factor

    def document(self) -> dict[str, Any]:
        """Return everything for JSON."""
        ranges = {name: list(self.around(getattr(self, name))) for name in ("gpu_hours", "wall_hours")}
        return {**asdict(self), "fits": self.fits, "ranges": ranges}


def estimate(
    config: Config,
    audio: UserAudio,
    device: Device,
    processes: int,
    precision: Precision | None = None,
    sharing: Sharing = "longest first",
) -> Estimate:
    """Estimate a federated run; `precision` is that of the configuration unless it is given.

    Users are shared out and batches filled as our engine does it; `dealt` is what the paper's rows are taken for, to
    compare with them.
    """
    size = describe(config, config.federated.partition, config.corpus.first_language)
    cohort = cohort_size(config)
    precision = precision or config.hardware.precision
    options = config.federated
    flops = flops_per_second(
        *(config.model, size.tokens, audio.utterance_seconds), trainable=options.trainable, adapters=options.adapters
    )
    work = local_work(config, audio.seconds, typical_utterance(audio, sharing))
    steps, seconds = map(audio.mean, work)
    pace = _pace(config, size, device, precision)
    shared = loads(config, audio, processes, sharing)
    rates = pace.per_local_step, pace.per_flop * sum(flops.values())
    busiest, mean = shared.busiest(*rates), shared.mean(*rates)
    times = {
        "fixed": pace.per_central_step,
        "local_work": busiest,
        "noise": _noise_seconds(config, size.trainable, processes, meanwhile=0.0 if device.is_cpu else busiest),
        "ledger": size.trainable * _INTEGER / _HASHED_PER_SECOND,  # rank 0 hashes the sum
    }
    times["total"] = sum(times.values())
    per_step = cohort * seconds * sum(flops.values())
    wall = config.federated.central_steps * times["total"] / 3600
    return Estimate(
        parameters=size.parameters,
        trainable=size.trainable,
        layers=size.layers,
        audio=audio.name,
        seconds_per_user=audio.mean(),
        local_steps=steps,
        local_seconds=seconds,
        cohort_size=cohort,
        central_steps=config.federated.central_steps,
        flops_per_second={**flops, "total": sum(flops.values())},
        flops_per_user=seconds * sum(flops.values()),
        flops_per_central_step=per_step,
        flops_per_run=config.federated.central_steps * per_step,
        memory_bytes=memory(config, size),
        traffic_bytes=traffic(config, size.partition, processes),
        device=device.name,
        device_memory_bytes=device.memory_bytes,
        precision=precision,
        processes=processes,
        sharing=sharing,
        step_seconds=times,
        imbalance=busiest / mean if mean > 0 else 1.0,
        share_of_peak=per_step / (processes * times["total"] * device.peak(precision)) if times["total"] > 0 else 0.0,
        gpu_hours=processes * wall,
        wall_hours=wall,
        factor=pace.factor,
        basis=pace.basis,
    )


@dataclass(frozen=True, kw_only=True)
class _Pace:
    per_central_step: float
    per_local_step: float
    per_flop: float
    factor: float
    basis: str


def _pace(config: Config, size: ModelSize, device: Device, precision: Precision) -> _Pace:
    """Return the pace on a device; a fixed time per local step goes with the blocks, per central step with the model.

    The paper's rows are all of one model, so how its fixed times change with the model is an assumption.
    """
    if device.seconds_per_flop is not None:
        return _Pace(
            per_central_step=0.0,
            per_local_step=0.0,
            per_flop=device.seconds_per_flop,
            factor=_GUESSED_FACTOR,
            basis=f"this machine: {device.measured_on}",
        )
    if precision not in device.tflops:
        raise ConfigError(f"{device.name} has no peak in {precision}. It has: {', '.join(device.tflops)}.")
    calibration, paper = calibrate(), resolve(PAPER_MODEL).config
    fit, paper_size = calibration.fit, describe(paper, "tensor", "en")
    other = [
        what
        for what, is_other in (
            (device.name, device != A100),
            (precision, precision != PAPER_PRECISION),
            ("another model", config.model != paper.model),
        )
        if is_other
    ]
    basis = f"the pace of the paper's runs ({A100.name}, {PAPER_PRECISION})"
    return _Pace(
        per_central_step=fit.per_central_step * size.trainable / paper_size.trainable,
        per_local_step=fit.per_local_step * size.blocks / paper_size.blocks,
        per_flop=seconds_per_flop(device, precision, fit.per_flop),
        factor=max(calibration.factor, _GUESSED_FACTOR if other else 1.0),
        basis=f"{basis}, extrapolated to {', '.join(other)}" if other else basis,
    )


def _noise_seconds(config: Config, parameters: int, processes: int, *, meanwhile: float) -> float:
    """Return how long a step waits for noise that is drawn for `meanwhile` seconds beside other work."""
    if config.privacy.sigma_dp == 0:
        return 0.0
    sharing = processes if isinstance(config.privacy.noise, IndependentNoise) else 1  # otherwise rank 0 draws it all
    return max(parameters / sharing / _NOISE_PER_SECOND[config.randomness.source] - meanwhile, 0.0)


def memory(config: Config, size: ModelSize) -> dict[str, float]:
    """Return the bytes that rank 0, the largest process, holds; PyTorch and its libraries come on top.

    Between users nothing grows. Activations and the temporaries of the server's step are never there together.
    """
    parameters = size.trainable
    with torch.device("meta"):
        state = config.federated.optimizer.start(torch.empty(parameters))
        local_state = config.federated.local.optimizer.start(torch.empty(parameters))
    noise = 1 + config.privacy.noise.kept_vectors(parameters) if config.privacy.sigma_dp > 0 else 0
    held = {
        "model": size.parameters * _FLOAT,
        "gradients": parameters * _FLOAT,
        "theta": parameters * _FLOAT,
        "averaged_model": parameters * _FLOAT if config.federated.averaging is not None else 0,
        "server_state": len(state.vectors) * parameters * _FLOAT,
        "local_state": len(local_state.vectors) * parameters * _FLOAT,  # of the user who trains
        "integer_sum": parameters * _INTEGER,
        "noise": parameters * _INTEGER * noise,  # in the memory of the host; other processes have their share
        # For diagnostics, which privacy.diagnostics switches off.
        "first_gradient": parameters * _FLOAT if config.diagnostics else 0,
    }
    passing = {
        "activations": activation_bytes(
            sized_encoder(config.model, size.tokens, config.federated.adapters), config.batching.seconds
        ),
        # The clipped gradient, and a vector while the local optimizer steps; plain SGD needs none.
        "local_step": 0 if config.federated.local.plain_sgd else parameters * 2 * _FLOAT,
        # The average in float32; with q_min the sum in float64 before.
        "release": parameters * _FLOAT * (2 if config.participation.q_min is not None else 1),
        # The average, and up to two vectors while the optimizer steps.
        "server_step": parameters * 3 * _FLOAT,
    }
    return {**held, **passing, "total": sum(held.values()) + max(passing.values())}


def traffic(config: Config, layers: dict[str, int], processes: int) -> dict[str, float]:
    """Return the bytes that move in one central step: between processes, and to and from users in a deployment.

    `layers` are those of the trainable parameters. A user needs the frozen ones, too, but only once. What a user sends
    is a little less than this (`integer_coding.typical_bytes`).
    """
    parameters, cohort = sum(layers.values()), cohort_size(config)
    partition = make_partition(list(layers), list(layers.values()), "tensor")
    notes = _INTEGER * (1 + VOTES + Figures(partition).packed().numel())
    down, summed = _FLOAT * parameters, _INTEGER * parameters
    up = typical_bytes(parameters, 2.0**FRACTION_BITS)
    others = processes > 1
    shared = config.privacy.sigma_dp > 0 and isinstance(config.privacy.noise, IndependentNoise)
    noise = summed / processes if shared and others else 0
    return {
        # Along a chain every process passes on a sum and the average once; its notes go to every other process, and its
        # share of the noise to the leading one.
        "sent_by_process": (summed + down) * others + notes * (processes - 1) + noise,
        "user_down": down,
        "user_up": up,
        "user_up_masked": _masked_bytes(round(cohort)) * parameters,
        "cohort_down": cohort * down,
        "cohort_up": cohort * up,
    }


def _masked_bytes(cohort: int) -> int:
    """Return the bytes of an integer that holds the sum of so many users: masked ones cannot be shorter."""
    return ((max(cohort, 1) << FRACTION_BITS).bit_length() + 1 + 7) // 8


@dataclass(frozen=True)
class CentralEstimate:
    """The cost of central training, at the pace of the paper's federated runs: it prints no time for central ones."""

    flops_per_run: float
    gpu_hours: float
    wall_hours: float
    processes: int
    imbalance: float  # the busiest process' work over the mean
    factor: float


def estimate_central(
    config: Config, utterance_seconds: float, device: Device, processes: int, precision: Precision | None = None
) -> CentralEstimate:
    """Estimate central training on a number of processes, which share micro-batches as `central.deal` does it.

    A fixed time is counted for every micro-batch or piece of one, as for a local step; sending gradients is not.
    """
    size = describe(config, "tensor", config.corpus.first_language)
    flops = sum(flops_per_second(config.model, size.tokens, utterance_seconds).values())
    pace = _pace(config, size, device, precision or config.hardware.precision)
    options = config.central
    micro_flops = options.micro_batch_seconds * flops
    utterances = max(round(options.micro_batch_seconds / utterance_seconds), 1)
    hands = deal([np.ones(utterances, dtype=np.int64)] * options.micro_batches, processes, options.micro_batches)
    loads = [
        sum(
            pace.per_local_step + (piece.last - piece.first) / utterances * micro_flops * pace.per_flop
            for piece in hand
        )
        for hand in hands
    ]
    wall = options.steps * max(loads) / 3600
    return CentralEstimate(
        flops_per_run=options.steps * options.micro_batches * micro_flops,
        gpu_hours=processes * wall,
        wall_hours=wall,
        processes=processes,
        imbalance=max(loads) * processes / sum(loads),
        factor=max(pace.factor, _GUESSED_FACTOR),
    )
