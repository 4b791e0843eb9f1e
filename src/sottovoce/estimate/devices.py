"""Devices and the pace of training on them: known GPUs by their data sheets, and this machine by measuring it.

The time of a FLOP on a GPU is one part at the peak of the precision and a rest (memory, waiting) that moves with the
memory's bandwidth:

    seconds per FLOP = 1 / peak + (b - 1 / peak of the A100 in TF32) * bandwidth of the A100 / bandwidth

b is what the paper's rows give. They are taken for TF32, the default of the authors' framework on this GPU: plain
float32 could not reach their pace. On an A100 in TF32 the formula is b itself; everywhere else it is extrapolation.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from sottovoce.config import Config
from sottovoce.data.batching import PaddedBatch, epoch
from sottovoce.data.text import TokenSet
from sottovoce.errors import ConfigError
from sottovoce.estimate.sized_encoder import sized_encoder
from sottovoce.estimate.work import flops_per_second
from sottovoce.features.logmel import BINS, FRAMES_PER_SECOND
from sottovoce.model.gradient import Micro, add_gradient
from sottovoce.model.recogniser import Recogniser
from sottovoce.randomness import stream

Precision = Literal["float32", "tf32", "bfloat16"]

_TIMED_SECONDS, _LEAST_TIMES = 2.0, 3
_MOST_PARAMETERS = 20_000_000  # of a model that is trained for a moment on a CPU; of larger ones a product is timed
_MOST_SECONDS = 60.0  # of audio in a timed step on a CPU
_PRODUCT = 1024
# A training step reaches 43 to 58 % of what a plain matrix product does (benchmarks/training.py).
_SHARE_OF_PRODUCT = 0.5
_LABELS_PER_SECOND = 12
_LEAST_FRAMES = 10


@dataclass(frozen=True)
class Device:
    """The device of one process: peaks in TFLOP/s (dense) by precision and memory, or a measured pace."""

    name: str
    tflops: Mapping[str, float]
    terabytes_per_second: float | None = None
    memory_bytes: float | None = None
    seconds_per_flop: float | None = None  # measured, with everything that belongs to a local step
    measured_on: str = ""
    is_cpu: bool = False  # training keeps the cores busy

    def peak(self, precision: Precision) -> float:
        """Return the FLOP/s that the device could reach."""
        return self.tflops[precision] * 1e12


# The makers' data sheets, SXM modules, without sparsity.
A100 = Device("A100 80GB", {"float32": 19.5, "tf32": 156.0, "bfloat16": 312.0}, 2.039, 80e9)
H100 = Device("H100 80GB", {"float32": 66.9, "tf32": 494.7, "bfloat16": 989.4}, 3.35, 80e9)
KNOWN = {"a100": A100, "h100": H100}
PAPER_PRECISION: Precision = "tf32"


def custom(tflops: float) -> Device:
    """Return a GPU with this peak in every precision, used to the same share as the paper's."""
    if not 0 < tflops < 1e9:
        raise ConfigError(f"Expected --tflops {tflops:g} > 0, the peak in TFLOP/s.")
    scale = tflops / A100.tflops[PAPER_PRECISION]
    bandwidth = (A100.terabytes_per_second or 0.0) * scale
    return Device(f"GPU with {tflops:g} TFLOP/s", dict.fromkeys(get_args(Precision), tflops), bandwidth)


def seconds_per_flop(device: Device, precision: Precision, on_a100: float) -> float:
    """Return the time of a FLOP on a device, from what it takes on an A100 in TF32 (see above)."""
    if device.seconds_per_flop is not None:
        return device.seconds_per_flop
    if device.terabytes_per_second is None or A100.terabytes_per_second is None:
        raise ConfigError(f"{device.name} has neither a bandwidth nor a measured pace.")
    rest = on_a100 - 1 / A100.peak(PAPER_PRECISION)
    return 1 / device.peak(precision) + rest * A100.terabytes_per_second / device.terabytes_per_second


def here(config: Config, language: str, step_seconds: float, utterance_seconds: float) -> Device:
    """Measure this machine: a few local steps of the model on `step_seconds` of audio, with the threads of a worker.

    A large model is not trained on a CPU: there the pace is that of a matrix product times what training reaches of it.
    """
    where = config.hardware.open()
    tokens = len(TokenSet((language,)).tokens)
    parameters = sum(parameter.numel() for parameter in sized_encoder(config.model, tokens).parameters())
    threads = torch.get_num_threads()
    torch.set_num_threads(config.hardware.threads_per_worker)
    try:
        if where.type == "cpu" and parameters > _MOST_PARAMETERS:
            pace = _timed(_product(where), where) / _SHARE_OF_PRODUCT / (2 * _PRODUCT**3)
            how = f"half of the pace of a matrix product, {_threads(config)}"
        else:
            longest = step_seconds if where.type == "cuda" else min(step_seconds, _MOST_SECONDS)
            step, flops = _local_step(config, language, longest, utterance_seconds, where)
            pace, how = _timed(step, where) / flops, f"timed local steps of {longest:.3g} s, {_threads(config)}"
    finally:
        torch.set_num_threads(threads)
    peak = dict.fromkeys(get_args(Precision), 1e-12 / pace)
    return Device("this machine", peak, seconds_per_flop=pace, measured_on=how, is_cpu=where.type == "cpu")


def _threads(config: Config) -> str:
    count = config.hardware.threads_per_worker
    return f"{count} thread{'s' * (count > 1)} a process"


def _timed(work: Callable[[], None], where: torch.device) -> float:
    """Return the mean time of some work over a while, after a first time that does not count.

    The mean, not the least: other work on the machine will be there in training, too.
    """
    work()
    began, times = time.perf_counter(), 0
    while times < _LEAST_TIMES or time.perf_counter() - began < _TIMED_SECONDS:
        work()
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        times += 1
    return (time.perf_counter() - began) / times


def _product(where: torch.device) -> Callable[[], None]:
    one = torch.ones(_PRODUCT, _PRODUCT, device=where)
    into = torch.empty_like(one)

    def product() -> None:
        torch.mm(one, one, out=into)

    return product


def _local_step(
    config: Config, language: str, seconds: float, utterance_seconds: float, where: torch.device
) -> tuple[Callable[[], None], float]:
    """Return local SGD on about this many seconds of random features, in micro-batches as usual, and its FLOPs.

    No block is dropped, and all parameters train. Padding is not counted, so its cost is part of the pace.
    """
    recogniser = Recogniser.make(config.model, TokenSet((language,)), where).initialise(0)
    config.hardware.speed_up_(recogniser.encoder)
    recogniser.encoder.train()
    tokens, flat = len(recogniser.token_set.tokens), recogniser.flat
    count = max(round(seconds / utterance_seconds), 1)
    spread = np.linspace(0.5, 1.5, count) if count > 1 else np.ones(1)  # lengths around the typical one
    frames = np.maximum(spread * seconds / count * FRAMES_PER_SECOND, _LEAST_FRAMES).astype(np.int64)
    batches = epoch(np.arange(count), frames, config.batching, stream(0, "estimate-here"))
    pads = recogniser.encoder.computes_padding
    micros = [_micro(frames[rows], tokens) for batch in batches for rows in (batch.micro if pads else [batch.rows])]

    def step() -> None:
        with flat.new_gradient():
            for micro in micros:
                add_gradient(recogniser, micro, {}, 1 / count)  # without choices, no block is dropped
        norm = torch.linalg.vector_norm(flat.gradient)
        flat.theta.addcmul_(flat.gradient, torch.clamp(1 / norm, max=1.0), value=-1e-3)

    lengths = (frames / FRAMES_PER_SECOND).tolist()
    flops = (length * sum(flops_per_second(config.model, tokens, length, drops=False).values()) for length in lengths)
    return step, sum(flops)


def _micro(frames: npt.NDArray[np.int64], tokens: int) -> Micro:
    """Return a micro-batch of noise with labels that fit it."""
    rng = stream(0, "estimate-here", len(frames))
    labels = np.maximum(frames * _LABELS_PER_SECOND // FRAMES_PER_SECOND, 1)
    features = rng.standard_normal((len(frames), int(frames.max()), BINS), dtype=np.float32)
    targets = 1 + np.tile(np.arange(labels.max(), dtype=np.int64) % (tokens - 1), (len(frames), 1))
    return Micro(PaddedBatch(features, frames, targets, labels), {}, 0)
