"""The figures of one central step: norms of users' deltas, norms of the release, times.

Figures that are computed from private data (losses, norms of users' gradients and deltas, the realised cohort, the sum
before noise) are kept apart under `not_private`. They are for simulations, and the guarantee does not cover them. Sums
over users have a fixed size, so that nothing grows with the cohort.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sottovoce.federated.federated_options import Local
from sottovoce.model.flat import FlatModel
from sottovoce.model.partition import Partition
from sottovoce.privacy.release import Diagnosis

_SUMS = (
    *("users", "failed", "clipped", "loss", "with_loss", "norm", "norm_squared", "clipped_norm"),
    *("weight", "weight_squared", "local_steps", "with_gradients", "gradient_norm"),
    *("local_variance", "with_variance", "seen_closely", "smoothness", "with_smoothness"),
)
# For every layer: |Delta_h|, its square, the weighted square of the clipped one, |g_h|.
_ROWS = ("norm", "norm_squared", "clipped_squared", "gradient_norm")
CLOSELY = 4  # one user in this many is watched closely, which takes some passes over the gradient


@dataclass(frozen=True)
class UserGradients:
    """The local gradients of one user; g is the one that a step moves by, after local clipping."""

    steps: int
    norms: float  # before local clipping, added up over the local steps
    variance: float | None  # of g over the local steps: |g - mean g|^2; 0 with one step; None unless plain SGD
    layers: Tensor | None = None  # |g_h| of the first local step; this and what follows of some users only
    smoothness: Tensor | None = None  # |g_last - g_first| / |theta_last - theta_first|, with two steps of SGD or more


class LocalGradients:
    """Watches the local gradients of one user after another.

    Everything stays on the device until a user has finished, and is then read once. Only the first gradient is kept.
    """

    def __init__(self, partition: Partition, local: Local, *, on: bool) -> None:
        """Start with nobody; if not `on`, see nothing."""
        self._partition, self._lr, self._plain, self._on = partition, local.lr, local.plain_sgd, on
        self._clip = math.inf if local.gradient_clip is None else local.gradient_clip
        self._first: Tensor | None = None
        self._close = False
        self._scale: Tensor | None = None  # of the last step
        self._norms: list[Tensor] = []
        self._found: list[Tensor] = []

    def begin(self, *, closely: bool) -> None:
        """Turn to the next user."""
        self._close, self._norms, self._found = closely, [], []

    def step(self, gradient: Tensor, norm: Tensor, scale: Tensor) -> None:
        """Take the gradient of a local step, its norm, and what local clipping multiplied it by."""
        if self._on and self._close and not self._norms:
            self._first = torch.empty_like(gradient) if self._first is None else self._first
            torch.mul(gradient, scale, out=self._first)
        self._norms.append(norm)
        self._scale = scale

    def stopped_(self, theta: Tensor, flat: FlatModel) -> None:
        """Compare the user's last gradient with its first one; call it after the last step and before `finish_`.

        The gradient is overwritten. `Client.finish_` overwrites it anyway.
        """
        if not (self._on and self._close and self._norms) or self._first is None:
            return
        self._found = [self._partition.norms(self._first, precise=False)]
        if self._plain and len(self._norms) > 1 and self._scale is not None:
            change = torch.dist(self._first, flat.gradient.mul_(self._scale))
            # The last gradient was taken before the last step, at theta_k + lr g.
            torch.add(theta, flat.gradient, alpha=-self._lr, out=flat.gradient)
            self._found.append((change / torch.dist(flat.gradient, flat.theta)).double()[None])

    def ended(self, norms: Tensor) -> UserGradients | None:
        """Return the figures of a user whose delta's layers have these norms; None without local steps.

        Steps of plain SGD add up to the delta, lr * sum g = Delta: so mean g is Delta / (lr T), and no sum of them is
        needed.
        """
        steps = len(self._norms)
        if not self._on or not steps:
            return None
        parts = [norms, torch.stack(self._norms).double(), *self._found]
        layers, seen, *close = torch.split(torch.cat(parts).cpu(), [len(part) for part in parts])
        before = seen.tolist()
        if not self._plain:
            return UserGradients(steps, math.fsum(before), None, *close)
        mean = math.hypot(*layers.tolist()) / (self._lr * steps)
        apart = sum(min(norm, self._clip) ** 2 for norm in before) / steps - mean**2
        return UserGradients(steps, math.fsum(before), max(apart, 0.0) * steps / max(steps - 1, 1), *close)


class Figures:
    """Sums over the users of one process, then of all."""

    def __init__(self, partition: Partition, bounds: Mapping[str, float] | None = None) -> None:
        """Start with nothing but the clip bounds of the step, where they adapt; they follow from releases."""
        self.partition = partition
        self._bounds = {} if bounds is None else {"clip_norms": dict(bounds)}
        self.seconds: dict[str, float] = {}
        self.trust_ratios = torch.ones(len(partition), dtype=torch.float64)
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._layers = torch.zeros(len(_ROWS), len(partition), dtype=torch.float64)
        self._released: dict[str, Any] = {}
        self._raw: dict[str, Any] = {}
        self._spread: Tensor | None = None

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time that a block takes to a phase."""
        began = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began

    def failed(self) -> None:
        """Count one user whose delta was not finite."""
        self._sums["failed"] += 1

    def user(
        self,
        norms: Tensor,
        factors: Tensor,
        loss: float | None,
        weight: float,
        gradients: UserGradients | None,
    ) -> None:
        """Count one user: the norms of its delta's layers, what clipping multiplied them by, and how much it counts."""
        before, multiplied = norms.cpu().numpy(), factors.cpu().numpy()  # NumPy is faster with few numbers
        clipped = before * multiplied
        squared = float(before @ before)
        sums = self._sums
        sums["users"] += 1
        sums["clipped"] += float((multiplied != 1).any())
        sums["norm"] += math.sqrt(squared)
        sums["norm_squared"] += squared
        sums["clipped_norm"] += math.sqrt(float(clipped @ clipped))
        sums["weight"] += weight
        sums["weight_squared"] += weight**2
        if loss is not None:
            sums["loss"] += loss
            sums["with_loss"] += 1
        self._layers[:3] += torch.from_numpy(np.stack([before, before**2, weight * clipped**2]))
        if gradients is not None and math.isfinite(gradients.norms):
            self._count(gradients)

    def _count(self, gradients: UserGradients) -> None:
        """Count the local gradients of one user."""
        sums = self._sums
        sums["with_gradients"] += 1
        sums["local_steps"] += gradients.steps
        sums["gradient_norm"] += gradients.norms
        if gradients.steps > 1 and gradients.variance is not None:
            sums["with_variance"] += 1
            sums["local_variance"] += gradients.variance
        if gradients.layers is not None:
            sums["seen_closely"] += 1
            self._layers[3] += gradients.layers
        if gradients.smoothness is not None and gradients.smoothness.isfinite():
            sums["with_smoothness"] += 1
            sums["smoothness"] += float(gradients.smoothness)

    def packed(self) -> Tensor:
        """Return the sums over this process' users as one vector, always of the same length."""
        return torch.cat([torch.tensor([self._sums[name] for name in _SUMS], dtype=torch.float64), *self._layers])

    def unpack_(self, packed: Tensor) -> None:
        """Take the sums over all users."""
        self._sums = dict(zip(_SUMS, packed[: len(_SUMS)].tolist(), strict=True))
        self._layers = packed[len(_SUMS) :].view(len(_ROWS), -1)

    def released(self, average: Tensor, diagnosis: Diagnosis | None) -> None:
        """Add the norm of the release and, where diagnostics are on, those of its signal and its noise."""
        self._released["server_norm"] = float(torch.linalg.vector_norm(self.partition.norms(average)))
        if diagnosis is None:
            return
        signals, noises = diagnosis.signal_norms, diagnosis.noise_norms
        self._spread = self._user_spread(signals.cpu() * diagnosis.users_divisor)
        if noises is None:
            return
        self._raw["noise_norm"] = float(torch.linalg.vector_norm(noises))  # known, it would tell the signal's distance
        self._raw["server_norm_before_noise"] = float(torch.linalg.vector_norm(signals))
        ratios = zip(self.partition.layers, signals.tolist(), noises.tolist(), strict=True)
        self._raw["signal_to_noise"] = {layer: signal / noise if noise else None for layer, signal, noise in ratios}

    def _user_spread(self, sums: Tensor) -> Tensor | None:
        """Return how far users' clipped deltas lie apart in every layer: E|x - E x|^2 / E|x|^2, over users.

        0: all alike; 1: they have nothing in common. `sums` are the norms of their weighted sum. None for one user.
        """
        weight, squared = self._sums["weight"], self._layers[_ROWS.index("clipped_squared")]
        alone = self._sums["weight_squared"] / weight**2 if weight else 1.0
        if alone >= 1:
            return None
        apart = 1 - (sums / weight).square() / (squared / weight)
        return apart.nan_to_num(0.0).clamp(min=0) / (1 - alone)

    @property
    def loss(self) -> float | None:
        """The mean loss over the users of the cohort."""
        return self._mean("loss", "with_loss")

    def _mean(self, what: str, over: str) -> float | None:
        return self._sums[what] / self._sums[over] if self._sums[over] else None

    @property
    def cohort(self) -> int:
        """How many users took part, those that failed included."""
        return int(self._sums["users"] + self._sums["failed"])

    def line(self, *, diagnostics: bool) -> dict[str, Any]:
        """Return the figures as a line of the metrics."""
        line: dict[str, Any] = {**self._released, **self._bounds, "trust_ratios": self._by_layer(self.trust_ratios)}
        if not diagnostics:
            return line
        users = self._sums["users"]
        means = {name: self._mean(name, "users") for name in ("norm", "clipped_norm", "clipped")}
        variance = self._sums["norm_squared"] / users - (means["norm"] or 0.0) ** 2 if users else None
        line["not_private"] = {
            "loss": self.loss,
            "cohort": self.cohort,
            "failed_users": int(self._sums["failed"]),
            "delta_norm": means["norm"],
            "delta_norm_std": None if variance is None else max(variance, 0.0) ** 0.5,
            "delta_norm_clipped": means["clipped_norm"],
            "share_clipped": means["clipped"],
            "local_steps": self._mean("local_steps", "with_gradients"),
            "gradient_norm": self._mean("gradient_norm", "local_steps"),
            "local_variance": self._mean("local_variance", "with_variance"),
            "smoothness": self._mean("smoothness", "with_smoothness"),
            "layers": self._layer_statistics(),
            **self._raw,
            "seconds": self.seconds,
        }
        return line

    def _layer_statistics(self) -> dict[str, Any]:
        users = self._sums["users"]
        if not users:
            return {}
        rows = dict(zip(_ROWS, self._layers, strict=True))
        mean = rows["norm"] / users
        std = (rows["norm_squared"] / users - mean**2).clamp(min=0).sqrt()
        found = {"delta_norm": mean, "delta_norm_std": std}
        if self._sums["seen_closely"]:
            found["gradient_norm"] = rows["gradient_norm"] / self._sums["seen_closely"]
        if self._spread is not None:
            found["user_spread"] = self._spread
        return {name: self._by_layer(values) for name, values in found.items()}

    def _by_layer(self, values: Tensor) -> dict[str, float]:
        return dict(zip(self.partition.layers, values.tolist(), strict=True))
