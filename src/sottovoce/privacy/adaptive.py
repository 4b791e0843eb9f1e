"""Adaptive clipping: bounds C_h that follow a quantile of users' norms |Delta_h| (Andrew et al. 2021), layer by layer.

Beside its clipped delta, every user adds one indicator per bound, b_h = 1/2 where |Delta_h| <= C_h and -1/2 elsewhere.
The release noises the sums of both. With the noised average of b_h, the bound of the next step is

    C_h <- C_h * exp(-lr * (average of b_h + 1/2 - quantile))

so it grows while fewer users than the quantile lie below it. Bounds are functions of earlier releases, so they are
public, and C needs no guessing: it is only where the bounds begin.

**One Gaussian mechanism.** What a user adds is one vector of integers,

    x = 2^38 * (sqrt(1 - f) * a_1 * clip(Delta_1) / C_1, ..., sqrt(1 - f) * a_H * clip(Delta_H) / C_H,
                sqrt(f / H) * 2 b_1, ..., sqrt(f / H) * 2 b_H)

with sum a_h^2 = 1 and the share f of the privacy that the counts spend. Every coordinate gets noise of std z * 2^38,
whatever the bounds are. |clip(Delta_h)| <= C_h and |2 b_h| = 1, hence

    |x|^2 <= 2^76 * ((1 - f) * sum a_h^2 + f / H * H) = 2^76

so one user moves the sum by at most 2^38 in Euclidean norm, and z is the noise multiplier of deltas and counts
together: the configured sigma_dp * S, as for every other clipping, and with it every plan. In the terms of the paper,
the deltas have z_delta = z / sqrt(1 - f), a count has noise of std sigma_b = z / 2 * sqrt(H / f), and

    1 / z^2 = 1 / z_delta^2 + H / (2 sigma_b)^2.

All of it scales with a user's weight, so weights, q_min and cohorts of fixed size are covered by what the mechanism
says of them. A step's bounds depend on earlier releases alone, so releases compose as adaptively chosen ones.

In floating point: the bounds on the integers (`JointGrid`) are computed with a margin, rounded down to integers, and
the sum of their squares is compared with 2^76 in exact arithmetic, every time. `clipping.py` keeps each layer within
its integer bound, exactly, and an indicator is plus or minus an integer.

**Where the noise goes.** In the average, layer h has noise of std proportional to s_h = C_h / a_h. With the bound per
coordinate c_h = C_h / sqrt(d_h), the three choices of `noise` are s_h = c_h^p:

- isotropic, p = 0: the same std everywhere; total noise D * sum_h d_h c_h^2. As in the paper.
- least, p = 1/2: total noise (sum_h d_h c_h)^2. By the inequality of Cauchy and Schwarz no other choice has less: with
  any s_h, sum d_h s_h^2 * sum C_h^2 / s_h^2 >= (sum sqrt(d_h) C_h)^2. The default: the smallest expected squared error
  of the release for its privacy, and between the other two whatever the server does with it.
- proportional, p = 1: in every layer the norm of the noise is the same multiple of C_h; total noise D * sum_h d_h c_h^2
  again. It suits servers that rescale every layer (LAMB, LARS), and is what `dim` does at its own bounds.

Where all c_h are equal, which is what `dim` sets, the three are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sottovoce.errors import PrivacyError

NoiseShare = Literal["isotropic", "least", "proportional"]

_POWERS: dict[NoiseShare, float] = {"isotropic": 0.0, "least": 0.5, "proportional": 1.0}
_SMALLEST, _LARGEST = 1e-30, 1e30  # bounds stay in the range of `privacy.clip_norm`
_LEAST_SHARE = 2.0**-18  # of the largest a_h: a layer keeps at least 2^20 units of the grid, or nearly
_MARGIN = 1 - 2.0**-44  # more than the rounding errors of computing a share


class AdaptiveClipping(BaseModel):
    """Options of adaptive clipping. They mean nothing with other kinds of clipping."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    quantile: float = Field(0.5, gt=0, lt=1, description="the share of users whose delta a bound should leave alone")
    lr: float = Field(0.5, gt=0, le=10, description="how fast bounds follow: a step changes them by a factor <= e^lr")
    share: float = Field(
        0.01,
        ge=1e-6,
        le=0.5,
        description="the share f of the privacy, in 1/z^2, that counting users below bounds costs",
    )
    start: Literal["dim", "uniform"] = Field("dim", description="how the first bounds follow from clip_norm")
    noise: NoiseShare = Field(
        "least",
        description="where the noise goes: least in total, isotropic, or proportional to the bounds of layers",
    )


@dataclass(frozen=True)
class JointGrid:
    """What one user may add in one step, in integers: a norm for the layers of every bound, and a number per count."""

    norms: tuple[int, ...]  # the largest norm of the integers that a bound covers
    count: int  # what an indicator of 1/2 is

    @classmethod
    def of(cls, bounds: Sequence[float], sizes: Sequence[int], options: AdaptiveClipping, largest: int) -> JointGrid:
        """Share the norm `largest` out to deltas and counts; PrivacyError is raised where the sum would exceed it."""
        power = _POWERS[options.noise]
        raw = [
            math.sqrt(size) * (bound / math.sqrt(size)) ** (1 - power)
            for bound, size in zip(bounds, sizes, strict=True)
        ]
        raised = [max(value / max(raw), _LEAST_SHARE) for value in raw]
        scale = largest * _MARGIN * math.sqrt(1 - options.share) / math.hypot(*raised)
        norms = tuple(int(scale * value) for value in raised)
        count = int(largest * _MARGIN * math.sqrt(options.share / len(norms)))
        return cls(norms, count).checked(largest)

    def checked(self, largest: int) -> JointGrid:
        """Return this grid; raise PrivacyError where a user could add a vector that is longer than `largest`."""
        if sum(norm**2 for norm in self.norms) + len(self.norms) * self.count**2 > largest**2:
            raise PrivacyError("Clip bounds and counts add up to more than one user may add. Nothing is released.")
        if not self.count or not all(self.norms):
            raise PrivacyError("There are too many clip bounds for the grid of the sums. Use a coarser partition.")
        return self


def first_bounds(clip_norm: float, sizes: Sequence[int], options: AdaptiveClipping) -> tuple[float, ...]:
    """Return the bounds before the first release."""
    shares = [1.0 if options.start == "uniform" else float(size) for size in sizes]
    return tuple(clip_norm * math.sqrt(share / math.fsum(shares)) for share in shares)


def next_bounds(bounds: Sequence[float], fractions: Sequence[float], options: AdaptiveClipping) -> tuple[float, ...]:
    """Return the bounds after a release that found these fractions of users below them.

    Noise may put a fraction far outside of [0, 1]. Its distance from the quantile counts as at most 1, the same on both
    sides, so that this favours no direction.
    """
    moved = []
    for bound, fraction in zip(bounds, fractions, strict=True):
        distance = min(max(fraction - options.quantile, -1.0), 1.0)
        moved.append(min(max(bound * math.exp(-options.lr * distance), _SMALLEST), _LARGEST))
    return tuple(moved)


class CountNoise(BaseModel):
    """What a ledger says of adaptive clipping: its options, and the noise of deltas and of counts."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    options: AdaptiveClipping
    bounds: int  # H, how many there are
    z_delta: float  # the noise multiplier that deltas alone would have
    sigma_b: float  # the std of the noise on a count, in users (times the largest weight)

    @classmethod
    def of(cls, options: AdaptiveClipping, bounds: int, z: float, sensitivity: float) -> CountNoise:
        """Divide the noise multiplier z; `sensitivity` is what one user can change, in units of its own bound."""
        return cls(
            options=options,
            bounds=bounds,
            z_delta=z / math.sqrt(1 - options.share),
            sigma_b=z * sensitivity / 2 * math.sqrt(bounds / options.share),
        )

    def z(self, sensitivity: float) -> float:
        """Return the noise multiplier of both together: 1/z^2 = 1/z_delta^2 + H/(2 sigma_b)^2."""
        return 1 / math.sqrt(1 / self.z_delta**2 + self.bounds * (sensitivity / (2 * self.sigma_b)) ** 2)
