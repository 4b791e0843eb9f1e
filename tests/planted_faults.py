"""Faults for audits to find, each planted in the real code; tests/auditing and benchmarks/audit.py use them."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import pytest
import torch

from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.federated import engine, process_aggregator
from sottovoce.privacy import clipping
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism

Plant = Callable[[pytest.MonkeyPatch], None]


def _noise_cut_to_a_tenth(patch: pytest.MonkeyPatch) -> None:
    stds = Mechanism.noise_stds.func
    small = cached_property(lambda mechanism: [std / 10 for std in stds(mechanism)])
    small.__set_name__(Mechanism, "noise_stds")
    patch.setattr(Mechanism, "noise_stds", small)


def _clipping_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clipping, "clip_factors", lambda norms, _: torch.ones_like(norms))


def _noise_per_worker(patch: pytest.MonkeyPatch) -> None:
    """Every user of the cohort adds noise of std sigma_dp C sqrt(S), as in the paper's text, instead of the server."""
    released = engine.release

    def release(t, total, cohort_weight, *, noise, ledger=None):
        share = math.sqrt(cohort_weight / WEIGHTS / noise.mechanism.cohort_size)
        noise._vector = (noise._vector.double() * share).round().long()
        return released(t, total, cohort_weight, noise=noise, ledger=ledger)

    patch.setattr(engine, "release", release)


def _cohort_reused(patch: pytest.MonkeyPatch) -> None:
    source = Mechanism.randomness

    def randomness(mechanism, seed, name, *keys):
        return source(mechanism, seed, name, *(() if name == "cohort" else keys))

    patch.setattr(Mechanism, "randomness", randomness)


def _weights_without_bound(patch: pytest.MonkeyPatch) -> None:
    """Two guards are gone: the bound itself, and the error of clipping where a weight is above it."""

    def weights(population, cohort, options):
        frames = [population.store.frames_of(population.rows_of(int(user))).sum() for user in cohort]
        counted = np.array(frames) / FRAMES_PER_SECOND / options.weight_bound
        return np.floor(counted * WEIGHTS).astype(np.int64)

    patch.setattr(process_aggregator, "user_weights", weights)
    patch.setattr(clipping, "WEIGHTS", 2**40)


FAULTS: Mapping[str, Plant] = {
    "noise cut to a tenth": _noise_cut_to_a_tenth,
    "clipping off": _clipping_off,
    "noise added per worker": _noise_per_worker,
    "cohort reused": _cohort_reused,
    "weights unbounded": _weights_without_bound,
}
