"""The figures of one central step: what users' deltas look like, what was released, where the time went.

What is computed from private data (losses, norms of users' deltas, the realised cohort, the sum before noise) is kept
apart under `not_private`: it is for simulations, and no part of what the guarantee covers. Sums over users are of a
fixed size, so that nothing grows with the cohort.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from sottovoce.model.flat import Partition

_SUMS = ("users", "failed", "clipped", "loss", "with_loss", "norm", "norm_squared", "clipped_norm")


class Figures:
    """Sums over the users of one process, then of all."""

    def __init__(self, partition: Partition) -> None:
        """Start with nothing."""
        self.partition = partition
        self.seconds: dict[str, float] = {}
        self.trust_ratios = torch.ones(len(partition), dtype=torch.float64)
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._layers = torch.zeros(2, len(partition), dtype=torch.float64)
        self._released: dict[str, Any] = {}
        self._raw: dict[str, Any] = {}

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time that a block takes to a phase."""
        began = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began

    def failed(self) -> None:
        """Count one user whose delta was not finite."""
        self._sums["failed"] += 1

    def user(self, norms: Tensor, factors: Tensor, loss: float | None) -> None:
        """Count one user: the norms of its delta's layers and what clipping multiplied them by."""
        norms, factors = norms.cpu(), factors.cpu()
        norm = float(torch.linalg.vector_norm(norms))
        sums = self._sums
        sums["users"] += 1
        sums["clipped"] += float(bool((factors != 1).any()))
        sums["norm"] += norm
        sums["norm_squared"] += norm**2
        sums["clipped_norm"] += float(torch.linalg.vector_norm(norms * factors))
        if loss is not None:
            sums["loss"] += loss
            sums["with_loss"] += 1
        self._layers[0] += norms
        self._layers[1] += norms**2

    def packed(self) -> Tensor:
        """Return the sums over this process' users as one vector, always of the same length."""
        return torch.cat([torch.tensor([self._sums[name] for name in _SUMS], dtype=torch.float64), *self._layers])

    def unpack_(self, packed: Tensor) -> None:
        """Take the sums over all users."""
        self._sums = dict(zip(_SUMS, packed[: len(_SUMS)].tolist(), strict=True))
        self._layers = packed[len(_SUMS) :].view(2, -1)

    def released(self, average: Tensor, noise: Tensor | None) -> None:
        """Take the norms of what was released and, apart, of what is in it."""
        norms = self.partition.norms(average)
        self._released["server_norm"] = float(torch.linalg.vector_norm(norms))
        if noise is None:
            return
        noises, signals = self.partition.norms(noise), self.partition.norms(average - noise)
        self._raw["noise_norm"] = float(torch.linalg.vector_norm(noises))  # known, it would tell the signal's distance
        self._raw["server_norm_before_noise"] = float(torch.linalg.vector_norm(signals))
        ratios = zip(self.partition.layers, signals.tolist(), noises.tolist(), strict=True)
        self._raw["signal_to_noise"] = {layer: signal / noise if noise else None for layer, signal, noise in ratios}

    @property
    def loss(self) -> float | None:
        """The mean loss over the users of the cohort."""
        return self._sums["loss"] / self._sums["with_loss"] if self._sums["with_loss"] else None

    @property
    def cohort(self) -> int:
        """How many users took part, those that failed included."""
        return int(self._sums["users"] + self._sums["failed"])

    def line(self, *, diagnostics: bool) -> dict[str, Any]:
        """Return the figures as a line of the metrics."""
        line: dict[str, Any] = {**self._released, "trust_ratios": self._by_layer(self.trust_ratios)}
        if not diagnostics:
            return line
        users = self._sums["users"]
        means = {name: self._sums[name] / users if users else None for name in ("norm", "clipped_norm", "clipped")}
        variance = self._sums["norm_squared"] / users - (means["norm"] or 0.0) ** 2 if users else None
        line["not_private"] = {
            "loss": self.loss,
            "cohort": self.cohort,
            "failed_users": int(self._sums["failed"]),
            "delta_norm": means["norm"],
            "delta_norm_std": None if variance is None else max(variance, 0.0) ** 0.5,
            "delta_norm_clipped": means["clipped_norm"],
            "share_clipped": means["clipped"],
            "layers": self._layer_statistics(),
            **self._raw,
            "seconds": self.seconds,
        }
        return line

    def _layer_statistics(self) -> dict[str, Any]:
        users = self._sums["users"]
        if not users:
            return {}
        mean = self._layers[0] / users
        std = (self._layers[1] / users - mean**2).clamp(min=0).sqrt()
        return {"delta_norm": self._by_layer(mean), "delta_norm_std": self._by_layer(std)}

    def _by_layer(self, values: Tensor) -> dict[str, float]:
        return dict(zip(self.partition.layers, values.tolist(), strict=True))
