"""How fast a training step is: against the same model written plainly, and against the machine's GEMM limit.

    python benchmarks/training.py [--preset tiny] [--seconds 60] [--threads 1] [--json]

Speeds are taken side by side in one run, alternating, and printed as ratios, because machines are noisy.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor, nn

from report import print_report
from sottovoce.config import resolve
from sottovoce.model.cape import centred_positions, embed
from sottovoce.model.ctc import ctc_loss
from sottovoce.model.encoder import make_initialised
from sottovoce.model.flat import FlatModel
from sottovoce.model.front import STRIDE
from sottovoce.model.transformer_options import TransformerOptions

TOKENS = 30
ROUNDS = 8


class PlainBlock(nn.Module):
    """A transformer block as a textbook writes it."""

    def __init__(self, options: TransformerOptions) -> None:
        """Make the parameters."""
        super().__init__()
        width = options.width
        self.options = options
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.w1 = nn.Linear(width, options.mlp_width, bias=False)
        self.w2 = nn.Linear(options.mlp_width, width, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Attend with explicit scores, then the MLP."""
        rows, outputs, width = x.shape
        heads, normal = self.options.heads, self.ln1(x)
        q, k, v = (f(normal).view(rows, outputs, heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / (width // heads) ** 0.5
        weights = F.dropout(scores.masked_fill(~mask, float("-inf")).softmax(-1), self.options.dropout, self.training)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(rows, outputs, width))
        return x + self.w2(F.dropout(F.relu(self.w1(self.ln2(x))), self.options.dropout, self.training))


class Plain(nn.Module):
    """The same model in plain PyTorch eager, with parameters of its own and torch's own SGD."""

    def __init__(self, options: TransformerOptions) -> None:
        """Make the parameters."""
        super().__init__()
        self.options = options
        self.conv = nn.Conv1d(80, 2 * options.width, 7, 3, 3)
        self.blocks = nn.ModuleList(PlainBlock(options) for _ in range(options.blocks))
        self.ln, self.output = nn.LayerNorm(options.width), nn.Linear(options.width, TOKENS)

    def forward(self, features: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores and their lengths."""
        outputs = torch.div(frames + STRIDE - 1, STRIDE, rounding_mode="floor")
        x = F.dropout(
            F.glu(self.conv(features.transpose(1, 2)), 1).transpose(1, 2), self.options.dropout, self.training
        )
        x = x + embed(centred_positions(outputs, x.shape[1], x.dtype), self.options.width)
        mask = (torch.arange(x.shape[1]) < outputs[:, None])[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        return self.output(self.ln(x)), outputs


def batch(seconds: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a batch like those of Common Voice: utterances of about 5 s, sorted into similar lengths."""
    rng = np.random.default_rng(0)
    rows = max(1, int(seconds / 5))
    frames = np.sort(rng.integers(450, 501, size=rows))[::-1].copy()
    features = torch.from_numpy(rng.standard_normal((rows, int(frames.max()), 80)).astype(np.float32))
    lengths = torch.full((rows,), 60)
    return features, torch.from_numpy(frames), torch.from_numpy(rng.integers(1, TOKENS, size=(rows, 60))), lengths


def our_step(options: TransformerOptions) -> Callable[..., None]:
    """Return one local step with our model: flat SGD, one kernel each for zeroing, clipping and stepping."""
    encoder = make_initialised(options, TOKENS, 0)
    flat = FlatModel(encoder)
    encoder.train()

    def step(features: Tensor, frames: Tensor, targets: Tensor, lengths: Tensor) -> None:
        flat.gradient.zero_()
        scores, outputs = encoder(features, frames)
        torch.autograd.backward(ctc_loss(scores, outputs, targets, lengths).mean())
        norm = float(torch.linalg.vector_norm(flat.gradient))
        flat.theta.sub_(flat.gradient, alpha=0.01 * min(1.0, 1.0 / norm))

    return step


def plain_step(options: TransformerOptions) -> Callable[..., None]:
    """Return one step of the plain model."""
    module = Plain(options).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, foreach=False)

    def step(features: Tensor, frames: Tensor, targets: Tensor, lengths: Tensor) -> None:
        optimizer.zero_grad()
        scores, outputs = module(features, frames)
        log_probs = scores.log_softmax(-1).transpose(0, 1)
        F.ctc_loss(log_probs, targets, outputs, lengths, reduction="none").mean().backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()

    return step


def gemm_flops() -> float:
    """Return the multiply-adds a second, counted as two, of a large float32 matrix product."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    a @ b
    started = time.perf_counter()
    for _ in range(10):
        a @ b
    return 10 * 2 * 1024**3 / (time.perf_counter() - started)


def step_flops(options: TransformerOptions, frames: Tensor) -> float:
    """Return the operations of the matrix products of one step: forward, and backward twice that."""
    outputs = -(-int(frames.max()) // STRIDE)
    rows, width = len(frames), options.width
    per_output = options.blocks * (4 * width**2 + 2 * width * options.mlp_width) + width * TOKENS
    attention = options.blocks * 2 * outputs * width
    convolution = 80 * 7 * 2 * width  # backward once: nothing is differentiated with respect to the features
    return 2 * rows * outputs * (3 * (per_output + attention) + 2 * convolution)


def main() -> None:
    """Measure, alternating."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--seconds", type=float, default=60.0, help="audio in the batch")
    parser.add_argument("--dropout", type=float, help="instead of the preset's")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    options = resolve(arguments.preset).config.model.model_copy(update={"layer_drop": 0.0})
    if arguments.dropout is not None:
        options = options.model_copy(update={"dropout": arguments.dropout})
    data = batch(arguments.seconds)
    audio = float(data[1].sum()) / 100
    steps = {"ours": our_step(options), "plain": plain_step(options)}
    times: dict[str, list[float]] = {name: [] for name in steps}
    peaks = []
    for number in range(ROUNDS + 2):
        peaks.append(gemm_flops())
        for name, step in steps.items():
            started = time.perf_counter()
            step(*data)
            if number >= 2:
                times[name].append(time.perf_counter() - started)
    best = {name: float(np.median(values)) for name, values in times.items()}
    reached = step_flops(options, data[1]) / best["ours"]
    report = {
        "audio seconds per second, ours": audio / best["ours"],
        "audio seconds per second, plain eager": audio / best["plain"],
        "ours / plain": best["plain"] / best["ours"],
        "GEMM limit, GFLOP/s": float(np.median(peaks)) / 1e9,
        "reached, GFLOP/s": reached / 1e9,
        "share of the GEMM limit": reached / float(np.median(peaks)),
    }
    print_report(report, as_json=arguments.json)


if __name__ == "__main__":
    main()
