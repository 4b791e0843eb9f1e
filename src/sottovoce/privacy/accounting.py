"""Epsilon of so many releases, by Renyi differential privacy of the subsampled Gaussian.

The moments come from opacus' analysis, which agrees with quadrature; the conversion to (epsilon, delta) is the improved
one (Balle et al. 2020), over a dense grid of orders. Adding or removing one user is the adjacency for Poisson cohorts
and for everyone; for cohorts of fixed size, one user is replaced by another, and z already says so. That case is
accounted without amplification by sampling: an upper bound.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sottovoce.errors import PrivacyError
from sottovoce.privacy.mechanism import Mechanism

Floats = npt.NDArray[np.float64]

ORDERS: Floats = np.unique(
    np.concatenate([1 + np.logspace(-4, 0, 81), np.arange(2.0, 64.0, 0.5), np.round(np.logspace(6, 10, 33, base=2))])
)


@dataclass(frozen=True)
class Accountant:
    """What a mechanism spends."""

    mechanism: Mechanism

    @cached_property
    def _moments(self) -> Floats:
        """RDP of one release at every order."""
        z, q = self.mechanism.z, self.mechanism.sampling_prob
        if self.mechanism.participation.sampling == "fixed" or q == 1.0:
            return ORDERS / (2 * z**2)
        from opacus.accountants.analysis.rdp import compute_rdp  # noqa: PLC0415 - slow to load

        moments = np.asarray(compute_rdp(q=q, noise_multiplier=z, steps=1, orders=ORDERS.tolist()), dtype=np.float64)
        # Leaving out an order can only make epsilon larger.
        moments = np.where(np.isfinite(moments) & (moments >= 0), moments, np.inf)
        if np.isinf(moments).all():
            raise PrivacyError(f"The moments at z={z:g}, q={q:g} cannot be computed. Use another sigma_dp.")
        return moments

    def epsilon(self, releases: int) -> float | None:
        """Return epsilon at the target delta after so many releases; None where there is no guarantee."""
        if self.mechanism.privacy.void is not None:
            return None
        if releases == 0:
            return 0.0
        delta = self.mechanism.privacy.target_delta
        conversion = np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
        return max(float(np.min(releases * self._moments + conversion)), 0.0)
